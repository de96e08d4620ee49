"""The joint density of a Gaussian mixture, in units in which known standard deviations are one."""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import transforms
from scirocco.model import BlockModel, CountModel, Model, Posterior
from scirocco.types import Array, Key, Params

_LOG_2PI = float(np.log(2 * np.pi))


def log_components(params: Params, x: Array) -> Array:
    """log w_k + log N(x | μ_k, s_k²), (K,), for one row."""
    scales = params.get("scales")
    standard = x - params["means"]
    logs = jnp.log(params["weights"]) - 0.5 * x.shape[-1] * _LOG_2PI
    if scales is not None:
        standard = standard / scales
        logs = logs - jnp.sum(jnp.log(scales), axis=-1)
    return logs - 0.5 * jnp.sum(standard**2, axis=-1)


def log_likelihood(params: Params, x: Array) -> Array:
    """log Σ_k w_k N(x | μ_k, s_k²): the labels are summed out."""
    return jax.nn.logsumexp(log_components(params, x))


def label(params: Params, x: Array, key: Key) -> Array:
    """A label drawn given all parameters, as an indicator: the count that moves the weights."""
    logs = log_components(params, x)
    return jax.nn.one_hot(jax.random.categorical(key, logs), logs.shape[-1])


def log_responsibilities(params: Params, x: Array) -> Array:
    """log P(label = k | x), (K,)."""
    return jax.nn.log_softmax(log_components(params, x))


@lru_cache(maxsize=64)
def posterior(
    prior_scales: tuple[float, ...],
    scale_prior: tuple[float, float] | None,
    concentration: float | None,
    weights: tuple[float, ...] | None,
) -> Posterior:
    """The model of a fit; equal settings give one object, so that compiled programs are found again.

    `prior_scales`: of the means, for each column.
    `scale_prior`: shape and rate of the Gamma prior of the precisions 1/s², None where scales are known.
    `concentration`: α of the weights' Dirichlet prior, None where `weights` (a tuple) are known.
    """

    def log_prior(params: Params) -> Array:
        total = -0.5 * jnp.sum((params["means"] / np.asarray(prior_scales, np.float32)) ** 2)
        if scale_prior is not None:
            shape, rate = scale_prior
            logs = jnp.log(params["scales"])
            # τ = s⁻² ~ Gamma(a, b) has the density ∝ s^(-2a-1) exp(-b s⁻²) in s
            total = total - jnp.sum((2 * shape + 1) * logs + rate * jnp.exp(-2 * logs))
        return total

    known = None if weights is None else np.asarray(weights, np.float32)

    def likelihood(params: Params, x: Array) -> Array:
        return log_likelihood(params if known is None else {**params, "weights": known}, x)

    names = {"means": None} | ({} if scale_prior is None else {"scales": transforms.positive})
    if concentration is None:
        return Model(likelihood, log_prior, transforms=names)
    joint = Model(likelihood, log_prior, transforms={**names, "weights": None})
    return BlockModel(joint, weights=CountModel(concentration, label))
