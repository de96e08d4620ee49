"""Log likelihoods of many rows at once: one matrix product forward and one backward, whatever the batch.

They are at module level, so that fits of tables of one shape share their compiled programs.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from scirocco.types import Array, Params, Rows


def binary(params: Params, rows: Rows) -> Array:
    """y η - log(1 + e^η), with η = xᵀβ + b and y in {0, 1}."""
    eta = _times(rows["x"], params["coef"]) + params.get("intercept", 0.0)
    return rows["y"] * eta - jnp.logaddexp(0.0, eta)


def multinomial(params: Params, rows: Rows) -> Array:
    """η_y - log Σ_k e^(η_k), with η_k = xᵀβ_k + b_k for every class k."""
    eta = _times(rows["x"], params["coef"].T) + params.get("intercept", 0.0)
    chosen = jnp.take_along_axis(eta, rows["y"][:, None], axis=1)[:, 0]
    return chosen - jax.nn.logsumexp(eta, axis=1)


def linear(params: Params, rows: Rows) -> Array:
    """-(y - xᵀβ - b)² / 2σ² - log σ, up to a constant.

    `one` is what the intercept is multiplied with and `share` what log σ is: 1 for a row of the table. A table of N
    rows is equivalent to the few rows of its triangular factor (see `approximation.reduced`), with others.
    """
    noise = params.get("noise", jnp.ones((), rows["y"].dtype))
    eta = _times(rows["x"], params["coef"]) + rows["one"] * params.get("intercept", 0.0)
    return -0.5 * ((rows["y"] - eta) / noise) ** 2 - rows["share"] * jnp.log(noise)


def _times(x: Array, coef: Array) -> Array:
    # accelerators would round the factors of a product to ten bits or so
    return jnp.matmul(x, coef, precision="highest")
