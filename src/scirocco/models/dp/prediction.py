r"""What draws of a mixture say of rows.

Given a draw (ω, θ) a row has the density

.. math:: p(x) = Σ_j ω_j f(x | θ_j) + ω_{rest} ∫ f(x | θ) dG_0(θ),

where the last term stands for all clusters that have no row: their parameters have the law G₀.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def log_joint(family: Any, rows: Any, draw: dict[str, Array]) -> Array:
    """log ω_j f(x | θ_j), (rows, clusters of the draw + 1); the last column is a cluster without rows."""
    weights = np.asarray(draw["weights"], np.float64)
    num = int(np.count_nonzero(weights))
    out = np.empty((rows.num_rows, num + 1))
    parameters = {name: np.asarray(draw[name][:num]) for name in family.parameters}
    out[:, :num] = family.log_density(rows, parameters) + np.log(weights[:num])
    out[:, num] = family.log_marginal(rows) + np.log(max(float(draw["rest"]), 1e-300))
    return out


def log_sum(logs: Array, axis: int) -> Array:
    """log Σ exp."""
    highest = logs.max(axis=axis, keepdims=True)
    total: Array = np.log(np.sum(np.exp(logs - highest), axis=axis)) + highest.squeeze(axis)
    return total


def log_predictive(family: Any, rows: Any, draw: dict[str, Array]) -> Array:
    """log p(x) of every row given one draw."""
    return log_sum(log_joint(family, rows, draw), axis=1)


def memberships(family: Any, rows: Any, draw: dict[str, Array]) -> Array:
    """P(row is in cluster j | draw), (rows, clusters of the draw + 1)."""
    logs = log_joint(family, rows, draw)
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    out: Array = shares / shares.sum(axis=1, keepdims=True)
    return out
