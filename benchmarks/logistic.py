"""The benchmark's model in scirocco's terms, for the children that time something other than the user's lines."""

from __future__ import annotations

from typing import Any

import jax

import scirocco as sc


def log_likelihood(b: jax.Array, datum: dict[str, jax.Array]) -> jax.Array:
    """Log probability of one 0/1 outcome."""
    return jax.nn.log_sigmoid((2 * datum["y"] - 1) * (datum["x"] @ b))


def log_prior(b: jax.Array) -> jax.Array:
    """Normal with variance 10."""
    return -0.05 * b @ b


def model() -> Any:
    """The model, to be built once per process: a new one would compile anew."""
    return sc.Model(log_likelihood, log_prior)
