"""What is measured before a run for samplers that choose their own hyper-parameters, and what follows from it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from scirocco.errors import InvalidValueError
from scirocco.types import PyTree


class Scales(NamedTuple):
    """Measurements before the run, for samplers that choose their own hyper-parameters."""

    largest_curvature: float
    """Largest eigenvalue of -∇² log posterior, by power iteration on a sample of rows."""
    noise: PyTree
    """Variance of one gradient estimate for each parameter, at typical posterior points."""
    information: PyTree
    """Curvature for each parameter: the diagonal of the empirical Fisher information."""
    epoch: int
    """Steps in an epoch of batches without replacement, whose errors cancel; 1 when batches are independent."""
    factor: Any = None
    """L, if all of the above is in the coordinates u of θ = θ₀ + L u (see `Preconditioned`); otherwise None."""

    def lasting_noise(self, relaxation: PyTree) -> PyTree:
        """The variance of independent errors with the same effect on a chain.

        `relaxation` is the relaxation time of the chain in steps, for each parameter. Errors that sum to zero over an
        epoch hardly affect a chain that is slow compared with the epoch.
        """
        return jax.tree.map(
            lambda v, steps: v * reshuffling_factor(np.asarray(steps), self.epoch).astype(v.dtype),
            self.noise,
            relaxation,
        )


def reshuffling_factor(relaxation: np.ndarray, epoch: int) -> np.ndarray:
    """The factor for errors that sum to zero over every epoch, for a chain with relaxation time `relaxation` (steps).

    The stationary variance of x' = (1 - 1/relaxation) x + η with such errors η, averaged over the position in the
    epoch, divided by that with independent errors of the same variance.
    """
    if epoch <= 1:
        return np.ones_like(np.asarray(relaxation, float))
    a = np.clip(1.0 - 1.0 / np.maximum(np.asarray(relaxation, float), 1.0), 0.0, 1.0 - 1e-9)[..., None]
    t = np.unique(np.round(np.linspace(1, epoch, min(epoch, 200))))
    shared = 1.0 / (epoch - 1)

    def within(steps: np.ndarray) -> np.ndarray:
        squares = (1 - a ** (2 * steps)) / (1 - a**2)
        return (1 + shared) * squares - shared * ((1 - a**steps) / (1 - a)) ** 2

    whole = np.array([float(epoch)])
    boundary = within(whole) / (1 - a ** (2 * whole))
    return np.mean(a ** (2 * t) * boundary + within(t), axis=-1) * (1 - a[..., 0] ** 2)


def reshuffling_spectrum(frequency: np.ndarray, epoch: int) -> np.ndarray:
    """The power at `frequency` (radians per step) of errors that sum to zero over every epoch; 1 if independent.

    Errors of one epoch are exchangeable with covariance -V/(E-1): E/(E-1) (1 - |Σ_t e^(iωt)|²/E²).
    """
    if epoch <= 1:
        return np.ones_like(np.asarray(frequency, float))
    half = np.clip(np.asarray(frequency, float), 1e-9, np.pi) / 2
    return epoch / (epoch - 1) * (1 - (np.sin(half * epoch) / (epoch * np.sin(half))) ** 2)


class Excess(NamedTuple):
    """By how much step size and gradient noise inflate variances: closed forms, exact on Gaussians."""

    step: float
    """Relative excess of the variance in the stiffest direction, from the step alone; inf: unstable."""
    noise: PyTree
    """Relative excess of the variance from gradient noise, for each parameter."""
    suggested: float
    """ε at which step and noise each inflate variances by about 5 % (1 % for samplers with momentum)."""
    friction: PyTree | None = None
    friction_needed: PyTree | None = None
    """C at which the noise inflates variances by 5 %."""


MARGIN = 5.0
"""Default friction, as a multiple of the smallest that the gradient noise allows."""


def langevin_step(scales: Scales) -> float:
    """The largest step at which curvature and gradient noise each inflate the variance by at most about 5 %."""
    noise = largest(scales.noise)
    limits = [0.1 / value for value in (scales.largest_curvature, noise) if value > 0]
    if not limits:
        raise InvalidValueError("no step size can be chosen: curvature and gradient noise are both zero at the start.")
    return min(limits)


def momentum_step(scales: Scales) -> float:
    """ε = min(0.2/√λ, 2√λ/5V): 1 % error from the step, and friction against the noise that is near critical."""
    root = scales.largest_curvature**0.5
    if not root > 0:
        raise InvalidValueError("no step size can be chosen: the log posterior has no curvature at the start.")
    noise = largest(scales.noise)
    return min(0.2 / root, 2.0 * root / (MARGIN * noise)) if noise > 0 else 0.2 / root


def largest(tree: PyTree) -> float:
    """The largest entry of all leaves."""
    return max(float(np.max(leaf)) for leaf in jax.tree.leaves(tree))


# -- BAOAB on a Gaussian with noisy gradients, solved: the variance that noise adds, and how fast a chain forgets
#
# With curvature h, step ε, friction C and a = e^(-εC), a step maps (u, r) to M (u, r) + b ξ + M (0, ε) η, where ξ is
# the injected normal and η the error of the gradient. Stationary covariances solve the Lyapunov equation
# S = M S Mᵀ + Q; both sources of noise enter linearly, so that S is their sum. All functions take arrays of settings.

_LAGS, _NEARLY = (400, 1.15)  # autocorrelations that are computed; 100 draws that are worth 87 have 1.15 steps for one
MOST_FORGETS = _LAGS // 2
"""`Prediction.forgets` of a setting that takes this long or longer."""
MOST_HEATING = 0.15
"""The largest share of the variance that may come from gradient noise: it is known to some ten per cent of itself."""
# the settings that `best_setting` compares, in round coordinates
_STEPS = np.array([1.0, 0.8, 0.6, 0.45, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01])
# as multiples of the frequency of the position
_FRICTIONS = np.array([1.0, 1.5, 2.0, 3.0, 5.0, 10.0])


class Setting(NamedTuple):
    """A step size and a friction, and what they lead to (see `Prediction`)."""

    step_size: float
    friction: float
    gain: float
    time: float
    forgets: int


def best_setting(largest_curvature: float, noise: float) -> Setting:
    """The fewest steps for an effective draw, among settings with at most `MOST_HEATING` from this much noise.

    For directions of curvature 1; the step is short enough for the largest.
    """
    root = max(1.0, largest_curvature) ** 0.5
    step, friction = (grid.ravel() for grid in np.meshgrid(_STEPS / root, _FRICTIONS, indexing="ij"))
    predictions = predict(step, friction)
    allowed = predictions.gain * noise <= MOST_HEATING
    if not np.any(allowed):
        allowed = predictions.gain == predictions.gain.min()
    best = int(np.argmin(np.where(allowed, predictions.time, np.inf)))
    gain, time, forgets = (float(values[best]) for values in predictions)
    return Setting(float(step[best]), float(friction[best]), gain, time, int(forgets))


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
    step, friction, curvature = np.broadcast_arrays(*(np.asarray(x, float) for x in (step, friction, curvature)))
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
