"""Pareto-smoothed importance weights (PSIS), for many sets of weights at once.

The largest weights of a set are replaced by expected order statistics of a generalised Pareto distribution that is
fitted to them; its shape k̂ tells how far averages with the weights can be trusted.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from scirocco.diagnostics.measures import Array

USABLE = 0.7
"""The largest k̂ with which averages are usable, for any number of draws."""
_FEWEST = 5  # weights in a tail
_PRIOR_SCALE, _PRIOR_WEIGHT, _PRIOR_SHAPE = 3.0, 10.0, 0.5  # Zhang & Stephens (2009); as in ArviZ


class Smoothed(NamedTuple):
    """Weights whose largest ones were smoothed."""

    log_weights: Array
    """Logarithms of the weights, which sum to 1 along the last axis."""
    k_hat: Array
    """The shape of the tail of each set; ∞ where there were too few different weights."""


def largest_k(num_draws: int) -> float:
    """The largest k̂ with which averages over so many draws are reliable: min(1 - 1/log₁₀ S, 0.7)."""
    return min(1.0 - 1.0 / math.log10(max(num_draws, 11)), USABLE)


def psis(log_weights: Array, efficiency: float = 1.0) -> Smoothed:
    """Smooth importance weights along the last axis.

    Parameters
    ----------
    log_weights
        Logarithms of the raw weights, (..., draw), up to a constant for each set.
    efficiency
        Effective draws per draw: weights of correlated draws have a longer tail.

    References
    ----------
    Vehtari, Simpson, Gelman, Yao & Gabry (2024). The fit is that of Zhang & Stephens (2009), with a weak prior for k.
    """
    shape = np.shape(log_weights)
    logs = np.array(log_weights, np.float64).reshape(-1, shape[-1])
    logs -= logs.max(axis=1, keepdims=True)
    num_draws = shape[-1]
    length = min(math.ceil(min(num_draws / 5.0, 3.0 * math.sqrt(num_draws / efficiency))), num_draws - 1)
    k_hat = np.full(len(logs), np.inf)
    if length >= _FEWEST:
        order = np.argpartition(logs, num_draws - length - 1, axis=1)[:, num_draws - length - 1 :]
        tails = np.take_along_axis(logs, order, axis=1)
        within = np.argsort(tails, axis=1)
        order, tails = np.take_along_axis(order, within, axis=1), np.take_along_axis(tails, within, axis=1)
        cuts = np.maximum(tails[:, 0], math.log(np.finfo(np.float64).tiny))
        sizes = np.sum(tails > cuts[:, None], axis=1)
        for size in np.unique(sizes[sizes >= _FEWEST]):  # one, unless weights are equal
            rows = np.flatnonzero(sizes == size)
            base = np.exp(cuts[rows])[:, None]
            shapes, scales = _fitted(np.exp(tails[rows, -size:]) - base)
            k_hat[rows] = shapes
            smooth = np.log(_expected(shapes, scales, size) + base)
            raw = tails[rows, -size:]
            kept = np.where(np.isfinite(smooth), np.minimum(smooth, 0.0), raw)
            logs[rows[:, None], order[rows, -size:]] = kept
    logs -= logs.max(axis=1, keepdims=True)
    logs -= np.log(np.sum(np.exp(logs), axis=1, keepdims=True))
    return Smoothed(logs.reshape(shape), k_hat.reshape(shape[:-1]))


def _fitted(excesses: Array) -> tuple[Array, Array]:
    """Shapes and scales of generalised Pareto distributions, from sorted excesses (set, rank) over their thresholds."""
    count = excesses.shape[1]
    grid = 30 + int(math.sqrt(count))
    steps = 1.0 - np.sqrt(grid / (np.arange(1, grid + 1) - 0.5))
    quartile = excesses[:, int(count / 4 + 0.5) - 1 : int(count / 4 + 0.5)]
    with np.errstate(all="ignore"):  # a failed fit is not finite, and its weights are left as they are
        places = steps / (_PRIOR_SCALE * quartile) + 1.0 / excesses[:, -1:]
        shapes = np.empty_like(places)
        for k in range(grid):  # by columns: (set, grid, rank) would be large
            shapes[:, k] = np.log1p(-places[:, k : k + 1] * excesses).mean(axis=1)
        profile = count * (np.log(-(places / shapes)) - shapes - 1.0)
        weights = np.exp(profile - profile.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        weights = np.where(weights >= 10 * np.finfo(np.float64).eps, weights, 0.0)
        place = np.sum(weights * places, axis=1) / np.sum(weights, axis=1)
        shape = np.log1p(-place[:, None] * excesses).mean(axis=1)
        scale = -shape / place
    return (count * shape + _PRIOR_WEIGHT * _PRIOR_SHAPE) / (count + _PRIOR_WEIGHT), scale


def _expected(shapes: Array, scales: Array, count: int) -> Array:
    """Expected order statistics, approximately: quantiles at (j - 1/2)/count; NaN where a fit failed."""
    tail = -np.log1p(-(np.arange(0.5, count) / count))[None]
    k = np.where(np.abs(shapes) < 1e-15, 1e-15, shapes)[:, None]
    with np.errstate(all="ignore"):
        return np.where(scales[:, None] > 0, np.expm1(k * tail) / k * scales[:, None], np.nan)
