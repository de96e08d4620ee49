"""Central intervals of draws: one rule for all models."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scirocco import _checks
from scirocco.diagnostics.measures import autocorrelation
from scirocco.errors import InvalidValueError

Array = npt.NDArray[Any]
METHOD: Any = "weibull"
"""The rule, for `np.quantile`: quantile p of n draws is at rank p (n + 1).

A further independent draw lies between the ends of a central interval with exactly its probability. With NumPy's
default rule, which puts the extreme draws at 0 and 1, a 90 % interval of 20 draws has only 81 %."""


class Predicted(NamedTuple):
    """A prediction with a central interval."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def tails_of(interval: Any) -> tuple[float, float]:
    """The probabilities of the two ends of a central interval."""
    if not _checks.is_number(interval) or not 0 < float(interval) < 1:
        raise InvalidValueError(f"`interval` must be between 0 and 1, got {interval!r}.")
    return (1 - float(interval)) / 2, (1 + float(interval)) / 2


def least_draws(interval: float) -> int:
    """The smallest number of draws that determines a central interval: with fewer, its ends lie beyond all of them.

    Examples
    --------
    >>> least_draws(0.9), least_draws(0.95), least_draws(0.5)
    (19, 39, 3)
    """
    return math.ceil(round(1.0 / tails_of(interval)[0], 9)) - 1


def widest(count: int, interval: float) -> float:
    """The interval, or the widest that so many draws determine; 0 for a single draw."""
    return float(interval) if count >= least_draws(interval) else math.floor(100 * (count - 1) / (count + 1)) / 100


def check_draws(count: int, interval: float, advice: str = "Sample more draws (num_samples)") -> None:
    """Raise an error if there are too few draws for an interval."""
    least = least_draws(interval)
    if count < least:
        most = widest(count, interval) if count else 0.0
        lower = f", or use an interval of at most {most:g}" if most > 0 else ""
        raise InvalidValueError(
            f"an interval of {100 * float(interval):g} % requires at least {least} draws, got {count}. {advice}{lower}."
        )


def central(
    draws: npt.ArrayLike,
    interval: float,
    axis: int | tuple[int, ...] = 0,
    *,
    effective: float | None = None,
    advice: str = "Sample more draws (num_samples)",
) -> tuple[Array, Array]:
    """Lower and upper ends of central intervals, over the axes of the draws.

    Parameters
    ----------
    draws
        The draws.
    interval
        Its probability.
    axis
        The axes of the draws.
    effective
        Number of independent draws that are worth as much, from `effective_draws`. If it is smaller, the ends are
        further out: at the fractions of the draws where the same rule puts the ends among that many.
    advice
        What to do about too few draws.

    Examples
    --------
    >>> import numpy as np
    >>> low, high = central(np.arange(1, 20), 0.9)
    >>> float(low), float(high)
    (1.0, 19.0)
    """
    values = np.asarray(draws)
    axes = (axis,) if isinstance(axis, int) else axis
    count = math.prod(values.shape[a] for a in axes)
    low, high = tails_of(interval)
    check_draws(count, interval, advice)
    if effective is not None and effective < count:
        low = _further_out(low, count, effective)
        high = 1.0 - low
    kind = np.float64 if values.dtype.kind in "iub" else values.dtype
    ends = np.quantile(values, (low, high), axis=axis, method=METHOD).astype(kind)
    return ends[0][()], ends[1][()]


def _further_out(tail: float, count: int, effective: float) -> float:
    """The tail for `count` dependent draws that are worth `effective`.

    Draw k of m is at the fraction (k - ½)/m of the distribution: the rule takes k = tail (m + 1), and the same fraction
    of n draws has rank n (tail (m + 1) - ½)/m + ½.
    """
    worth = max(effective, 1.0)
    rank = count * (tail * (worth + 1) - 0.5) / worth + 0.5
    return max(rank, 1.0) / (count + 1)


def effective_draws(draws: npt.ArrayLike) -> float:
    """Number of independent draws that draws (chain, draw, ...) are worth, by the mean autocorrelation of all values.

    One number for all: with few draws the autocorrelation of a single value is noise. The sum over lags ends with the
    first pair of neighbours whose sum is negative (Geyer's initial positive sequence).
    """
    values = np.asarray(draws, np.float64)
    chains, count = values.shape[:2]
    if count < 4:
        return float(chains * count)
    flat = values.reshape(chains, count, -1)
    spread = flat.var(axis=1).mean(axis=0)
    found = autocorrelation(flat[..., spread > 0]) if np.any(spread > 0) else np.ones((1, 1, 0))
    if not found.shape[-1]:
        return float(chains * count)
    mean = np.nanmean(found, axis=tuple(a for a in range(found.ndim) if a != 1))
    mean = mean + (1.0 - mean) / count  # the mean is subtracted, which takes about 1/n off each
    time = -1.0
    for lag in range(0, len(mean) - 1, 2):
        pair = mean[lag] + mean[lag + 1]
        if pair <= 0:
            break
        time += 2 * pair
    return float(chains * count / max(time, 1.0))
