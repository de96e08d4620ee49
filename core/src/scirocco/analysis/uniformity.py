"""Exact tests of uniform ranks: simultaneous bands for their distribution function, and p-values.

Of M independent ranks, uniform on 0 ... L, the numbers C_k below k (k = 1 ... L) are binomial, and a Markov chain in k:
C_{k+1} - C_k given C_k is Bin(M - C_k, 1/(L + 1 - k)). The probability that all of them stay inside a band is therefore
a product of small matrices; no simulation and no asymptotics.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from scirocco.errors import InvalidValueError

Array = np.ndarray[Any, np.dtype[Any]]

_HALVINGS = 40  # of the interval that holds the tail probability: to 10⁻¹²


class Bands(NamedTuple):
    """Inclusive limits for the number of ranks below k = 1 ... L."""

    low: Array
    high: Array


def bands(num_values: int, num_ranks: int, probability: float = 0.95) -> Bands:
    """Limits that all counts of uniform ranks respect together with at least this probability, equal in each tail.

    Parameters
    ----------
    num_values
        The number M of ranks.
    num_ranks
        L: ranks are 0 ... L.
    probability
        Of all counts being inside.

    References
    ----------
    Säilynoja, Bürkner & Vehtari (2022), Graphical test for discrete uniformity.
    """
    tails = _tails(num_values, num_ranks)
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        inside = tails > middle
        if inside.any(axis=1).all() and _stays(inside, num_values, num_ranks) >= probability:
            low = middle
        else:
            high = middle
    inside = tails > low
    return Bands(np.argmax(inside, axis=1), num_values - np.argmax(inside[:, ::-1], axis=1))


def p_value(ranks: Array, num_ranks: int) -> float:
    """The probability that uniform ranks are, at their worst point, as improbable as these."""
    ranks = np.asarray(ranks)
    if ranks.ndim != 1 or not len(ranks) or ranks.min() < 0 or ranks.max() > num_ranks:
        raise InvalidValueError(f"ranks must be whole numbers from 0 to {num_ranks}, one for each replication.")
    tails = _tails(len(ranks), num_ranks)
    worst = tails[np.arange(num_ranks), counts(ranks, num_ranks)].min()
    # counts whose tail equals the worst one are as improbable, up to rounding; so is half of it, its own tail
    return float(max(1.0 - _stays(tails > worst * (1 + 1e-9), len(ranks), num_ranks), 0.5 * worst))


def counts(ranks: Array, num_ranks: int) -> Array:
    """The number of ranks below k, for k = 1 ... L."""
    found = np.bincount(np.asarray(ranks, int), minlength=num_ranks + 1)
    return np.asarray(np.cumsum(found)[:num_ranks])


def _tails(num_values: int, num_ranks: int) -> Array:
    """2 min(P(C_k <= c), P(C_k >= c)) for k = 1 ... L and c = 0 ... M."""
    shares = np.arange(1, num_ranks + 1) / (num_ranks + 1)
    masses = _binomial(np.arange(num_values + 1)[None], num_values, shares[:, None])
    below = np.cumsum(masses, axis=1)
    above = np.cumsum(masses[:, ::-1], axis=1)[:, ::-1]
    return 2.0 * np.minimum(below, above)


def _stays(inside: Array, num_values: int, num_ranks: int) -> float:
    """The probability that the counts are inside at every k; `inside` is (k, count), an interval for each k."""
    places, chances = np.zeros(1, int), np.ones(1)
    for k, allowed in enumerate(inside):
        new = np.flatnonzero(allowed)
        if not len(new):
            return 0.0
        more = new[:, None] - places[None]
        moves = _binomial(more, num_values - places[None], 1.0 / (num_ranks + 1 - k))
        places, chances = new, moves @ chances
    return float(chances.sum())


def _binomial(successes: Array, trials: Any, share: Any) -> Array:
    """P(Bin(trials, share) = successes); 0 where it is impossible."""
    from scipy.special import gammaln, xlog1py, xlogy

    possible = (successes >= 0) & (successes <= trials)
    k = np.where(possible, successes, 0)
    logs = gammaln(trials + 1.0) - gammaln(k + 1.0) - gammaln(trials - k + 1.0)
    return np.where(possible, np.exp(logs + xlogy(k, share) + xlog1py(trials - k, -share)), 0.0)
