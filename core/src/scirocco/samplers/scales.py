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
        raise InvalidValueError(
            "no step size can be chosen: curvature and gradient noise are both zero at the start."
        )
    return min(limits)


def momentum_step(scales: Scales) -> float:
    """ε = min(0.2/√λ, 2√λ/5V): 1 % error from the step, and friction against the noise that is near critical."""
    root = scales.largest_curvature**0.5
    if not root > 0:
        raise InvalidValueError(
            "no step size can be chosen: the log posterior has no curvature at the start."
        )
    noise = largest(scales.noise)
    return min(0.2 / root, 2.0 * root / (MARGIN * noise)) if noise > 0 else 0.2 / root


def largest(tree: PyTree) -> float:
    """The largest entry of all leaves."""
    return max(float(np.max(leaf)) for leaf in jax.tree.leaves(tree))
