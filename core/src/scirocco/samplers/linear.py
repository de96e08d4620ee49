"""BAOAB on a Gaussian with noisy gradients, solved: the variance that noise adds, and how fast a chain forgets.

With curvature h, step ε, friction C and a = e^(-εC), a step maps (u, r) to M (u, r) + b ξ + M (0, ε) η, where ξ is the
injected normal and η the error of the gradient. Stationary covariances solve the Lyapunov equation S = M S Mᵀ + Q; both
sources of noise enter linearly, so that S is their sum. All functions take arrays of settings.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_LAGS, _NEARLY = 400, 1.15
MOST_FORGETS = _LAGS // 2
"""`Prediction.forgets` of a setting that takes this long or longer."""
MOST_HEATING = 0.15
"""The largest share of the variance that may come from gradient noise: it is known to some ten per cent of itself."""
_STEPS = np.array([1.0, 0.8, 0.6, 0.45, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01])
_FRICTIONS = np.array([1.0, 1.5, 2.0, 3.0, 5.0, 10.0])


class Setting(NamedTuple):
    """A step size and a friction, and what they lead to (see `Prediction`)."""

    step_size: float
    friction: float
    gain: float
    time: float
    forgets: int


def best(largest_curvature: float, noise: float) -> Setting:
    """The fewest steps for an effective draw, among settings with at most `MOST_HEATING` from this much noise.

    For directions of curvature 1; the step is short enough for the largest.
    """
    root = max(1.0, largest_curvature) ** 0.5
    step, friction = (grid.ravel() for grid in np.meshgrid(_STEPS / root, _FRICTIONS, indexing="ij"))
    found = predict(step, friction)
    allowed = found.gain * noise <= MOST_HEATING
    if not np.any(allowed):
        allowed = found.gain == found.gain.min()
    place = int(np.argmin(np.where(allowed, found.time, np.inf)))
    gain, time, forgets = (float(values[place]) for values in found)
    return Setting(float(step[place]), float(friction[place]), gain, time, int(forgets))


class Prediction(NamedTuple):
    """Predictions for the position, for each setting."""

    gain: np.ndarray
    """Variance added per unit variance of a gradient estimate, relative to the posterior variance 1/h."""
    time: np.ndarray
    """Steps for one effective draw: of the mean or of the square, whichever takes longer."""
    forgets: np.ndarray
    """Steps between draws at which 100 of them are worth at least 87 independent ones."""


def predict(step: np.ndarray, friction: np.ndarray, curvature: np.ndarray | float = 1.0) -> Prediction:
    """What BAOAB does on a Gaussian; inf where it is unstable (ε²h ≥ 4)."""
    step, friction, curvature = np.broadcast_arrays(
        *(np.asarray(x, float) for x in (step, friction, curvature))
    )
    stable = step**2 * curvature < 4.0
    eps, h = np.where(stable, step, 0.1), np.where(stable, curvature, 1.0)
    a = np.exp(-eps * friction)
    drift = 0.5 * eps * (1 + a)
    move = np.stack([np.stack([1 - eps * h * drift, drift], -1), np.stack([-a * eps * h, a], -1)], -2)
    root = np.sqrt(-np.expm1(-2 * eps * friction))
    injected = _stationary(move, np.stack([0.5 * eps * root, root], -1))
    kicked = _stationary(move, move[..., 1] * eps[..., None])
    state, rho = injected, []
    for _ in range(_LAGS):
        state = move @ state
        rho.append(state[..., 0, 0] / injected[..., 0, 0])
    lags = np.stack(rho)
    times = np.stack([_time(lags[every - 1 :: every]) for every in range(1, _LAGS // 2)])
    time, forgets = times[0], 1 + np.argmax(times <= _NEARLY, axis=0)
    forgets = np.where(np.any(times <= _NEARLY, axis=0), forgets, MOST_FORGETS)
    return Prediction(*(np.where(stable, x, np.inf) for x in (h * kicked[..., 0, 0], time, forgets)))


def _time(rho: np.ndarray) -> np.ndarray:
    """Draws for one effective one, of the mean or of the square, given autocorrelations of the position."""
    return np.maximum(1 + 2 * rho.sum(0), 1 + 2 * (rho**2).sum(0))


def _stationary(move: np.ndarray, kick: np.ndarray) -> np.ndarray:
    """S = M S Mᵀ + k kᵀ."""
    product = np.einsum("...ij,...kl->...ikjl", move, move).reshape(*move.shape[:-2], 4, 4)
    source = np.einsum("...i,...j->...ij", kick, kick).reshape(*kick.shape[:-1], 4, 1)
    return np.linalg.solve(np.eye(4) - product, source).reshape(move.shape)
