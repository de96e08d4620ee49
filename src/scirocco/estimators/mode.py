"""Finding the posterior mode for control variates, without a learning rate from the user.

1. Adam (optax) on minibatches, for a range of learning rates at once: a batch is read once and multiplied with all
   candidates, so six cost little more than one. The candidate with the best log posterior over its last batches wins.
2. Newton corrections: the exact gradient g over all rows (one pass), and H δ = g solved by conjugate gradients with
   Hessian-vector products on a sample of rows. The decrement gᵀδ is the squared distance to the mode in posterior
   standard deviations, so it says, free of units, when to stop. A correction that does not raise the log posterior is
   undone, which also makes the step safe for models that are not concave.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _tree
from scirocco._extras import require
from scirocco.data.batching import Batch, Batching
from scirocco.data.tables import Table
from scirocco.errors import BadStartError, InvalidValueError
from scirocco.types import Array, Data, Key, Params, PyTree, Rows

LEARNING_RATES = (1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
_MIN_STEPS, _MAX_STEPS = 400, 1_000
_BATCH = 500
_HESSIAN_ROWS = 8_192
_CG_STEPS = 40
_CLIMB_TAG, _VISIT_TAG = (
    0xFFFFFFFF,
    0xFFFFFFFE,
)  # a run's key is folded with chain numbers elsewhere: far from these
_CLOSE_ENOUGH = 0.25
"""Root-mean-square distance to the mode, in posterior standard deviations, at which corrections stop."""


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
    visits = [_visit(model, table, climbed, rows)]
    if not math.isfinite(float(visits[0].log_density)):
        raise InvalidValueError(
            "the search for the posterior mode left the finite numbers. Start closer to the mode, give "
            "ControlVariates an `optimizer` with a smaller learning rate, or a `centre`."
        )
    for _ in range(2 if polish else 0):
        last = visits[-1]
        if float(last.distance) <= _CLOSE_ENOUGH:
            break
        candidate = _visit(model, table, last.corrected, rows)
        if not _better(candidate, last):
            break
        visits.append(candidate)
    best = visits[-1]
    report = {
        "passes": len(visits) + passes,
        "learning_rate": rate,
        "log_density": float(best.log_density),
        "distance_to_mode_in_sd": float(best.distance),
    }
    return Mode(best.position, best.total, best.gradient, report)


def _better(candidate: _Visit, last: _Visit) -> bool:
    """Closer by the decrement, and no lower but for rounding: a log density of -10⁷ has no decimals in float32."""
    rounding = 1e-6 * abs(float(last.log_density))
    higher = float(candidate.log_density) > float(last.log_density) - rounding  # False for NaN
    return higher and float(candidate.distance) < float(last.distance)


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


class _Visit(NamedTuple):
    position: Params
    total: PyTree
    gradient: PyTree
    log_density: Array
    corrected: Params
    distance: Array


def _visit(model: Any, table: Table, position: Params, rows: Rows) -> _Visit:
    """One pass over the data at `position`: exact log density and gradient, and the Newton correction there."""
    sums = table.sum(_ValueAndGradient(model), position)
    return _Visit(position, sums[1], *_correct(model, table.num_rows, position, sums, rows))


@partial(jax.jit, static_argnums=(0, 1))
def _correct(
    model: Any, num_rows: int, position: Params, sums: tuple[Array, PyTree], rows: Rows
) -> tuple[PyTree, Array, Params, Array]:
    likelihood, total = sums
    prior, prior_gradient = jax.value_and_grad(model.log_prior_density)(position)
    gradient = _tree.add(total, prior_gradient)
    scale = num_rows / jax.tree.leaves(rows)[0].shape[0]

    def negative_gradient(at: Params) -> PyTree:
        return jax.grad(lambda p: -model.log_prior_density(p) - scale * model.log_likelihood_sum(p, rows))(at)

    def curvature_times(direction: PyTree) -> PyTree:
        return jax.jvp(negative_gradient, (position,), (direction,))[1]

    correction = _conjugate_gradients(curvature_times, gradient)
    distance = jnp.sqrt(jnp.maximum(_tree.vdot(gradient, correction), 0.0) / max(1, _tree.size(position)))
    return gradient, likelihood + prior, _tree.add(position, correction), distance


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


def _conjugate_gradients(multiply: Any, target: PyTree) -> PyTree:
    """Approximate solution x of A x = target; stops at small residuals and at directions of negative curvature."""
    squared = _tree.vdot(target, target)

    def proceed(carry: tuple[Any, ...]) -> Array:
        _, _, _, rho, step, usable = carry
        return usable & (step < _CG_STEPS) & (rho > 1e-6 * squared)

    def one(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        x, residual, direction, rho, step, _ = carry
        product = multiply(direction)
        curvature = _tree.vdot(direction, product)
        usable = curvature > 0
        alpha = jnp.where(usable, rho / jnp.where(usable, curvature, 1.0), 0.0)
        x = jax.tree.map(lambda a, d: (a + alpha * d).astype(a.dtype), x, direction)
        residual = jax.tree.map(lambda r, p: (r - alpha * p).astype(r.dtype), residual, product)
        rho_next = _tree.vdot(residual, residual)
        direction = jax.tree.map(lambda r, d: (r + rho_next / rho * d).astype(r.dtype), residual, direction)
        return x, residual, direction, rho_next, step + 1, usable

    start = (_tree.zeros_like(target), target, target, squared, jnp.array(0), jnp.array(True))
    return jax.lax.while_loop(proceed, one, start)[0]
