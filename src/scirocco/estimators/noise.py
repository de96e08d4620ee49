"""The covariance of an estimate, from the rows of its own minibatch.

For n uniform rows with values v_i (gradients, or gradients minus a control variate) the estimate N/n Σ v_i has
covariance N²/n · S² · c, where S² is the covariance of the v_i over the data and c the finite-population factor
(1 - n/N without replacement). For rows drawn with probability p_i it is the covariance of v_i/p_i, over n.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from scirocco.data.batching import Batch
from scirocco.errors import InvalidValueError
from scirocco.model import WithValue
from scirocco.types import Array, PyTree

KINDS = ("none", "scalar", "diagonal", "full")


def covariance(values: PyTree, batch: Batch, kind: str) -> PyTree:
    """Estimated covariance of the estimate whose rows contributed `values`.

    `diagonal`: a tree like the parameters. `scalar`: its mean over all parameters. `full`: a (dim, dim) matrix in the
    order of `jax.flatten_util.ravel_pytree`. Where rows contribute a value beside the gradient, its variance is beside
    the covariance.
    """
    if isinstance(values, WithValue):
        return WithValue(
            covariance(values.gradient, batch, kind), covariance(values.value, batch, "diagonal")
        )
    n = jax.tree.leaves(values)[0].shape[0]
    if n < 2:
        raise InvalidValueError(
            "a batch of one row has no covariance: use `batch_size` >= 2 with this sampler."
        )
    correction = batch.correction
    weighted = jax.tree.map(
        lambda v: _spread(batch, v) * v, values
    )  # each row's own estimate of the sum, over n
    diagonal = jax.tree.map(lambda w: jnp.var(w, axis=0, ddof=1) * n * correction, weighted)
    if kind == "diagonal":
        return diagonal
    if kind == "scalar":
        total = sum(jnp.sum(leaf) for leaf in jax.tree.leaves(diagonal))
        return total / sum(leaf.size for leaf in jax.tree.leaves(diagonal))
    flat = jax.vmap(lambda w: ravel_pytree(w)[0])(weighted)
    centred = flat - flat.mean(axis=0)
    return centred.T @ centred * (n * correction / (n - 1))


def _spread(batch: Batch, like: Array) -> Array:
    if batch.weights is None:
        return jnp.asarray(batch.scale, like.dtype)
    return batch.weights.reshape((-1,) + (1,) * (like.ndim - 1)).astype(like.dtype)


def none_at_all(total: PyTree, position: PyTree, kind: str) -> PyTree | None:
    """The zero covariance of an exact sum; that of its value comes for nothing."""
    if isinstance(total, WithValue):
        return WithValue(none_at_all(total.gradient, position, kind), jnp.zeros_like(total.value))
    if kind == "none":
        return None
    if kind == "diagonal":
        return jax.tree.map(jnp.zeros_like, position)
    dimension = sum(leaf.size for leaf in jax.tree.leaves(position))
    return jnp.zeros(() if kind == "scalar" else (dimension, dimension))
