"""Units and priors of a mixture, where a chain begins (EM on some rows), and how far its steps may go."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scirocco import _checks
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models.inputs import Units, gamma_law

COVARIANCES = ("known", "diagonal")
_WHO = "GaussianMixture"

_ROWS, _ITERATIONS, _RESTARTS = (5_000, 60, 4)  # of EM: rows of the first fits, their iterations, and their number
_ALL_ITERATIONS, _CHUNK = 15, 50_000  # iterations on all rows, and how many at once
_EXTRA = 0.1
"""How much of the posterior variance a step's length, and its minibatch, may each add (half of it, to first order)."""
LONGEST = 1.0  # h of SCIR: after it the weights have forgotten 63 % of where they were
_LEAST_SCALE = 1e-4
"""Smallest fraction of the data's standard deviation that float32 can resolve."""


class Priors(NamedTuple):
    """In the units of the rows: standard deviations of the means, (d,), and the Gamma law of the precisions."""

    means: np.ndarray
    scales: tuple[float, float] | None
    """Shape and rate; None where standard deviations are known, and one."""


class RoughFit(NamedTuple):
    """A rough fit."""

    means: np.ndarray
    scales: np.ndarray
    weights: np.ndarray


class MixtureSteps(NamedTuple):
    """Step sizes: ε for each mean (K, d) and each log scale (K, d), h for the weights."""

    means: np.ndarray
    scales: np.ndarray
    weights: float


def rough_fit(
    x: np.ndarray, num_components: int, rng: np.random.Generator, *, priors: Priors, weights: np.ndarray | None
) -> RoughFit:
    """EM for the mode of the posterior, from k-means++ seeds on at most 5,000 rows; the best of a few."""
    rows = x if len(x) <= _ROWS else x[rng.choice(len(x), _ROWS, replace=False)]
    rows = rows.astype(np.float64)
    fits = [_em(rows, _seeds(rows, num_components, rng), priors, weights) for _ in range(_RESTARTS)]
    best = max(fits, key=lambda fit: fit[1])[0]
    # the centre of control variates should be as near the mode of all rows as one of their posterior deviations
    for _ in range(_ALL_ITERATIONS if len(x) > _ROWS else 0):
        best = _improved(x, best, priors, weights)
    return best


def step_sizes(
    x: np.ndarray, start: RoughFit, priors: Priors, batch_size: int | None, rng: np.random.Generator
) -> MixtureSteps:
    """ε = 0.1 / λ for each number, and SCIR's rule for h.

    λ = N E[r] / s² + 1 / σ₀² (for log s: 2 N E[r] + 4 rate / s²) is the curvature with labels known, more than the true
    one; the second terms are the priors', and count where a component has few rows. Gradients have control variates at
    a mode, so that their noise hardly counts; that of the counts does. `batch_size` None: all rows.
    """
    rows = x if len(x) <= _ROWS else x[rng.choice(len(x), _ROWS, replace=False)]
    rows, total = rows.astype(np.float64), len(x)
    shares = _responsibilities(rows, start)
    size = np.maximum(total * shares.mean(axis=0), 1.0)[:, None]
    rate = 0.0 if priors.scales is None else priors.scales[1]
    means = _EXTRA / (size / start.scales**2 + 1 / priors.means**2)
    scales = _EXTRA / (2 * size + 4 * rate / start.scales**2)
    noise = 0.0 if batch_size is None else total**2 / batch_size * shares.mean(0) * (1 - shares.mean(0))
    share = np.minimum(_EXTRA * size[:, 0] / np.maximum(noise, 1e-30), np.tanh(LONGEST / 2))
    return MixtureSteps(means, scales, float(np.min(2 * np.arctanh(share))))


def _seeds(rows: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """k-means++: each further one far from those before."""
    chosen = [rows[rng.integers(len(rows))]]
    for _ in range(count - 1):
        nearest = np.min([np.sum((rows - c) ** 2, axis=1) for c in chosen], axis=0)
        total = nearest.sum()
        place = rng.choice(len(rows), p=nearest / total) if total > 0 else rng.integers(len(rows))
        chosen.append(rows[place])
    return np.array(chosen)


def _em(rows: np.ndarray, seeds: np.ndarray, priors: Priors, weights: np.ndarray | None) -> tuple[RoughFit, float]:
    count = len(seeds)
    spread = np.maximum(rows.std(axis=0), 1e-12)
    fit = RoughFit(
        seeds,
        np.ones_like(seeds)
        if priors.scales is None
        else np.repeat(spread[None] / max(1.0, count ** (1 / rows.shape[1])), count, 0),
        np.full(count, 1 / count) if weights is None else weights,
    )
    for _ in range(_ITERATIONS):
        fit = _improved(rows, fit, priors, weights)
    return fit, float(np.logaddexp.reduce(_logs(rows, fit), axis=1).sum())


def _improved(x: np.ndarray, fit: RoughFit, priors: Priors, weights: np.ndarray | None) -> RoughFit:
    """One iteration of EM, the rows in chunks; the priors add to the sums over rows."""
    count, width = fit.means.shape
    size, first, second = np.full(count, 1e-9), np.zeros((count, width)), np.zeros((count, width))
    for begin in range(0, len(x), _CHUNK):
        rows = x[begin : begin + _CHUNK].astype(np.float64)
        shares = _responsibilities(rows, fit)
        size += shares.sum(axis=0)
        first += shares.T @ rows
        second += shares.T @ rows**2
    rows_of, scales = size[:, None], fit.scales
    means = first / (rows_of + scales**2 / priors.means**2)
    if priors.scales is not None:
        shape, rate = priors.scales
        squares = np.maximum(second - means * (2 * first - rows_of * means), 0.0)
        # the mode in log s, in which the chain moves
        scales = np.maximum(np.sqrt((squares + 2 * rate) / (rows_of + 2 * shape)), _LEAST_SCALE)
    return RoughFit(means, scales, (size + 1) / (size + 1).sum() if weights is None else weights)


def _logs(rows: np.ndarray, fit: RoughFit) -> np.ndarray:
    standard = (rows[:, None] - fit.means) / fit.scales
    return np.log(fit.weights) - np.log(fit.scales).sum(axis=1) - 0.5 * np.sum(standard**2, axis=-1)


def _responsibilities(rows: np.ndarray, fit: RoughFit) -> np.ndarray:
    """Softmax along the last axis."""
    logs = _logs(rows, fit)
    raised = np.exp(logs - logs.max(axis=-1, keepdims=True))
    shares: np.ndarray = raised / raised.sum(axis=-1, keepdims=True)
    return shares


# -- units and priors, from a table and the user's settings ------------------------------------------------------------


def units_and_priors(
    table: np.ndarray, covariance: str, scale: ArrayLike, prior_scale: float | str, scale_prior: tuple[float, float]
) -> tuple[Units, Priors]:
    """From a table and the settings of `GaussianMixture`, which are checked here.

    Known standard deviations are one in these units, or else the data's.
    """
    _checks.choice(covariance, "covariance", COVARIANCES)
    x, diagonal = table.astype(np.float64), covariance == "diagonal"
    if isinstance(prior_scale, str):
        if prior_scale != "data":
            raise InvalidTypeError(f'`prior_scale` must be a number > 0 or "data", got {prior_scale!r}.')
        shift, spread = x.mean(axis=0), np.ptp(x, axis=0)
    else:
        _checks.positive(prior_scale, "prior_scale", _WHO)
        shift, spread = np.zeros(x.shape[1]), np.full(x.shape[1], float(prior_scale))
    gamma = gamma_law(scale_prior, "scale_prior", _WHO) if diagonal else None
    if len(x) < 2 and (diagonal or not spread.all()):
        raise InvalidValueError(
            f"X of {_WHO} has one sample, which has no spread to take the priors from: give more rows, or "
            'covariance="known" with `scale` and a number as `prior_scale`.'
        )
    units = x.std(axis=0) if diagonal else _known(scale, x.shape[1])
    return Units(shift, units), Priors(spread / units, gamma)


def _known(scale: ArrayLike, width: int) -> np.ndarray:
    try:
        units = np.asarray(scale, np.float64)
    except (TypeError, ValueError):
        units = np.full(1, np.nan)
    if units.shape not in ((), (width,)) or not np.all(np.isfinite(units)) or np.any(units <= 0):
        raise InvalidValueError(
            f"`scale` of {_WHO} must be a number > 0 or one for each of the {width} columns, got {scale!r}."
        )
    return np.broadcast_to(units, (width,))


def known_weights(weights: ArrayLike, count: int) -> np.ndarray | None:
    """None where they are drawn; a single component has the weight 1."""
    if isinstance(weights, str):
        _checks.choice(weights, "weights", ("sample", "equal"))
        return None if weights == "sample" and count > 1 else np.full(count, 1 / count)
    try:
        known = np.asarray(weights, np.float64)
    except (TypeError, ValueError):
        known = np.full(count, np.nan)
    if known.shape != (count,) or not np.all(known > 0) or abs(known.sum() - 1) > 1e-6:
        raise InvalidValueError(f"`weights` of {_WHO} must be {count} numbers > 0 with the sum 1, got {weights!r}.")
    return known
