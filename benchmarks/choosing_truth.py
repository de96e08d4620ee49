"""Means and standard deviations of the posteriors of `choosing.py`, without a Markov chain."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

_MOST_PAIRS, _ROWS_LOOKED_AT = 2_000, 2e7
_NEWTON_STEPS = 50
_BLOCK = 10_000


class Truth(NamedTuple):
    """Of every parameter, flat, in the order of `jax.tree.leaves`."""

    mean: np.ndarray
    sd: np.ndarray
    condition: float
    """Largest over smallest curvature of the log posterior on the real line; NaN where it was not computed."""
    how: str
    covariance: np.ndarray | None = None
    """Inverse curvature at the mode."""


def logistic(x: np.ndarray, y: np.ndarray, prior_sd: np.ndarray) -> Truth:
    """Importance sampling from the Laplace approximation, in pairs ±z whose second moments are made exactly 1.

    With so many rows the weights are nearly equal, and what is left of chance is in their odd and even parts only.
    """
    x = np.asarray(x, np.float64)
    mode, hessian = _newton(x, y, prior_sd)
    root = np.linalg.inv(np.linalg.cholesky(hessian)).T  # root rootᵀ = hessian⁻¹
    pairs = int(min(_MOST_PAIRS, _ROWS_LOOKED_AT / len(x)))
    z = np.random.default_rng(0).normal(size=(pairs, len(mode)))
    z = np.linalg.solve(np.linalg.cholesky(z.T @ z / pairs), z.T).T
    z = np.concatenate([z, -z])
    betas = mode + z @ root.T
    logs = _log_posterior(betas, x, y, prior_sd) + 0.5 * np.sum(z**2, axis=1)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ betas
    sd = np.sqrt(weights @ (betas - mean) ** 2)
    share = 1 / np.sum(weights**2) / len(weights)
    how = f"importance sampling from the Laplace approximation, {share:.1%} of {len(weights)} draws effective"
    return Truth(mean, sd, float(np.linalg.cond(hessian)), how, np.linalg.inv(hessian))


def _newton(x: np.ndarray, y: np.ndarray, prior_sd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    beta = np.zeros(x.shape[1])
    for _ in range(_NEWTON_STEPS):
        chance = 1 / (1 + np.exp(-x @ beta))
        gradient = (y - chance) @ x - beta / prior_sd**2
        hessian = (x * (chance * (1 - chance))[:, None]).T @ x + np.diag(prior_sd**-2.0)
        step = np.linalg.solve(hessian, gradient)
        beta = beta + step
        if gradient @ step < 1e-16 * len(x):
            return beta, hessian
    raise RuntimeError(f"no mode in {_NEWTON_STEPS} Newton steps.")


def _log_posterior(betas: np.ndarray, x: np.ndarray, y: np.ndarray, prior_sd: np.ndarray) -> np.ndarray:
    total = -0.5 * np.sum((betas / prior_sd) ** 2, axis=1)
    for first in range(0, len(x), _BLOCK):
        rows, labels = x[first : first + _BLOCK], y[first : first + _BLOCK]
        total += (labels @ rows) @ betas.T - np.logaddexp(0, rows @ betas.T).sum(axis=0)
    return total


def linear(x: np.ndarray, y: np.ndarray, prior_sd: float) -> Truth:
    """Regression with noise of variance 1: a normal law."""
    x = np.asarray(x, np.float64)
    precision = x.T @ x + np.eye(x.shape[1]) / prior_sd**2
    covariance = np.linalg.inv(precision)
    condition = float(np.linalg.cond(precision))
    return Truth(covariance @ (x.T @ y), np.sqrt(np.diag(covariance)), condition, "closed form", covariance)


def plane(log_density: Any, low: tuple[float, float], high: tuple[float, float], points: int = 401) -> Truth:
    """Of a law of two parameters, on a grid; `log_density` takes points (..., 2)."""
    lines = [np.linspace(a, b, points) for a, b in zip(low, high, strict=True)]
    grid = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, 2)
    logs = log_density(grid)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ grid
    return Truth(mean, np.sqrt(weights @ (grid - mean) ** 2), float("nan"), "quadrature")


def hierarchical(y: np.ndarray, group: np.ndarray) -> Truth:
    """The schools: a grid over log τ and log σ, given which everything else is normal.

    Order: mu, sigma, tau, theta.
    """
    sizes = np.bincount(group).astype(float)
    means = np.bincount(group, y) / sizes
    within = float(np.sum((y - means[group]) ** 2))
    num_rows, num_groups = len(y), len(sizes)
    centre = np.log(np.sqrt(within / (num_rows - num_groups)))
    sigma = np.exp(centre + np.linspace(-8, 8, 81) / np.sqrt(2 * num_rows))
    tau = np.exp(np.log(means.std()) + np.linspace(-1.6, 2.4, 161))
    tau, sigma = (grid[..., None] for grid in np.meshgrid(tau, sigma, indexing="ij"))

    spread = tau**2 + sigma**2 / sizes
    precision = np.sum(1 / spread, axis=-1) + 200.0**-2
    mu = (np.sum(means / spread, axis=-1) + 400 / 200.0**2) / precision
    tau_, sigma_ = tau[..., 0], sigma[..., 0]
    logs = (
        -0.5 * np.log(spread).sum(axis=-1)
        - 0.5 * np.log(precision)
        - 0.5 * (np.sum(means**2 / spread, axis=-1) - precision * mu**2)
        - (num_rows - num_groups) * np.log(sigma_)
        - 0.5 * within / sigma_**2
        - 0.5 * np.log(tau_ / 50.0) ** 2
        - 0.5 * np.log(sigma_ / 50.0) ** 2
    )  # the grid is even in logarithms, which takes up the 1/τ and 1/σ of the priors
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    own = sizes * tau**2 / (sizes * tau**2 + sigma**2)  # how far a group is believed
    theta = own * means + (1 - own) * mu[..., None]
    theta_variance = own * sigma**2 / sizes + (1 - own) ** 2 / precision[..., None]
    first = np.concatenate([np.stack([mu, sigma_, tau_], axis=-1), theta], axis=-1)
    zero = np.zeros_like(mu)
    variance = np.concatenate([np.stack([1 / precision, zero, zero], axis=-1), theta_variance], axis=-1)
    mean = np.einsum("ij,ijk->k", weights, first)
    second = np.einsum("ij,ijk->k", weights, variance + (first - mean) ** 2)
    return Truth(mean, np.sqrt(second), float("nan"), "quadrature over two scales, closed form given them")


def dirichlet(concentration: np.ndarray) -> Truth:
    """Its moments."""
    a, total = concentration, concentration.sum()
    sd = np.sqrt(a * (total - a) / (total**2 * (total + 1)))
    return Truth(a / total, sd, float("nan"), "closed form")
