"""A short measurement before the run: the largest curvature, and the gradient noise at typical posterior points.

Samplers that choose their own step size or friction, and the warning about too little friction, rest on it. It costs
a few dozen gradients on about a thousand rows.
"""

from __future__ import annotations

import importlib.util
import math
from functools import partial

import jax
import jax.numpy as jnp

from scirocco import _tree
from scirocco.errors import BadStartError
from scirocco.estimators import Context, Prepared, approach_mode
from scirocco.model import Model
from scirocco.run.loop import Parts
from scirocco.samplers import Scales
from scirocco.types import Array, Key, Params, PyTree

_ROWS = 1_024
_POWER_STEPS = 15
_POINTS = 8
_TABLE_NUMBERS = 1 << 24
_TAG = 0xFFFFFFFD  # a run's key is folded with chain numbers elsewhere: far from this


def measure(model: Model, parts: Parts, prepared: Prepared, key: Key) -> Scales:
    """Curvature and noise where the posterior has its mass.

    A start far from the mode can have several times its noise and curvature, so unless the estimator has found the
    mode already, a short climb goes there first; the chain still starts where the user said. Without optax the
    measurement is made at the start.
    """
    position = prepared.position
    if not prepared.near_mode and importlib.util.find_spec("optax") is not None:
        (position, _), _, _ = approach_mode(model, parts.data, parts.batching, position, key)
    curvature, noise, information = _measure(model, parts, position, prepared.memory, key)
    if not math.isfinite(float(curvature)):
        raise BadStartError("the curvature of the log density is not finite at the starting point.")
    return Scales(float(curvature), noise, information, parts.batching.epoch)


def curvature_limit(model: Model, parts: Parts, position: Params, key: Key) -> float:
    """Largest curvature alone, for advice after a divergence."""
    return float(_curvature(model, parts, position, key))


@partial(jax.jit, static_argnums=0)
def _curvature(model: Model, parts: Parts, position: Params, key: Key) -> Array:
    rows, scale = _rows(parts, position)

    def gradient(at: Params) -> PyTree:
        return jax.grad(lambda p: -model.log_prior_density(p) - scale * model.log_likelihood_sum(p, rows))(at)

    def iterate(_: Array, carry: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
        direction, _ = carry
        image = jax.jvp(gradient, (position,), (direction,))[1]
        length = _tree.norm(image)
        return _tree.scale(1.0 / jnp.maximum(length, 1e-30), image), length

    direction = _tree.normal_like(key, position)
    direction = _tree.scale(1.0 / _tree.norm(direction), direction)
    return jax.lax.fori_loop(0, _POWER_STEPS, iterate, (direction, _tree.norm(direction)))[1]


@partial(jax.jit, static_argnums=0)
def _measure(
    model: Model, parts: Parts, position: Params, memory: PyTree, key: Key
) -> tuple[Array, PyTree, PyTree]:
    power_key, point_key, batch_key = jax.random.split(jax.random.fold_in(key, _TAG), 3)
    rows, _ = _rows(parts, position)
    squares = jax.tree.map(lambda g: jnp.mean(g * g, axis=0), model.summand.each(position, rows))
    information = _tree.scale(parts.batching.num_rows, squares)
    mean = _tree.vdot(information, jax.tree.map(jnp.ones_like, information)) / _tree.size(information)
    deviation = jax.tree.map(lambda f: 1.0 / jnp.sqrt(jnp.maximum(f, 1e-3 * mean) + 1e-30), information)

    def noise_at(number: Array) -> PyTree:
        xi = _tree.normal_like(jax.random.fold_in(point_key, number), position)
        there = jax.tree.map(lambda p, d, x: p + d * x, position, deviation, xi)
        batch = parts.batching.take(parts.data, parts.batching.plan(batch_key, number))
        context = Context(parts.data, batch, jnp.asarray(1, jnp.int32))
        return parts.estimator.estimate(model.summand, there, memory, context, "diagonal")[0].noise

    noise = jax.lax.map(noise_at, jnp.arange(_POINTS))
    curvature = _curvature(model, parts, position, power_key)
    return curvature, jax.tree.map(lambda v: v.mean(axis=0), noise), information


def _rows(parts: Parts, position: Params) -> tuple[PyTree, float]:
    """The first rows (blocks are shuffled), or rows spread evenly over data in the user's order."""
    num_rows = parts.batching.num_rows
    count = max(2, min(num_rows, _ROWS, _TABLE_NUMBERS // _tree.size(position)))
    count = min(count, num_rows)
    stride = max(1, num_rows // count)
    rows = jax.tree.map(lambda leaf: leaf[: count * stride : stride], parts.data)
    return rows, num_rows / count
