"""Priors of coefficients, and log likelihoods of one row or of many at once.

Priors are scale mixtures of normals, which the set-up before sampling makes use of: functions with their numbers as
fields, compared by value. Likelihoods are one matrix product forward and one backward, whatever the batch. All are at
module level, so that fits of tables of one shape with the same numbers share their compiled programs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.model import families
from scirocco.types import Array, Key, Params, Rows

KINDS = ("laplace", "normal", "horseshoe")
RESOLUTION = 0.2
"""Of a horseshoe, in standard deviations that the likelihood alone leaves a coefficient."""
NOISE_FLOOR = 1e-3
"""As if one more row had a residual of so many noise scales: without it a perfect fit would have no posterior."""
_NODES = np.arange(-7.0, 9.0, 0.5)  # log λ: the trapezoid rule is exact to a few parts in ten thousand
_LOG_WEIGHTS = -np.log(np.cosh(_NODES))
_LOG_WEIGHTS = _LOG_WEIGHTS - np.log(np.sum(np.exp(_LOG_WEIGHTS)))
_LOG_TAU = np.arange(-12.0, 6.0, 0.1)  # a grid of log τ


class Working(NamedTuple):
    """Normal precisions that stand for a prior near given squares of the coefficients."""

    precision: np.ndarray
    tau: float | None = None
    log_tau_sd: float = 1.0


@dataclass(frozen=True)
class NormalPrior:
    """β_j ~ N(0, scale²), intercept ~ N(0, intercept_scale²)."""

    scale: float
    intercept_scale: float
    noise_scale: float | None = None
    noise_floor: float = NOISE_FLOOR

    def __call__(self, params: Params) -> Array:
        """Log density, up to a constant."""
        return -0.5 * jnp.sum((params["coef"] / self.scale) ** 2) + _others(self, params)

    def working(self, squares: np.ndarray) -> Working:
        """1/scale²: exact."""
        return Working(np.full(squares.shape, self.scale**-2.0))


@dataclass(frozen=True)
class LaplacePrior:
    """β_j with density exp(-|β|/scale) / (2 scale), intercept ~ N(0, intercept_scale²)."""

    scale: float
    intercept_scale: float
    noise_scale: float | None = None
    noise_floor: float = NOISE_FLOOR

    def __call__(self, params: Params) -> Array:
        """Log density, up to a constant."""
        return -jnp.sum(jnp.abs(params["coef"])) / self.scale + _others(self, params)

    def working(self, squares: np.ndarray) -> Working:
        """E[1/variance | β²] = 1 / (scale |β|)."""
        return Working(1.0 / (self.scale * np.sqrt(squares)))


@dataclass(frozen=True)
class HorseshoePrior:
    r"""β_j ~ N(0, τ² λ_j²) with λ_j ~ C⁺(0, 1) and τ ~ C⁺(0, scale); intercept ~ N(0, intercept_scale²).

    The local scales λ_j are summed out, over a grid of their logarithms, so that a chain has d + 1 unknowns and no
    funnels:

    .. math:: p(β_j | τ) = \sum_k w_k\, N(0, v_k + r_j^2), \qquad v_k = τ^2 λ_k^2, \quad w_k ∝ 1 / \cosh(\log λ_k)

    r_j takes the pole of the density at 0 away: a fifth of the standard deviation that the likelihood alone would leave
    β_j, a resolution that the data do not have.
    """

    scale: float
    intercept_scale: float
    noise_scale: float | None = None
    resolution: tuple[float, ...] = (0.0,)
    noise_floor: float = NOISE_FLOOR

    def __call__(self, params: Params) -> Array:
        """Log density, up to a constant."""
        coef, tau = params["coef"], params["tau"]
        variances = tau**2 * jnp.asarray(np.exp(2 * _NODES), coef.dtype)
        variances = variances + jnp.asarray(self.resolution, coef.dtype)[..., None] ** 2
        terms = -0.5 * (coef[..., None] ** 2 / variances + jnp.log(variances))
        local = jax.nn.logsumexp(terms + jnp.asarray(_LOG_WEIGHTS, coef.dtype), axis=-1)
        return jnp.sum(local) - jnp.log1p((tau / self.scale) ** 2) + _others(self, params)

    def working(self, squares: np.ndarray) -> Working:
        """E[1/variance | β², τ], at the mean of log τ given these squares."""
        flat = squares.reshape(-1, squares.shape[-1])
        tau = np.exp(_LOG_TAU)
        terms = np.stack([self._terms(flat, value)[0] for value in tau])
        density = np.logaddexp.reduce(terms, axis=-1).sum(axis=(1, 2)) + np.log(tau / (1 + (tau / self.scale) ** 2))
        weights = np.exp(density - density.max())
        weights /= weights.sum()
        mean = float(weights @ _LOG_TAU)
        deviation = math.sqrt(max(float(weights @ (_LOG_TAU - mean) ** 2), 1e-4))
        log_terms, variances = self._terms(flat, math.exp(mean))
        local = np.exp(log_terms - log_terms.max(axis=-1, keepdims=True))
        precision = (local / variances).sum(axis=-1) / local.sum(axis=-1)
        return Working(precision.reshape(squares.shape), math.exp(mean), deviation)

    def _terms(self, squares: np.ndarray, tau: float) -> tuple[np.ndarray, np.ndarray]:
        variances = tau**2 * np.exp(2 * _NODES) + np.asarray(self.resolution)[..., None] ** 2 + 1e-30
        return _LOG_WEIGHTS - 0.5 * (squares[..., None] / variances + np.log(variances)), variances


Prior = NormalPrior | LaplacePrior | HorseshoePrior


def _others(prior: Prior, params: Params) -> Array:
    """Intercept ~ N(0, intercept_scale²), and the priors of σ and other positive parameters, where they are."""
    total = jnp.zeros((), params["coef"].dtype)
    if "intercept" in params:
        total = total - 0.5 * jnp.sum((params["intercept"] / prior.intercept_scale) ** 2)
    if prior.noise_scale is None:
        return total + families.log_prior(params)
    if "noise" in params:
        relative = params["noise"] / prior.noise_scale
        total = total - 0.5 * (relative**2 + (prior.noise_floor / relative) ** 2)
    return total


# -- likelihoods -------------------------------------------------------------------------------------------------------
# Of rows {x, y}, and where they are given an `offset` of the linear predictor, a `weight`, and a `constant`: the terms
# without parameters.


@dataclass(frozen=True)
class Likelihood:
    """log p(y | η) of a family, with η = xᵀβ + b; of classes one each, with a `baseline` 0 for the first."""

    family: str
    baseline: bool = False

    def __call__(self, params: Params, rows: Rows) -> Array:
        """The log likelihood of each row."""
        eta = predictor(params, rows)
        if self.baseline:
            eta = jnp.concatenate([jnp.zeros_like(eta[..., :1]), eta], axis=-1)
        value = families.FAMILIES[self.family].log_density(rows, eta, params)
        value = value + rows["constant"] if "constant" in rows else value
        return rows["weight"] * value if "weight" in rows else value


@dataclass(frozen=True)
class Simulated:
    """A new response of a row {x}, or {x, offset}, at parameters in the user's units."""

    family: str

    def __call__(self, params: Params, row: Rows, key: Key) -> Array:
        """Drawn from the likelihood."""
        return families.FAMILIES[self.family].simulate(key, predictor(params, row), params)


def linear(params: Params, rows: Rows) -> Array:
    """-(y - xᵀβ - b)² / 2σ² - log σ, up to a constant.

    `one` is what the intercept is multiplied with and `share` what log σ is: 1 where they are left out. A table of N
    rows is equivalent to the few rows of its triangular factor (see `approximation.reduced`), with others.
    """
    noise = params.get("noise", jnp.ones((), rows["y"].dtype))
    eta = _times(rows["x"], params["coef"]) + rows.get("one", 1.0) * params.get("intercept", 0.0)
    value = -0.5 * ((rows["y"] - eta) / noise) ** 2 - rows.get("share", 1.0) * jnp.log(noise)
    return value + rows["constant"] if "constant" in rows else value


def predictor(params: Params, rows: Rows) -> Array:
    """η = xᵀβ + b, and the offset."""
    eta = _times(rows["x"], params["coef"].T) + params.get("intercept", 0.0)
    return eta + rows["offset"] if "offset" in rows else eta


def _times(x: Array, coef: Array) -> Array:
    # accelerators would round the factors of a product to ten bits or so
    return jnp.matmul(x, coef, precision="highest")
