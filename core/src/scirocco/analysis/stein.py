r"""Kernel Stein discrepancy: how far draws are from a distribution, given only gradients of its log density."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scirocco import _checks
from scirocco._stein import stein_kernel
from scirocco.errors import InvalidTypeError, InvalidValueError

Array = np.ndarray[Any, np.dtype[Any]]

_BLOCK = 1024  # rows per block: a few matrices of 8 MB
_FOR_SCALE = 1000  # draws used to choose the scale


class Stein(NamedTuple):
    """A kernel Stein discrepancy and its parts."""

    value: float
    """√max(0, squared)."""
    squared: float
    """The mean of the Stein kernel over pairs; below 0 only by chance (unbiased form only)."""
    standard_error: float
    """Standard error of `squared`, from the spread of the row means, for independent draws not from the target."""
    scale: float
    """c of the kernel, in the coordinates used."""


def ksd(
    draws: npt.ArrayLike,
    gradients: npt.ArrayLike | None = None,
    *,
    scale: float | None = None,
    unbiased: bool = True,
    standardise: bool = True,
) -> Stein:
    r"""Kernel Stein discrepancy of draws to the distribution whose ∇ log density is `gradients`.

    With s = ∇ log p and a kernel k(x, y), the Stein kernel

    .. math:: k_0(x, y) = s_x·s_y k + s_x·∇_y k + s_y·∇_x k + \operatorname{tr} ∇_x ∇_y k

    has mean 0 under p in each argument, so that KSD² = E k₀(x, y) is 0 if and only if the draws come from p. The kernel
    is (c² + |x - y|²)^(-1/2), with which it is small only if the draws converge (Gorham & Mackey 2017).

    Gradients may be estimates from minibatches: if the errors of different draws are independent, pairs of different
    draws have the right mean. So keep `unbiased=True`; the mean over all pairs, including i = j, is for exact
    gradients.

    Parameters
    ----------
    draws
        (..., dimension); leading axes (chain, draw) are flattened.
    gradients
        ∇ log posterior at the draws, the same shape: `run.gradients` of `sc.sample(..., keep_gradients=True)`. Always
        required.
    scale
        c; by default the median distance of the draws.
    unbiased
        Use only pairs of different draws (a U-statistic); otherwise all pairs (a V-statistic, never negative).
    standardise
        Divide every coordinate by its standard deviation first (and multiply gradients by it), so that the units of
        parameters do not matter.

    Returns
    -------
    Stein
        With the fields `value`, `squared`, `standard_error` and `scale`.

    Notes
    -----
    O(draws² · dimension) time, in blocks: memory grows with draws · dimension only.

    Examples
    --------
    >>> import numpy as np
    >>> from scirocco.analysis import ksd
    >>> x = np.random.default_rng(0).normal(size=(1000, 3))
    >>> good, wide = ksd(x, -x), ksd(1.5 * x, -1.5 * x)  # both for a standard normal law
    >>> abs(good.squared) < 4 * good.standard_error, wide.squared > 4 * wide.standard_error
    (True, True)
    """
    if gradients is None:
        raise InvalidTypeError(
            "ksd requires `gradients` as well, ∇ log posterior at the draws. A run has them if it was made with "
            "sc.sample(..., keep_gradients=True): ksd(run.draws, run.gradients)."
        )
    x, s = _pairs(draws, gradients)
    x = x - x.mean(axis=0)
    if standardise:
        spread = x.std(axis=0)
        spread[spread == 0] = 1.0
        x, s = x / spread, s * spread
    c = _median_distance(x) if scale is None else float(scale)
    _checks.positive(c, "scale")
    num = len(x)
    sums, diagonal = np.zeros(num), 0.0
    for first in range(0, num, _BLOCK):
        rows = slice(first, min(first + _BLOCK, num))
        for begin in range(first, num, _BLOCK):
            columns = slice(begin, min(begin + _BLOCK, num))
            block = stein_kernel(np, x[rows], s[rows], x[columns], s[columns], c)
            if begin == first:
                diagonal += float(np.trace(block))
                if unbiased:
                    np.fill_diagonal(block, 0.0)
                sums[rows] += block.sum(axis=1)
            else:
                sums[rows] += block.sum(axis=1)
                sums[columns] += block.sum(axis=0)
    others = num - 1 if unbiased else num
    means = sums / others
    squared = float(means.mean())
    error = 2.0 * float(means.std(ddof=1)) / math.sqrt(num)
    return Stein(math.sqrt(max(0.0, squared)), squared, error, c)


def _median_distance(x: Array) -> float:
    some = x[:: max(1, len(x) // _FOR_SCALE)]
    square = (some**2).sum(axis=1)[:, None] + (some**2).sum(axis=1) - 2.0 * (some @ some.T)
    found = float(np.median(square[np.triu_indices(len(some), 1)]))
    return math.sqrt(found) if found > 0 else 1.0


def _pairs(draws: npt.ArrayLike, gradients: npt.ArrayLike) -> tuple[Array, Array]:
    x, s = _checks.numbers(draws, "draws"), _checks.numbers(gradients, "gradients")
    if x.ndim < 2 or x.shape != s.shape:
        raise InvalidValueError(
            f"`draws` and `gradients` must have the same shape (..., dimension), got {x.shape} and {s.shape}."
        )
    x, s = x.reshape(-1, x.shape[-1]), s.reshape(-1, s.shape[-1])
    if len(x) < 2:
        raise InvalidValueError(f"ksd requires at least two draws, got {len(x)}.")
    for array, name in ((x, "draws"), (s, "gradients")):
        if not np.all(np.isfinite(array)):
            row = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
            raise InvalidValueError(f"`{name}` must be finite; number {row} is not.")
    return x, s
