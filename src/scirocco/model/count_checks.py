"""What users write for a count model, checked: concentrations, starting values, the form of the function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from scirocco import _tree
from scirocco.errors import InvalidTypeError, InvalidValueError

_OFF_SIMPLEX = 1e-3


def fits(shape: tuple[int, ...], into: tuple[int, ...]) -> bool:
    """Whether an array of this shape can be repeated to the other."""
    tail = into[len(into) - len(shape) :]
    return len(shape) <= len(into) and all(a in (1, b) for a, b in zip(shape, tail, strict=True))


def takes_three(counts: Callable[..., Any]) -> bool:
    """Whether the user's function wants a key: it has a third argument without a default, or one named `key`."""
    try:
        parameters = list(inspect.signature(counts).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature
        return True
    placed = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(placed) >= 3:
        return placed[2].default is placed[2].empty or placed[2].name == "key"
    return any(p.kind == p.VAR_POSITIONAL for p in parameters)


def spread(values: Any, like: Any, name: str) -> list[Any]:
    """One value for each leaf of the parameters: from a number, an array, a list of numbers, or a tree like theirs."""
    if isinstance(values, (list, tuple)) and not isinstance(like, (list, tuple)):
        values = np.asarray(values, np.float64)
    hint = " Give one value, or one for every parameter."
    return jax.tree.leaves(_tree.broadcast_prefix(values, like, name, hint=hint))


def check_fits(values: Any, like: Any, name: str) -> None:
    """Refuse an array that cannot be repeated to the shape of its parameter."""
    triples = zip(_tree.leaf_names(like), jax.tree.leaves(like), spread(values, like, name), strict=True)
    for leaf_name, leaf, value in triples:
        if not fits(np.shape(value), leaf.shape):
            raise InvalidValueError(
                f"`{name}` has shape {np.shape(value)}, which does not fit `{leaf_name}` of shape {leaf.shape}."
            )


def positive_tree(values: Any, name: str) -> Any:
    """Numbers and arrays > 0, as Python floats and NumPy arrays."""
    leaves, treedef = jax.tree.flatten(values)
    if not leaves:
        raise InvalidValueError(f"`{name}` of CountModel holds no numbers.")
    out = []
    for leaf in leaves:
        try:
            array = np.asarray(leaf, np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidTypeError(f"`{name}` of CountModel must hold numbers > 0, got {leaf!r}.") from error
        if array.size == 0 or not np.all(np.isfinite(array)) or np.any(array <= 0):
            worst = (
                leaf if array.ndim == 0 else f"{np.min(array) if array.size else 'an empty array'} among them"
            )
            raise InvalidValueError(f"`{name}` of CountModel must be finite and > 0, got {worst}.")
        out.append(float(array) if array.ndim == 0 else array)
    return jax.tree.unflatten(treedef, out)


def check_simplex(name: str, host: np.ndarray) -> None:
    """Refuse a starting value that is not on the simplex."""
    if host.ndim == 0 or host.shape[-1] < 2:
        raise InvalidValueError(
            f"`{name}` has shape {host.shape}: a point on the simplex has at least two components along its last axis."
        )
    if np.any(host < 0):
        raise InvalidValueError(
            f"the starting value of `{name}` is off the simplex: its least entry is {host.min():g}; all must be >= 0."
        )
    sums = host.sum(axis=-1)
    worst = sums.ravel()[np.argmax(np.abs(sums - 1.0))]
    if abs(worst - 1.0) > _OFF_SIMPLEX:
        raise InvalidValueError(
            f"the starting value of `{name}` is off the simplex: along the last axis it sums to {worst:.6g}, not 1. "
            "Divide by the sum, e.g. np.full(10, 0.1)."
        )
