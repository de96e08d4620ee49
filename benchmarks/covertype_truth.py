"""Logistic regression on covertype with a normal prior: posterior deviations by weighted Laplace draws."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import scirocco as sc

PRIOR_VARIANCE = 2.0
COMMON = 0.01
_NEWTON_STEPS, _AT_ONCE, _BLOCK = 25, 500, 8_192


class Rows(NamedTuple):
    """Features and classes."""

    x: Any
    y: Any


def log_likelihood(beta: Any, rows: Rows) -> Any:
    """A value a row."""
    scores = rows.x @ beta
    return rows.y * scores - jax.nn.softplus(scores)


NORMAL = sc.Model(log_likelihood, lambda beta: -0.5 * jnp.sum(beta**2) / PRIOR_VARIANCE, vectorized=True)
LAPLACE = sc.Model(log_likelihood, lambda beta: -jnp.sum(jnp.abs(beta)), vectorized=True)


def common(rows: Rows) -> Rows:
    """Without the columns that are 0 in more than 99 % of the rows."""
    kept = np.mean(rows.x != 0, axis=0) >= COMMON
    return Rows(np.ascontiguousarray(rows.x[:, kept]), rows.y)


def newton(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """The mode and the curvature there, in double precision."""
    beta = np.zeros(rows.x.shape[1])
    for _ in range(_NEWTON_STEPS):
        gradient, curvature = -beta / PRIOR_VARIANCE, np.eye(len(beta)) / PRIOR_VARIANCE
        for begin in range(0, len(rows.y), 1 << 16):
            x = rows.x[begin : begin + (1 << 16)].astype(np.float64)
            chance = 1 / (1 + np.exp(-x @ beta))
            gradient = gradient + (rows.y[begin : begin + (1 << 16)] - chance) @ x
            curvature = curvature + (x * (chance * (1 - chance))[:, None]).T @ x
        step = np.linalg.solve(curvature, gradient)
        beta = beta + step
        if gradient @ step < 1e-10:
            return beta, curvature
    raise RuntimeError(f"no mode in {_NEWTON_STEPS} Newton steps.")


class Truth(NamedTuple):
    """Standard deviations, and the effective number of the draws that were weighted."""

    sd: np.ndarray
    ess: float


def truth(rows: Rows, num_draws: int, seed: int = 0) -> Truth:
    """Variances of the Laplace approximation, corrected by importance weights w = p/q of draws from it.

    Var_p = Var_q + mean of (w - 1)(x - m)², with Var_q known: what is left to chance is small where p is near q.
    """
    mode, curvature = newton(rows)
    root = np.linalg.inv(np.linalg.cholesky(curvature)).T
    z = np.random.default_rng(seed).standard_normal((num_draws, len(mode)))
    z = np.concatenate([z, -z])
    betas = mode + z @ root.T
    with jax.enable_x64(True):
        logs = np.concatenate([_log_likelihoods(part, mode, rows) for part in np.split(betas, len(betas) // _AT_ONCE)])
    logs = logs - 0.5 * np.sum(betas**2, axis=1) / PRIOR_VARIANCE + 0.5 * np.sum(z**2, axis=1)
    weights = np.exp(logs - logs.max())
    weights /= weights.mean()
    away = betas - mode
    shift = np.mean((weights - 1)[:, None] * away, axis=0)
    variance = np.sum(root**2, axis=1) + np.mean((weights - 1)[:, None] * away**2, axis=0) - shift**2
    return Truth(np.sqrt(variance), float(len(weights) / np.mean(weights**2)))


def _log_likelihoods(betas: np.ndarray, mode: np.ndarray, rows: Rows) -> np.ndarray:
    """Less that of the mode, so that little is lost in single precision; by blocks of rows."""
    spare = -len(rows.y) % _BLOCK
    x = np.pad(rows.x, ((0, spare), (0, 0))).reshape(-1, _BLOCK, rows.x.shape[1])  # rows of zeros add nothing
    y = np.pad(rows.y, (0, spare)).reshape(-1, _BLOCK)
    return np.asarray(_summed(jnp.asarray(betas, jnp.float32), jnp.asarray(mode, jnp.float32), x, y))


@jax.jit
def _summed(betas: Any, mode: Any, x: Any, y: Any) -> Any:
    def add(total: Any, block: Any) -> tuple[Any, None]:
        rows, labels = block
        scores, base = rows @ betas.T, (rows @ mode)[:, None]
        terms = labels[:, None] * (scores - base) - (jax.nn.softplus(scores) - jax.nn.softplus(base))
        return total + jnp.sum(terms, axis=0).astype(jnp.float64), None

    return jax.lax.scan(add, jnp.zeros(len(betas), jnp.float64), (x, y))[0]
