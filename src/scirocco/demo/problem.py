"""The data of the demonstration, made from a seed, and what the posterior should be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

NUM_FEATURES = 12
PRIOR_VARIANCE = 10.0


def log_likelihood(params: Any, row: Any) -> Any:
    """Bernoulli with logit xᵀβ: of ONE row."""
    logit = row["x"] @ params["beta"]
    return row["y"] * logit - jnp.logaddexp(0.0, logit)


def log_prior(params: Any) -> Any:
    """N(0, 10) for every coefficient."""
    return -0.5 * jnp.sum(params["beta"] ** 2) / PRIOR_VARIANCE


@dataclass(frozen=True)
class Problem:
    """Simulated rows, the coefficients they were made with, and the exact mode with its normal approximation."""

    data: dict[str, np.ndarray]
    truth: np.ndarray
    mode: np.ndarray
    sd: np.ndarray


def make_problem(num_rows: int, seed: int) -> Problem:
    """Correlated features, an intercept, and coefficients of many sizes (three of them 0)."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((num_rows, 1))
    features = np.sqrt(0.7) * rng.standard_normal((num_rows, NUM_FEATURES - 1)) + np.sqrt(0.3) * shared
    x = np.concatenate([np.ones((num_rows, 1)), features], axis=1).astype(np.float32)
    truth = rng.normal(0.0, 0.5, NUM_FEATURES)
    truth[0], truth[-3:] = -1.0, 0.0
    y = (rng.random(num_rows) < 1.0 / (1.0 + np.exp(-x @ truth))).astype(np.float32)
    mode, sd = laplace(x, y)
    return Problem({"x": x, "y": y}, truth, mode, sd)


def laplace(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mode by Newton's method, and the standard deviations of the normal approximation there, in float64."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    mode = np.zeros(x.shape[1])
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(-x @ mode))
        gradient = x.T @ (y - p) - mode / PRIOR_VARIANCE
        hessian = (x * (p * (1.0 - p))[:, None]).T @ x + np.eye(len(mode)) / PRIOR_VARIANCE
        move = np.linalg.solve(hessian, gradient)
        mode = mode + move
        if np.abs(move).max() < 1e-12:
            break
    return mode, np.sqrt(np.diag(np.linalg.inv(hessian)))
