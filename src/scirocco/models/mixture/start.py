"""Where a chain begins, and how far its steps may go: a few iterations of EM on some rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import log_softmax

_ROWS, _ITERATIONS, _RESTARTS = 5_000, 60, 4
_ALL_ITERATIONS, _CHUNK = 15, 50_000
_EXTRA = 0.1
"""How much of the posterior variance a step's length, and its minibatch, may each add (half of it, to first order)."""
LONGEST = 1.0
_LEAST_SCALE = 1e-2
"""Of the data's standard deviation: a component does not shrink to a point."""


class Start(NamedTuple):
    """A rough fit."""

    means: np.ndarray
    scales: np.ndarray
    weights: np.ndarray


class Steps(NamedTuple):
    """Step sizes: ε for each mean (K, d) and each log scale (K, d), h for the weights."""

    means: np.ndarray
    scales: np.ndarray
    weights: float


def rough_fit(
    x: np.ndarray,
    num_components: int,
    rng: np.random.Generator,
    *,
    known_scales: bool,
    weights: np.ndarray | None,
) -> Start:
    """EM from k-means++ seeds on at most 5,000 rows; the best of a few."""
    rows = x if len(x) <= _ROWS else x[rng.choice(len(x), _ROWS, replace=False)]
    rows = rows.astype(np.float64)
    fits = [_em(rows, _seeds(rows, num_components, rng), known_scales, weights) for _ in range(_RESTARTS)]
    best = max(fits, key=lambda fit: fit[1])[0]
    # the centre of control variates should be as near the mode of all rows as one of their posterior deviations
    for _ in range(_ALL_ITERATIONS if len(x) > _ROWS else 0):
        best = _improved(x, best, known_scales, weights)
    return best


def step_sizes(x: np.ndarray, start: Start, batch_size: int | None, rng: np.random.Generator) -> Steps:
    """ε = 0.1 / λ for each number, and SCIR's rule for h.

    λ = N E[r] / s² (2 N E[r] for log s) is the curvature with labels known, more than the true one. Gradients have
    control variates at a mode, so that their noise hardly counts; that of the counts does. `batch_size` None: all rows.
    """
    rows = x if len(x) <= _ROWS else x[rng.choice(len(x), _ROWS, replace=False)]
    rows, total = rows.astype(np.float64), len(x)
    shares = _responsibilities(rows, start)
    size = np.maximum(total * shares.mean(axis=0), 1.0)[:, None]
    means, scales = (
        _EXTRA * start.scales**2 / size,
        np.broadcast_to(_EXTRA / (2.0 * size), start.scales.shape),
    )
    noise = 0.0 if batch_size is None else total**2 / batch_size * shares.mean(0) * (1 - shares.mean(0))
    share = np.minimum(_EXTRA * size[:, 0] / np.maximum(noise, 1e-30), np.tanh(LONGEST / 2))
    return Steps(means, scales, float(np.min(2 * np.arctanh(share))))


def _seeds(rows: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """k-means++: each further one far from those before."""
    chosen = [rows[rng.integers(len(rows))]]
    for _ in range(count - 1):
        nearest = np.min([np.sum((rows - c) ** 2, axis=1) for c in chosen], axis=0)
        total = nearest.sum()
        place = rng.choice(len(rows), p=nearest / total) if total > 0 else rng.integers(len(rows))
        chosen.append(rows[place])
    return np.array(chosen)


def _em(
    rows: np.ndarray, seeds: np.ndarray, known_scales: bool, weights: np.ndarray | None
) -> tuple[Start, float]:
    count = len(seeds)
    spread = np.maximum(rows.std(axis=0), 1e-12)
    fit = Start(
        seeds,
        np.ones_like(seeds)
        if known_scales
        else np.repeat(spread[None] / max(1.0, count ** (1 / rows.shape[1])), count, 0),
        np.full(count, 1 / count) if weights is None else weights,
    )
    for _ in range(_ITERATIONS):
        fit = _improved(rows, fit, known_scales, weights)
    return fit, float(np.logaddexp.reduce(_logs(rows, fit), axis=1).sum())


def _improved(x: np.ndarray, fit: Start, known_scales: bool, weights: np.ndarray | None) -> Start:
    """One iteration of EM, the rows in chunks."""
    count, width = fit.means.shape
    size, first, second = np.full(count, 1e-9), np.zeros((count, width)), np.zeros((count, width))
    for begin in range(0, len(x), _CHUNK):
        rows = x[begin : begin + _CHUNK].astype(np.float64)
        shares = _responsibilities(rows, fit)
        size += shares.sum(axis=0)
        first += shares.T @ rows
        second += shares.T @ rows**2
    means, scales = first / size[:, None], fit.scales
    if not known_scales:
        scales = np.sqrt(np.maximum(second / size[:, None] - means**2, _LEAST_SCALE**2))
    return Start(means, scales, (size + 1) / (size + 1).sum() if weights is None else weights)


def _logs(rows: np.ndarray, fit: Start) -> np.ndarray:
    standard = (rows[:, None] - fit.means) / fit.scales
    return np.log(fit.weights) - np.log(fit.scales).sum(axis=1) - 0.5 * np.sum(standard**2, axis=-1)


def _responsibilities(rows: np.ndarray, fit: Start) -> np.ndarray:
    out: np.ndarray = np.exp(log_softmax(_logs(rows, fit), axis=1))
    return out
