"""Validation of ids and ratings on the host, because a gather in JAX would clamp an invalid id."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scirocco import _checks
from scirocco.data.values import as_numpy
from scirocco.errors import InvalidTypeError, InvalidValueError

_LARGE, _SMALL = 10.0, 0.1


class Triples(NamedTuple):
    """Checked ratings and the numbers of users and items."""

    users: np.ndarray
    items: np.ndarray
    ratings: np.ndarray
    num_users: int
    num_items: int


def check_triples(
    users: ArrayLike, items: ArrayLike, ratings: ArrayLike, num_users: int | None, num_items: int | None
) -> Triples:
    """Check that lengths are equal, ids valid and ratings finite. Several ratings of one pair are allowed."""
    values = check_ratings(ratings)
    user_ids, item_ids = check_ids(users, "user", num_users), check_ids(items, "item", num_items)
    check_lengths({"users": user_ids, "items": item_ids, "ratings": values})
    if not len(values):
        raise InvalidValueError("`ratings` is empty.")
    spread = float(values.std())
    if spread > _LARGE or 0 < spread < _SMALL:
        _checks.warn(
            f"the ratings have the standard deviation {spread:.3g}; priors and step sizes are designed for ratings "
            "with one near 1 (such as 1 to 5 stars): divide them by it."
        )
    sizes = [
        int(ids.max()) + 1 if declared is None else int(declared)
        for ids, declared in ((user_ids, num_users), (item_ids, num_items))
    ]
    return Triples(user_ids, item_ids, values, *sizes)


def check_lengths(arrays: dict[str, np.ndarray]) -> None:
    """Raise an error if arrays have unequal lengths."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise InvalidValueError(f"there must be one user and one item per rating: {listed}.")


def check_ids(ids: ArrayLike, kind: str, size: int | None, of: str = "rating") -> np.ndarray:
    """Convert ids to int32: integers from 0 on, below `size` if known; `of` is a word for messages."""
    array = as_numpy(ids, f"`{kind}s`")
    if array.ndim == 0:
        array = array[None]
    if array.ndim != 1:
        raise InvalidValueError(f"`{kind}s` must be a list of ids, one per rating; got shape {array.shape}.")
    if not len(array):
        return np.zeros(0, np.int32)
    if array.dtype.kind in "USO":
        raise InvalidTypeError(
            f"`{kind}s` must be integers from 0 on, got {str(array.flat[0])!r}. Encode them first: "
            f"names, {kind}s = numpy.unique({kind}s, return_inverse=True)."
        )
    if array.dtype.kind not in "iu":
        raise InvalidTypeError(f"`{kind}s` must be integers, got {array.dtype}. Use {kind}s.astype(int).")
    limit = np.iinfo(np.int32).max if size is None else _checks.positive_int(size, f"num_{kind}s")
    wrong = np.flatnonzero((array < 0) | (array >= limit))
    if wrong.size:
        first = int(wrong[0])
        if array[first] < 0:
            raise InvalidValueError(f"{of} {first} has the {kind} {array[first]}; ids start at 0.")
        raise InvalidValueError(
            f"{of} {first} has the {kind} {array[first]}, beyond the {limit} declared (ids start at 0; "
            f"use num_{kind}s={int(array.max()) + 1} to include all)."
        )
    return array.astype(np.int32)


def check_ratings(ratings: ArrayLike) -> np.ndarray:
    """Ratings as finite float32."""
    array = as_numpy(ratings, "`ratings`")
    if array.dtype.kind not in "fiub":
        raise InvalidTypeError(f"`ratings` must be numbers, got {array.dtype}.")
    if array.ndim != 1:
        raise InvalidValueError(f"`ratings` must be a list of numbers, got shape {array.shape}.")
    values = array.astype(np.float32)
    wrong = np.flatnonzero(~np.isfinite(values))
    if wrong.size:
        raise InvalidValueError(
            f"rating {wrong[0]} is {values[wrong[0]]}; {wrong.size} of {len(values)} are not finite. Remove "
            "missing ratings."
        )
    return values
