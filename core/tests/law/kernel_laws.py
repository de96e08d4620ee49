"""The exact laws of gamma, Poisson and CIR kernels, and Kolmogorov–Smirnov tests against them, on the log scale."""

from __future__ import annotations

import numpy as np
import scipy.special
import scipy.stats

SHAPES = (1e-4, 1e-2, 0.1, 0.499, 0.5, 0.7, 1.0, 3.0, 250.0, 1e6)
NON_CENTRALITIES = (0.0, 1e-3, 1.0, 30.0, 1e3, 1e6)
NUM_DRAWS = 250_000
_LOOKED_AT = 500


def log_gamma_cdf(log_x: np.ndarray, shape: float) -> np.ndarray:
    """P(log G ≤ log x) for G ~ Gamma(shape, 1), also where x underflows: x^a / Γ(a+1) for small x."""
    log_x = np.asarray(log_x, np.float64)
    small = np.exp(np.minimum(shape * log_x - scipy.special.gammaln(shape + 1.0), 0.0))
    return np.where(log_x < -35.0, small, scipy.special.gammainc(shape, np.exp(np.maximum(log_x, -36.0))))


def log_transition_cdf(log_x: np.ndarray, shape: float, nc: float) -> np.ndarray:
    """P(log G ≤ log x) for 2G ~ χ²(2 shape, nc): a Poisson mixture of gammas, or SciPy's where that is long."""
    mean = nc / 2
    if mean > 1_000:
        return scipy.stats.ncx2.cdf(2 * np.exp(np.asarray(log_x, np.float64)), 2 * shape, nc)
    reach = 12 * np.sqrt(mean) + 40
    numbers = np.arange(max(0, int(mean - reach)), int(mean + reach))
    weights = scipy.stats.poisson.pmf(numbers, mean)
    return sum(w * log_gamma_cdf(log_x, shape + n) for n, w in zip(numbers, weights, strict=True) if w > 1e-14)


def ks_bound(num_draws: int, num_tests: int, level: float = 1e-6) -> float:
    """Massart's bound: all of `num_tests` distances stay below it with probability 1 - level."""
    return float(np.sqrt(np.log(2 * num_tests / level) / (2 * num_draws)))


def ks_distance(draws: np.ndarray, cdf, least: float = -np.inf) -> float:
    """The distance between empirical and exact distribution functions at some 500 order statistics above `least`.

    A lower bound of the full distance, so a test of it cannot fail more often.
    """
    ordered = np.sort(np.asarray(draws, np.float64).ravel())
    n = len(ordered)
    picked = np.unique(np.linspace(0, n - 1, _LOOKED_AT).astype(int))
    x = ordered[picked]
    keep = x > least
    below, up_to = np.searchsorted(ordered, x[keep], "left"), np.searchsorted(ordered, x[keep], "right")
    exact = cdf(x[keep])
    # with ties the empirical function jumps from `below` to `up_to`; the exact one is continuous
    gaps = np.maximum(up_to / n - exact, exact - below / n)
    return float(np.max(gaps, initial=0.0))
