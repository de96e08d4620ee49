"""A logistic regression of any size whose posterior is known exactly: its rows take twelve values, so counts suffice.

y_i = ±1 with P(y = 1) = 1/(1 + exp(-θ·x)), x = (1, x₁, x₂), x₁ in {-1, 1}, x₂ in {-1, 0, 1}, prior N(0, 10 I). A row is
s = y x, with the log likelihood log σ(θ·s). Gradients are not linear in θ, so that control variates leave noise.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit, log_expit

from scirocco.estimators.newton import Curve, ascend
from scirocco.model import Model

PRIOR_VARIANCE = 10.0
TRUE_PARAMS = np.array([0.5, 1.0, -1.0])
_FEATURES = np.array([(1.0, *x) for x in itertools.product((-1.0, 1.0), (-1.0, 0.0, 1.0))])
TYPES = np.concatenate([_FEATURES, -_FEATURES])
"""The values that rows take, (12, 3)."""
LARGEST_SMOOTHNESS = float(np.max(np.sum(_FEATURES**2, axis=1)) / 4)
"""L of the row with the steepest gradient: |x|²/4."""

_HALF_WIDTH, _POINTS = 6.5, 41

MODEL = Model(
    lambda params, row: jax.nn.log_sigmoid(jnp.dot(row, params)),
    lambda params: -0.5 * jnp.sum(params**2) / PRIOR_VARIANCE,
)


class Truth(NamedTuple):
    """The posterior, and the noise of gradients over it."""

    mode: np.ndarray[Any, np.dtype[Any]]
    mean: np.ndarray[Any, np.dtype[Any]]
    sd: np.ndarray[Any, np.dtype[Any]]
    curvatures: np.ndarray[Any, np.dtype[Any]]
    """Curvatures of the negative log posterior at the mode, in increasing order."""
    noise: float
    """E|ξ|² of the estimate from one row, averaged over the posterior; n rows have a 1/n of it."""
    noise_cv: float
    """The same with control variates at the mode."""


def simulate(num_rows: int, seed: int) -> np.ndarray[Any, np.dtype[Any]]:
    """Rows s = y x, in single precision."""
    rng = np.random.default_rng(seed)
    x = _FEATURES[rng.integers(0, len(_FEATURES), num_rows)]
    sign = np.where(rng.random(num_rows) < expit(x @ TRUE_PARAMS), 1.0, -1.0)
    return (sign[:, None] * x).astype(np.float32)


def count(rows: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
    """How many rows there are of each of `TYPES`."""
    # y, x₁ y and x₂ y, as one whole number
    weights = np.array([9.0, 3.0, 1.0])
    names, found = np.unique(rows @ weights.astype(rows.dtype), return_counts=True)
    table = dict(zip(names.tolist(), found.tolist(), strict=True))
    return np.array([table.get(name, 0) for name in (TYPES @ weights).tolist()])


def log_posterior(params: np.ndarray[Any, np.dtype[Any]], counts: np.ndarray[Any, np.dtype[Any]]) -> Any:
    """At params (..., 3), up to a constant."""
    return log_expit(params @ TYPES.T) @ counts - 0.5 * np.sum(params**2, axis=-1) / PRIOR_VARIANCE


def find_mode(counts: np.ndarray[Any, np.dtype[Any]]) -> tuple[Any, Any]:
    """The mode, by Newton's method, and the curvature matrix there."""

    def curve(params: np.ndarray[Any, np.dtype[Any]]) -> Curve[None]:
        miss = counts * expit(-TYPES @ params)
        curvature = (TYPES.T * (miss * expit(TYPES @ params))) @ TYPES + np.eye(3) / PRIOR_VARIANCE
        gradient = TYPES.T @ miss - params / PRIOR_VARIANCE
        return Curve(params, float(log_posterior(params, counts)), gradient, lambda: curvature, None)

    mode = ascend(curve(np.zeros(3)), curve, most=50, close=1e-9).here
    return mode.at, mode.curvature()


def exact(counts: np.ndarray[Any, np.dtype[Any]]) -> Truth:
    """Everything by quadrature: a grid in the coordinates in which the curvature at the mode is the unit matrix."""
    mode, curvature = find_mode(counts)
    line = np.linspace(-_HALF_WIDTH, _HALF_WIDTH, _POINTS)
    unit = np.stack(np.meshgrid(line, line, line, indexing="ij"), axis=-1).reshape(-1, 3)
    params = mode + unit @ np.linalg.inv(np.linalg.cholesky(curvature))
    logs = log_posterior(params, counts)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ params
    sd = np.sqrt(weights @ (params - mean) ** 2)
    slope = expit(-params @ TYPES.T)  # the gradient of a row s is slope · s
    return Truth(
        mode,
        mean,
        sd,
        np.linalg.eigvalsh(curvature),
        _noise(slope, weights, counts),
        _noise(slope - expit(-TYPES @ mode), weights, counts),
    )


def _noise(slope: Any, weights: Any, counts: Any) -> float:
    """N² times the variance over rows of slope · s, summed over coordinates, averaged over the grid."""
    total = counts.sum()
    share = counts / total
    mean = (slope * share) @ TYPES
    square = (slope**2 * share) @ np.sum(TYPES**2, axis=1)
    return float(total**2 * (weights @ (square - np.sum(mean**2, axis=1))))
