"""Wasserstein distances between two samples: exact in one dimension, sliced in more."""

from __future__ import annotations

from typing import Any

import numpy as np

from scirocco import _checks
from scirocco.errors import InvalidTypeError, InvalidValueError

Array = np.ndarray[Any, np.dtype[Any]]

_BLOCK_BYTES = 1 << 26


def wasserstein(a: Any, b: Any, order: float = 1) -> float:
    r"""Wasserstein distance of two samples of a number: exact, whatever their sizes.

    .. math:: W_p = \left(∫_0^1 |F_a^{-1}(u) - F_b^{-1}(u)|^p\,du\right)^{1/p}

    Parameters
    ----------
    a, b
        Numbers, any shape: axes (chain, draw) are flattened.
    order
        p ≥ 1.

    Returns
    -------
    float
        In the units of the numbers. Two samples of one law have a distance above 0, of the order of 1/√n.

    Examples
    --------
    >>> from scirocco.analysis import wasserstein
    >>> wasserstein([0.0, 1.0, 2.0], [3.0, 4.0, 5.0]), wasserstein([0.0], [-1.0, 1.0], order=2)
    (3.0, 1.0)
    """
    power = _order(order)
    x, y = _finite(a, "a").reshape(-1, 1), _finite(b, "b").reshape(-1, 1)
    for found, name in ((x, "a"), (y, "b")):
        if not len(found):
            raise InvalidValueError(f"`{name}` must have at least one draw, got none.")
    return float(_to_the_power(x, y, power)[0] ** (1.0 / power))


def sliced_wasserstein(
    a: Any, b: Any, *, order: float = 2, num_projections: int = 200, seed: int = 0
) -> float:
    r"""Sliced Wasserstein distance of two samples: the mean over directions of that of their projections.

    .. math:: SW_p = \left(E_u W_p^p(u·a, u·b)\right)^{1/p}, \qquad u \text{ uniform on the sphere}

    A shift by c costs |c|/√d at order 2 (the W₂ distance itself is |c|). It is 0 if and only if the laws are the same,
    and, unlike W_p, needs no more draws in more dimensions. Coordinates count in their own units: divide by their
    standard deviations first where those differ.

    Parameters
    ----------
    a, b
        Draws (..., dimension); leading axes (chain, draw) are flattened. The samples may have different sizes.
    order
        p ≥ 1.
    num_projections
        Random directions; the error of the mean over them falls like one over its root.
    seed
        Of the directions: the same ones for the same seed and dimension.

    Returns
    -------
    float
        In the units of the draws.

    Notes
    -----
    O(num_projections · draws · (dimension + log draws)) time, in blocks of directions.

    References
    ----------
    Bonneel, Rabin, Peyré & Pfister (2015), Sliced and Radon Wasserstein barycenters of measures.

    Examples
    --------
    >>> import numpy as np
    >>> from scirocco.analysis import sliced_wasserstein
    >>> a = np.random.default_rng(0).normal(size=(1000, 4))
    >>> sliced_wasserstein(a, a), abs(sliced_wasserstein(a, a + [2.0, 0.0, 0.0, 0.0]) - 1.0) < 0.2
    (0.0, True)
    """
    power = _order(order)
    x, y = _draws(a, "a"), _draws(b, "b")
    if x.shape[1] != y.shape[1]:
        raise InvalidValueError(
            f"`a` and `b` must have the same dimension (last axis), got {x.shape[1]} and {y.shape[1]}."
        )
    _checks.positive_int(num_projections, "num_projections")
    _checks.positive_int(seed, "seed", minimum=0)
    directions = np.random.default_rng(seed).normal(size=(x.shape[1], num_projections))
    directions /= np.sqrt(np.sum(directions**2, axis=0))
    width = max(1, _BLOCK_BYTES // (8 * (len(x) + len(y))))
    found = [
        _to_the_power(
            x @ directions[:, first : first + width], y @ directions[:, first : first + width], power
        )
        for first in range(0, num_projections, width)
    ]
    return float(np.mean(np.concatenate(found)) ** (1.0 / power))


def _to_the_power(x: Array, y: Array, power: float) -> Array:
    """W_p^p between the columns of x and those of y."""
    x, y = np.sort(x, axis=0), np.sort(y, axis=0)
    n, m = len(x), len(y)
    if n == m:
        return np.asarray(np.mean(np.abs(x - y) ** power, axis=0))
    # Both quantile functions are constant between the numbers i/n and j/m; whole numbers i m and j n have no rounding.
    ends = np.union1d(np.arange(1, n + 1) * m, np.arange(1, m + 1) * n)
    weights = np.diff(ends, prepend=0) / (n * m)
    return np.asarray(weights @ np.abs(x[(ends - 1) // m] - y[(ends - 1) // n]) ** power)


def _order(order: Any) -> float:
    _checks.positive(order, "order")
    if order < 1:
        raise InvalidValueError(f"`order` must be at least 1, got {order}.")
    return float(order)


def _draws(values: Any, name: str) -> Array:
    found = _finite(values, name)
    if found.ndim < 2 or not found.size:
        raise InvalidValueError(
            f"`{name}` must have the shape (..., dimension) and at least one draw, got {found.shape}. Use "
            "`wasserstein` for draws of a number."
        )
    return found.reshape(-1, found.shape[-1])


def _finite(values: Any, name: str) -> Array:
    try:
        found = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(
            f"`{name}` must be an array of numbers, got {type(values).__name__}."
        ) from error
    if not np.all(np.isfinite(found)):
        raise InvalidValueError(
            f"`{name}` must be finite; {np.sum(~np.isfinite(found))} of its numbers are not."
        )
    return found
