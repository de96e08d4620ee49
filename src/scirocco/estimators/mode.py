"""Finding the posterior mode for control variates, without a learning rate from the user.

1. Adam (optax) on minibatches, for a range of learning rates at once: a batch is read once and multiplied with all
   candidates, so six cost little more than one. The candidate with the best log posterior over its last batches wins.
2. Newton corrections, each a pass over all rows.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from scirocco import _tree
from scirocco._extras import require
from scirocco.data.batching import Batch, Batching
from scirocco.data.tables import Table
from scirocco.errors import BadStartError, InvalidValueError
from scirocco.types import Array, ArrayLike, Data, Key, Params, PyTree, Rows

LEARNING_RATES = (1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
_MIN_STEPS, _MAX_STEPS = 400, 1_000
_BATCH = 500
_HESSIAN_ROWS = 8_192
_CLIMB_TAG, _VISIT_TAG = (
    0xFFFFFFFF,
    0xFFFFFFFE,
)  # a run's key is folded with chain numbers elsewhere: far from these


class Mode(NamedTuple):
    """Where the optimiser ended."""

    position: Params
    total: PyTree
    """Exact sum of the log-likelihood gradients there."""
    gradient: PyTree
    """Exact gradient of the log posterior there."""
    report: dict[str, Any]


def find_mode(
    model: Any,
    table: Table,
    position: Params,
    key: Key,
    optimizer: Any = None,
    num_steps: int | None = None,
    polish: bool = True,
) -> Mode:
    """A posterior mode near `position` (unconstrained coordinates)."""
    climbed, rate, passes = approach_mode(model, table, position, key, optimizer, num_steps)
    rows = table.random_rows(_HESSIAN_ROWS, jax.random.fold_in(key, _VISIT_TAG))
    here = look(model, table, climbed)
    if not math.isfinite(float(here.log_density)):
        raise InvalidValueError(
            "the search for the posterior mode left the finite numbers. Start closer to the mode, give "
            "ControlVariates an `optimizer` with a smaller learning rate, or a `centre`."
        )
    here, distance, looks = correct(model, table, here, rows, polish)
    report = {
        "passes": looks + passes,
        "learning_rate": rate,
        "log_density": float(here.log_density),
        "distance_to_mode_in_sd": distance,
    }
    return Mode(here.position, here.total, here.gradient, report)


def approach_mode(
    model: Any,
    table: Table,
    position: Params,
    key: Key,
    optimizer: Any = None,
    num_steps: int | None = None,
) -> tuple[Params, float | None, float]:
    """The optimiser's part alone: a point near the mode, the learning rate that won, the passes."""
    num_rows = table.num_rows
    if optimizer is None and table.batching.size >= num_rows:  # a whole pass for every step would be a waste
        table = table.with_batches_of(min(num_rows, _BATCH))
    size = table.batching.size
    steps = num_steps or int(np.clip(num_rows // size, _MIN_STEPS, _MAX_STEPS))
    rates = np.asarray(LEARNING_RATES if optimizer is None else (1.0,), np.float32)
    key = jax.random.fold_in(key, _CLIMB_TAG)
    feed, number, carry = table.feed(key), 0, None
    while number < steps:
        segment = feed.at(number)
        stop = min(steps, segment.stop)
        span = (np.int32(number), np.int32(stop), np.int32(steps))
        carry, end, rate, first_loss = jax.block_until_ready(
            _climb(model, optimizer, segment.data, segment.batching, position, rates, span, key, carry)
        )
        number = stop
    feed.close()
    if not math.isfinite(float(first_loss)):
        raise BadStartError("the log density is not finite at the starting point.")
    return end, (float(rate) if optimizer is None else None), steps * size / num_rows


@partial(jax.jit, static_argnums=(0, 1))
def _climb(
    model: Any,
    optimizer: Any,
    data: Data,
    batching: Batching,
    start: Params,
    rates: Array,
    span: tuple[Array, Array, Array],
    key: Key,
    carry: Any,
) -> tuple[Any, Params, Array, Array]:
    """Minibatch ascent for every learning rate, over the steps that a segment serves.

    Returns the carry for the next segment, the best end point so far, its rate, and the loss at the start.
    """
    begin, stop, steps = span
    optax = require("optax", "finding the posterior mode for ControlVariates")
    num_rows = batching.num_rows
    scheduled = optimizer is None
    method = optax.scale_by_adam() if scheduled else optimizer

    def loss(position: Params, batch: Batch) -> Array:
        likelihood = batch.scale * model.log_likelihood_sum(position, batch.rows, batch.weights)
        return -(model.log_prior_density(position) + likelihood) / num_rows

    def step(number: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        positions, states, averages, first_loss = carry
        batch = batching.take(data, batching.plan(key, number))
        decay = 0.5 * (1 + jnp.cos(jnp.pi * number / steps))

        def one(position: Params, state: PyTree, average: Array, rate: Array) -> tuple[Params, PyTree, Array]:
            value, gradient = jax.value_and_grad(loss)(position, batch)
            average = jnp.where(number == 0, value, 0.98 * average + 0.02 * value)
            if not scheduled:  # the user's own learning rate is for the gradient of the sum, not of the mean
                gradient = _tree.scale(num_rows, gradient)
            update, state = method.update(gradient, state, position)
            if scheduled:
                update = _tree.scale(-rate * decay, update)
            moved = jax.tree.map(lambda p, u: (p + u).astype(p.dtype), position, update)
            return moved, state, average

        positions, states, averages = jax.vmap(one)(positions, states, averages, rates)
        return positions, states, averages, jnp.where(number == 0, averages[0], first_loss)

    dtype = jax.eval_shape(model.log_prior_density, start).dtype
    if carry is None:
        positions = jax.tree.map(lambda p: jnp.broadcast_to(p, (len(rates), *p.shape)), start)
        nothing = jnp.zeros(len(rates), dtype)
        carry = (positions, jax.vmap(method.init)(positions), nothing, jnp.zeros((), dtype))
    carry = jax.lax.fori_loop(begin, stop, step, carry)
    positions, _, losses, first_loss = carry
    best = jnp.argmin(jnp.where(jnp.isfinite(losses), losses, jnp.inf))
    return carry, jax.tree.map(lambda p: p[best], positions), rates[best], first_loss


# -- Newton corrections ---------------------------------------------------------------------------------------
#
# The exact gradient g over all rows (one pass), and H δ = g solved by conjugate gradients with Hessian-vector products
# on a sample of rows, in units in which the information about every parameter is alike (parameters in raw units differ
# by many orders of magnitude). The decrement gᵀδ is the squared distance to the mode in posterior standard deviations,
# so it says when to stop. A correction that does not raise the log posterior is undone and tried again with damping,
# which also makes the step safe for models that are not concave.

_CG_STEPS = 40
_LOOKS, _LOOKS_OF_MANY = 15, 3
"""Passes over all rows, at most; fewer for many parameters, whose corrections are costly and less exact."""
_FEW_PARAMETERS = 1_000
_LEAST_DAMPING, _MOST_DAMPING = 1e-2, 1e4
_SQUARED_NUMBERS = 1 << 22
"""Gradients of single rows, in numbers, from which the scales of the parameters are taken."""
_CLOSE_ENOUGH = 0.25
"""Root-mean-square distance to the mode, in posterior standard deviations, at which corrections stop."""


class Look(NamedTuple):
    """What one pass over all rows finds at a point."""

    position: Params
    total: PyTree
    """Sum of the log-likelihood gradients."""
    gradient: PyTree
    """Of the log posterior."""
    log_density: Array


def look(model: Any, table: Table, position: Params) -> Look:
    """One pass over all rows."""
    likelihood, total = table.sum(_ValueAndGradient(model), position)
    prior, gradient = _prior(model, position)
    return Look(position, total, _tree.add(total, gradient), likelihood + prior)


@partial(jax.jit, static_argnums=0)
def _prior(model: Any, position: Params) -> tuple[Array, PyTree]:
    return jax.value_and_grad(model.log_prior_density)(position)


def correct(model: Any, table: Table, here: Look, rows: Rows, polish: bool) -> tuple[Look, float, int]:
    """Newton corrections, damped (Levenberg–Marquardt) while they do not help.

    Returns the best point, its distance to the mode in posterior standard deviations, and the passes. Without `polish`
    only the distance is found.
    """
    most = (_LOOKS if _tree.size(here.position) <= _FEW_PARAMETERS else _LOOKS_OF_MANY) if polish else 1

    def corrected(look: Look, damping: float) -> tuple[Params, float]:
        found, distance = _correction(model, table.num_rows, look.position, look.gradient, rows, damping)
        return found, float(distance)

    damping, looks = 0.0, 1
    position, distance = corrected(here, damping)
    while looks < most and damping <= _MOST_DAMPING and (damping > 0 or distance > _CLOSE_ENOUGH):
        there = look(model, table, position)
        looks += 1
        lighter = damping / 10 if damping > _LEAST_DAMPING else 0.0
        beyond = corrected(there, lighter)
        if _better(there, beyond[1], here, distance):
            here, (position, distance), damping = there, beyond, lighter
        else:
            damping = max(10 * damping, _LEAST_DAMPING)
            position, distance = corrected(here, damping)
    return here, corrected(here, 0.0)[1] if damping > 0 else distance, looks


def _better(there: Look, closer: float, here: Look, distance: float) -> bool:
    """Higher; or as high but for rounding, and closer: a log density of -10⁷ has no decimals in float32."""
    gain = float(there.log_density) - float(here.log_density)  # comparisons with NaN are False
    rounding = 1e-6 * abs(float(here.log_density))
    return gain > rounding or (gain > -rounding and closer < distance)


@partial(jax.jit, static_argnums=(0, 1))
def _correction(
    model: Any, num_rows: int, position: Params, gradient: PyTree, rows: Rows, damping: ArrayLike
) -> tuple[Params, Array]:
    """The position after a Newton correction (H + damping · D) δ = g, and the distance to the mode it implies.

    D is the information about each parameter alone: damping does not depend on the parameters' units.
    """
    scale = num_rows / jax.tree.leaves(rows)[0].shape[0]
    variances = _variances(model, scale, position, rows)

    def negative_gradient(at: Params) -> PyTree:
        return jax.grad(lambda p: -model.log_prior_density(p) - scale * model.log_likelihood_sum(p, rows))(at)

    def curvature_times(direction: PyTree) -> PyTree:
        product = jax.jvp(negative_gradient, (position,), (direction,))[1]
        return jax.tree.map(
            lambda h, d, v: (h + damping * d / v).astype(h.dtype), product, direction, variances
        )

    correction = _conjugate_gradients(curvature_times, gradient, variances)
    distance = jnp.sqrt(jnp.maximum(_tree.vdot(gradient, correction), 0.0) / max(1, _tree.size(position)))
    return _tree.add(position, correction), distance


class _ValueAndGradient:
    """Summand (log p(x_i | θ), ∇ log p(x_i | θ)), so that one pass gives both sums."""

    def __init__(self, model: Any):
        self.model = model

    def __hash__(self) -> int:
        return hash((_ValueAndGradient, self.model))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ValueAndGradient) and self.model == other.model

    def total(
        self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None
    ) -> PyTree:
        return jax.value_and_grad(self.model.log_likelihood_sum)(position, rows, weights)

    def each(self, position: Params, rows: Rows, key: Key | None = None) -> PyTree:
        raise NotImplementedError


def _variances(model: Any, scale: float, position: Params, rows: Rows) -> PyTree:
    """One over the information about each parameter, from rows and prior: its variance, were it alone."""
    count = max(2, min(jax.tree.leaves(rows)[0].shape[0], _SQUARED_NUMBERS // max(1, _tree.size(position))))
    some = jax.tree.map(lambda leaf: leaf[:count], rows)
    squares = jax.tree.map(lambda g: jnp.mean(g * g, axis=0), model.summand.each(position, some))
    size = jax.tree.leaves(rows)[0].shape[0]
    information = jax.tree.map(
        lambda f, p: scale * size * f + jnp.abs(p), squares, _prior_diagonal(model, position)
    )
    largest = jnp.max(jnp.stack([jnp.max(leaf) for leaf in jax.tree.leaves(information)]))
    # a parameter that nothing is known about: let it move as the best informed one, which is safe
    return jax.tree.map(lambda f: jnp.where(f > 0, 1.0 / f, 1.0 / jnp.maximum(largest, 1e-30)), information)


def _prior_diagonal(model: Any, position: Params) -> PyTree:
    """Of the prior's Hessian: parameters of parameters have no other information. Zero for many parameters."""
    if _tree.size(position) > _FEW_PARAMETERS:
        return _tree.zeros_like(position)
    flat, unravel = ravel_pytree(position)
    return unravel(jnp.diagonal(jax.hessian(lambda x: model.log_prior_density(unravel(x)))(flat)))


def _conjugate_gradients(multiply: Any, target: PyTree, variances: PyTree) -> PyTree:
    """Approximate solution x of A x = target; stops at small residuals and at directions of negative curvature.

    `variances`, about 1/diag(A), is the preconditioner. Where already the first direction has negative curvature, the
    result is the gradient in units of the parameters.
    """

    def rescaled(residual: PyTree) -> PyTree:
        return jax.tree.map(lambda r, v: (r * v).astype(r.dtype), residual, variances)

    first = rescaled(target)
    squared = _tree.vdot(target, first)

    def proceed(carry: tuple[Any, ...]) -> Array:
        _, _, _, rho, step, usable = carry
        return usable & (step < _CG_STEPS) & (rho > 1e-6 * squared)

    def one(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        x, residual, direction, rho, step, _ = carry
        product = multiply(direction)
        curvature = _tree.vdot(direction, product)
        usable = curvature > 0
        alpha = jnp.where(usable, rho / jnp.where(usable, curvature, 1.0), jnp.where(step == 0, 1.0, 0.0))
        x = jax.tree.map(lambda a, d: (a + alpha * d).astype(a.dtype), x, direction)
        residual = jax.tree.map(lambda r, p: (r - alpha * p).astype(r.dtype), residual, product)
        scaled = rescaled(residual)
        rho_next = _tree.vdot(residual, scaled)
        direction = jax.tree.map(lambda r, d: (r + rho_next / rho * d).astype(r.dtype), scaled, direction)
        return x, residual, direction, rho_next, step + 1, usable

    start = (_tree.zeros_like(target), target, first, squared, jnp.array(0), jnp.array(True))
    return jax.lax.while_loop(proceed, one, start)[0]
