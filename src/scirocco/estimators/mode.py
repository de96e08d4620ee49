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
from scirocco.errors import BadStartError, InvalidValueError
from scirocco.estimators.base import full_sum
from scirocco.estimators.batching import Batch, Batching, IndependentRows
from scirocco.estimators.shuffle import uniform_index
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
    data: Data,
    batching: Batching,
    position: Params,
    key: Key,
    optimizer: Any = None,
    num_steps: int | None = None,
    polish: bool = True,
) -> Mode:
    """A posterior mode near `position` (unconstrained coordinates)."""
    num_rows = batching.num_rows
    climbed, rate, passes = approach_mode(model, data, batching, position, key, optimizer, num_steps)
    visits = [_visit(model, data, num_rows, *climbed, key)]
    if not math.isfinite(float(visits[0].log_density)):
        raise InvalidValueError(
            "the search for the posterior mode left the finite numbers. Start closer to the mode, give "
            "ControlVariates an `optimizer` with a smaller learning rate, or a `centre`."
        )
    for _ in range(2 if polish else 0):
        last = visits[-1]
        if float(last.distance) <= _CLOSE_ENOUGH:
            break
        candidate = _visit(model, data, num_rows, last.position, last.correction, key)
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
    data: Data,
    batching: Batching,
    position: Params,
    key: Key,
    optimizer: Any = None,
    num_steps: int | None = None,
) -> tuple[tuple[Params, Params], float | None, float]:
    """The optimiser's part alone: a point near the mode (and a zero step), the learning rate that won, the passes."""
    num_rows = batching.num_rows
    if optimizer is None and batching.size >= num_rows:  # a whole pass for every step would be a waste
        batching = IndependentRows(num_rows, min(num_rows, _BATCH), replace=True)
    steps = num_steps or int(np.clip(num_rows // batching.size, _MIN_STEPS, _MAX_STEPS))
    rates = np.asarray(LEARNING_RATES if optimizer is None else (1.0,), np.float32)
    climbed, still, rate, first_loss = _climb(model, optimizer, data, batching, position, rates, steps, key)
    if not math.isfinite(float(first_loss)):
        raise BadStartError("the log density is not finite at the starting point.")
    return (climbed, still), (float(rate) if optimizer is None else None), steps * batching.size / num_rows


@partial(jax.jit, static_argnums=(0, 1, 6))
def _climb(
    model: Any,
    optimizer: Any,
    data: Data,
    batching: Batching,
    start: Params,
    rates: Array,
    steps: int,
    key: Key,
) -> tuple[Params, Params, Array, Array]:
    """Minibatch ascent from `start` for every learning rate: best end point, a zero step, its rate, the first loss.

    (The zero step is made here so that `_visit` meets arrays of one kind at every call, and compiles once.)
    """
    key = jax.random.fold_in(key, _CLIMB_TAG)
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
    positions = jax.tree.map(lambda p: jnp.broadcast_to(p, (len(rates), *p.shape)), start)
    first = (positions, jax.vmap(method.init)(positions), jnp.zeros(len(rates), dtype), jnp.zeros((), dtype))
    positions, _, losses, first_loss = jax.lax.fori_loop(0, steps, step, first)
    best = jnp.argmin(jnp.where(jnp.isfinite(losses), losses, jnp.inf))
    end = jax.tree.map(lambda p: p[best], positions)
    return end, _tree.zeros_like(end), rates[best], first_loss


class _Visit(NamedTuple):
    position: Params
    total: PyTree
    gradient: PyTree
    log_density: Array
    correction: Params
    distance: Array


@partial(jax.jit, static_argnums=(0, 2))
def _visit(model: Any, data: Data, num_rows: int, origin: Params, step: Params, key: Key) -> _Visit:
    """One pass over the data at `origin + step`: exact log density and gradient, and the Newton correction there."""
    position = _tree.add(origin, step)
    likelihood, total = full_sum(_ValueAndGradient(model), position, data, num_rows)
    prior, prior_gradient = jax.value_and_grad(model.log_prior_density)(position)
    gradient = _tree.add(total, prior_gradient)
    rows = _some_rows(data, num_rows, jax.random.fold_in(key, _VISIT_TAG))
    scale = num_rows / jax.tree.leaves(rows)[0].shape[0]

    def negative_gradient(at: Params) -> PyTree:
        return jax.grad(lambda p: -model.log_prior_density(p) - scale * model.log_likelihood_sum(p, rows))(at)

    def curvature_times(direction: PyTree) -> PyTree:
        return jax.jvp(negative_gradient, (position,), (direction,))[1]

    correction = _conjugate_gradients(curvature_times, gradient)
    distance = jnp.sqrt(jnp.maximum(_tree.vdot(gradient, correction), 0.0) / max(1, _tree.size(position)))
    return _Visit(position, total, gradient, likelihood + prior, correction, distance)


class _ValueAndGradient:
    """Summand (log p(x_i | θ), ∇ log p(x_i | θ)), so that one pass gives both sums."""

    def __init__(self, model: Any):
        self.model = model

    def total(
        self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None
    ) -> PyTree:
        return jax.value_and_grad(self.model.log_likelihood_sum)(position, rows, weights)

    def each(self, position: Params, rows: Rows, key: Key | None = None) -> PyTree:
        raise NotImplementedError


def _some_rows(data: Data, num_rows: int, key: Key) -> Rows:
    count = min(num_rows, _HESSIAN_ROWS)
    index = uniform_index(key, (count,), num_rows) if count < num_rows else jnp.arange(num_rows)
    return jax.tree.map(lambda leaf: leaf.at[index].get(mode="promise_in_bounds"), data)


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
