"""Finding the posterior mode for control variates, without a learning rate from the user.

1. Few parameters: Newton's method on a sample of rows, with the whole Hessian; many: Newton corrections as in 2. Where
that ends far from a mode: Adam (optax) on minibatches, for a range of learning rates at once: a batch is read once for
all candidates, so six cost little more than one. The candidate with the best log posterior over its last batches wins.
2. Newton corrections (`newton`), each a pass over all rows.
3. Where that ends far from a mode, too: steps that are halved until they gain, with the Hessian of the sample, and last
with that of all rows.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks, _tree
from scirocco._extras import require
from scirocco._random import Purpose, key_for
from scirocco.data.batching import Batch, Batching
from scirocco.data.tables import Table
from scirocco.errors import BadStartError, InvalidValueError
from scirocco.estimators.newton import (
    AFFORDABLE,
    DENSE_PARAMETERS,
    FAR,
    FEW_PARAMETERS,
    WHOLE_WORK,
    Corrected,
    OnRows,
    WholePass,
    correct,
    descend,
    look,
)
from scirocco.types import Array, Data, Key, Params, PyTree, Rows

LEARNING_RATES = (1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)  # of Adam, tried together
_MIN_STEPS, _MAX_STEPS = 400, 1_000  # of Adam: a pass over the data, within these
_BATCH = 500  # rows of a step of Adam
_MANY_PARAMETERS, _BATCH_OF_MANY, _RATES_OF_MANY = 50_000, 128, slice(0, 3)
"""Parameters above which Adam takes smaller batches, and fewer learning rates at once."""
_HESSIAN_ROWS, _ROWS_PER_PARAMETER, _LEAST_ROWS = 8_192, 32, 512
"""Rows on which Newton corrections are computed; more for many parameters where that is affordable, else fewer."""
_FIRST_LOOKS = 8
"""Passes of Newton corrections from the start, before another method is tried."""


class FoundMode(NamedTuple):
    """The end point of the optimiser."""

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
    quiet: bool = False,
) -> FoundMode:
    """A posterior mode near `position` (unconstrained coordinates); `quiet`: no warning if none is found."""
    size = _tree.size(position)
    few = affordable(model, table, _HESSIAN_ROWS)
    rows = table.random_rows(_rows_for(size, few), key_for(key, Purpose.MODE_ROWS))
    most = None if polish else 1
    near, passes, rate = None, 0.0, None
    if optimizer is None and num_steps is None:
        if size > DENSE_PARAMETERS:
            near = _newton_over(model, table, position, rows) if polish else None
        else:
            near, passes = _newton_on(model, table, position, rows, few, most)
    if near is None:
        climbed, rate, passes = approach_mode(model, table, position, key, optimizer, num_steps)
        seen = _finite(look(model, table, climbed))
        near = correct(model, table, seen, rows, most, only_convex=size > FEW_PARAMETERS)
    here, distance, looks, convex = near
    if polish and not distance <= FAR and size <= FEW_PARAMETERS:
        here, distance, more = descend(model, table, here, rows)
        looks += more
        work = table.num_rows * size**2 * model.facts.row_cost(table.row_spec)
        if not distance <= FAR and _rows_for(size, few) < table.num_rows and work <= WHOLE_WORK:
            here, distance, more = descend(model, table, here, None)  # the sample may lack the rows that matter
            looks += more
    shapeless = not convex and size > FEW_PARAMETERS
    if polish and not quiet and not shapeless and not distance <= FAR:
        _checks.warn(
            f"the search for the posterior mode stopped about {distance:.2g} posterior standard deviations away: "
            "draws may be far from the posterior. Start closer, or check that the posterior has a mode (problems are a "
            "prior that is too flat, a scale that can go to 0)."
        )
    report = {
        "passes": looks + passes,
        "learning_rate": rate,
        "log_density": float(here.log_density),
        "distance_to_mode_in_sd": distance,
    }
    if shapeless:
        report["is_mode"] = False
    return FoundMode(here.position, here.total, here.gradient, report)


def some_rows(model: Any, table: Table, key: Key) -> Rows:
    """The rows on which the mode of few parameters is searched for."""
    return table.random_rows(affordable(model, table, _HESSIAN_ROWS), key_for(key, Purpose.MODE_ROWS))


def affordable(model: Any, table: Table, num_rows: int) -> int:
    """So many rows, or fewer if each costs as much as many."""
    return max(min(num_rows, _LEAST_ROWS), int(num_rows / model.facts.row_cost(table.row_spec)))


def _rows_for(size: int, few: int) -> int:
    """The number of rows on which Newton corrections of so many parameters are computed; `few`: of a few parameters."""
    most = AFFORDABLE // size
    return max(min(few, max(_LEAST_ROWS, most)), min(_ROWS_PER_PARAMETER * size, most))


def _finite(here: WholePass) -> WholePass:
    if not math.isfinite(float(here.log_density)):
        raise InvalidValueError(
            "the search for the posterior mode diverged (NaN or inf). Start closer to the mode, or give "
            "sc.ControlVariates an `optimizer` with a smaller learning rate, or a `centre`."
        )
    return here


def _newton_over(model: Any, table: Table, position: Params, rows: Rows) -> Corrected | None:
    """Newton corrections from the start; None if they end far from a mode, or the posterior is not concave there."""
    here = look(model, table, position)
    if not math.isfinite(float(here.log_density)):
        raise BadStartError("the log density is not finite at the starting point.")
    found = correct(model, table, here, rows, _FIRST_LOOKS, only_convex=True)
    return found if found.distance <= FAR and found.convex else None


def _newton_on(
    model: Any, table: Table, position: Params, rows: Rows, few: int, most: int | None
) -> tuple[Corrected | None, float]:
    """Newton's method on these rows, then corrections, and the passes that it took; None if that ends far away."""
    given = OnRows(model, table.num_rows, position, rows)
    found = given.ascend(given.flat)
    if found is None:
        raise BadStartError("the log density is not finite at the starting point.")
    if not found.distance <= FAR:
        return None, 0.0
    here, looks = look(model, table, found.here.seen), found.looks + 1
    if table.num_rows <= few:  # those were all rows
        return Corrected(here, found.distance, 1, True), looks
    return correct(model, table, _finite(here), rows, most), looks * few / table.num_rows


def approach_mode(
    model: Any, table: Table, position: Params, key: Key, optimizer: Any = None, num_steps: int | None = None
) -> tuple[Params, float | None, float]:
    """The optimiser's part alone: a point near the mode, the best learning rate, the number of passes."""
    num_rows = table.num_rows
    rates = np.asarray(LEARNING_RATES if optimizer is None else (1.0,), np.float32)
    if optimizer is None:
        many = _tree.size(position) > _MANY_PARAMETERS
        rates = rates[_RATES_OF_MANY] if many else rates
        if many or table.batching.size >= num_rows:  # a full pass for every step would be wasteful
            table = table.with_batches_of(min(num_rows, table.batching.size, _BATCH_OF_MANY if many else _BATCH))
    size = table.batching.size
    steps = num_steps or int(np.clip(num_rows // size, _MIN_STEPS, _MAX_STEPS))
    key = key_for(key, Purpose.MODE_CLIMB)
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
    """Minibatch ascent for every learning rate, over the steps that a segment provides.

    Returns the carry for the next segment, the best end point so far, its rate, and the loss at the start.
    """
    begin, stop, steps = span
    optax = require("optax", "finding the posterior mode")
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
            if not scheduled:  # the user's learning rate applies to the gradient of the sum, not of the mean
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
