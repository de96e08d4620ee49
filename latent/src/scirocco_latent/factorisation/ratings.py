"""Ratings: validation and numbering of ids on the host, because a gather in JAX would clamp an invalid id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scirocco import _checks
from scirocco.data.values import as_numpy, missing
from scirocco.errors import InvalidTypeError, InvalidValueError

Array = np.ndarray

_LARGE, _SMALL = 10.0, 0.1
"""Standard deviations of ratings with a warning: above the first, below the second."""
_FEW_ROWS, _MOST_GAPS = 1_000, 2
"""Integers are row numbers if the largest is below the first, or the second times the number of different ones."""


class Triples(NamedTuple):
    """Checked ratings, the numbers of users and items, and their ids (None: the row numbers)."""

    users: Array
    items: Array
    ratings: Array
    num_users: int
    num_items: int
    user_ids: Array | None = None
    item_ids: Array | None = None


class Rated(NamedTuple):
    """The pairs of user and item with ratings in a fit."""

    items: Array
    """Items, sorted by user."""
    first: Array
    """Offsets of the items of each user, and the total."""
    num_items: int
    """Number of items of the table, rated or not."""
    user_ids: Array | None = None
    item_ids: Array | None = None
    """The user's ids in the order of the rows; None: the row numbers."""

    @classmethod
    def of(cls, triples: Triples) -> Rated:
        """Group the ratings by user."""
        order = np.argsort(triples.users, kind="stable")
        first = np.searchsorted(triples.users[order], np.arange(triples.num_users + 1))
        return cls(triples.items[order], first, triples.num_items, triples.user_ids, triples.item_ids)

    def told(self) -> dict[str, Any]:
        """All but the arrays of rows, as JSON."""
        ids = {"user_ids": self.user_ids, "item_ids": self.item_ids}
        written = {name: None if of is None else [of.tolist(), of.dtype.str] for name, of in ids.items()}
        return {"num_items": self.num_items, **written}

    @classmethod
    def read(cls, told: Mapping[str, Any], arrays: Mapping[str, Array]) -> Rated:
        """From a file."""
        ids = (told[name] for name in ("user_ids", "item_ids"))
        known = (None if of is None else np.asarray(of[0], np.dtype(of[1])) for of in ids)
        return cls(arrays["items"], arrays["first"], int(told["num_items"]), *known)


def check_triples(
    users: ArrayLike, items: ArrayLike, ratings: ArrayLike, num_users: int | None, num_items: int | None
) -> Triples:
    """Check that lengths are equal, ids valid and ratings finite. Several ratings of one pair are allowed."""
    values = check_ratings(ratings)
    user_rows, user_ids = _numbered(users, "user", num_users)
    item_rows, item_ids = _numbered(items, "item", num_items)
    check_lengths({"users": user_rows, "items": item_rows, "ratings": values})
    if not len(values):
        raise InvalidValueError("`ratings` is empty.")
    spread = float(values.std())
    if spread > _LARGE or 0 < spread < _SMALL:
        _checks.warn(
            f"the ratings have the standard deviation {spread:.3g}; priors and step sizes are designed for ratings "
            "with one near 1 (such as 1 to 5 stars): divide them by it."
        )
    sizes = [
        int(rows.max()) + 1 if declared is None else int(declared)
        for rows, declared in ((user_rows, num_users), (item_rows, num_items))
    ]
    return Triples(user_rows, item_rows, values, sizes[0], sizes[1], user_ids, item_ids)


def _numbered(ids: ArrayLike, kind: str, size: int | None) -> tuple[Array, Array | None]:
    """Row numbers of ids, and the sorted ids; None where ids are row numbers: integers, most of which occur."""
    array = _id_array(ids, kind)
    if size is not None or not len(array):
        return check_ids(array, kind, size), None
    try:
        known, rows = np.unique(array, return_inverse=True)
    except TypeError as error:
        raise InvalidTypeError(f"`{kind}s` have ids of several types ({error}): convert all to strings.") from error
    if known.dtype.kind in "iu" and known[0] >= 0 and known[-1] < max(_FEW_ROWS, _MOST_GAPS * len(known)):
        return array.astype(np.int32), None
    return rows.astype(np.int32), known


def _id_array(ids: ArrayLike, kind: str) -> Array:
    array = np.atleast_1d(as_numpy(ids, f"`{kind}s`"))
    if array.ndim != 1:
        raise InvalidValueError(f"`{kind}s` must be a list of ids, one per rating; got shape {array.shape}.")
    if array.dtype == object:
        for place, value in enumerate(array):
            if missing(value):
                raise InvalidValueError(f"`{kind}s` has a missing id in row {place} ({value!r}): drop its rating.")
        if all(isinstance(value, (str, int, np.integer)) for value in array):
            array = np.array(array.tolist()) if len({isinstance(v, str) for v in array}) == 1 else array
    if array.dtype.kind == "S":
        array = np.char.decode(array)
    if len(array) and array.dtype.kind not in "iuUO":
        raise InvalidTypeError(f"`{kind}s` must be integers or strings, got {array.dtype}. Use {kind}s.astype(int).")
    return array


def check_lengths(arrays: dict[str, Array]) -> None:
    """Raise an error if arrays have unequal lengths."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise InvalidValueError(f"there must be one user and one item per rating: {listed}.")


def check_ids(ids: ArrayLike, kind: str, size: int | None, of: str = "rating", known: Array | None = None) -> Array:
    """Row numbers (int32) of ids: themselves, below `size`, or their places in `known`; `of` is a word for messages."""
    array = _id_array(ids, kind)
    if not len(array):
        return np.zeros(0, np.int32)
    if known is not None:
        if known.dtype.kind != array.dtype.kind and {known.dtype.kind, array.dtype.kind} - {"i", "u"}:
            raise InvalidTypeError(f"`{kind}s` were {known.dtype} in the fit, and are {array.dtype} now.")
        rows = np.searchsorted(known, array).clip(max=len(known) - 1)
        unknown = np.flatnonzero(known[rows] != array)
        if unknown.size:
            raise InvalidValueError(
                f"{of} {int(unknown[0])} has the {kind} {array[unknown[0]].item()!r}, which has no rating in the fit "
                f"({unknown.size} of {len(array)} {of}s have such {kind}s)."
            )
        return rows.astype(np.int32)
    if array.dtype.kind not in "iu":
        raise InvalidTypeError(
            f"`{kind}s` must be integers from 0 on, because num_{kind}s is declared or the fit had such ids; got "
            f"{str(array[0])!r}."
        )
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


def check_ratings(ratings: ArrayLike) -> Array:
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
