"""A short measurement before the run: the largest curvature, and the gradient noise at typical posterior points.

Samplers that choose their own step size or friction, and the warning about too little friction, use it. It costs
a few dozen gradients on about a thousand rows.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from scirocco import _tree
from scirocco._programs import setup_program
from scirocco._random import Purpose, SeedPurpose, key_for
from scirocco.data import Resident, Table
from scirocco.data.batching import AllRows, Batching
from scirocco.data.tables import Probed, full_sum
from scirocco.errors import BadStartError, InvalidValueError
from scirocco.estimators import Context, Prepared, approach_mode
from scirocco.estimators.base import next_pass
from scirocco.estimators.mode import some_rows
from scirocco.estimators.newton import DENSE_PARAMETERS, OnRows, negative_log_posterior, vector
from scirocco.model import Model, without_value
from scirocco.run.choose import limits, metric, scores
from scirocco.run.loop import Parts
from scirocco.samplers import Sampler, Scales
from scirocco.samplers.preconditioned import core_of, rows_times, times
from scirocco.samplers.scales import largest as largest_of
from scirocco.types import Array, Key, Params, PyTree, Rows

_POWER_STEPS = 15
"""Of the power iteration for the largest curvature, which is then some per cent too small."""


def measure(model: Model, parts: Parts, table: Table, prepared: Prepared, key: Key, thorough: bool = False) -> Scales:
    """Curvature and noise where the posterior has its mass, in the coordinates of the sampler.

    `thorough`: the noise of control variates is computed from all rows, because batches rarely contain the rare rows
    that may cause most of it.

    Far from the mode, noise and curvature can be several times larger. Unless the estimator has already found the
    mode, a short optimisation moves there first; the chain still starts where the user said. Without optax the
    measurement is made at the start.
    """
    position = near_mode(model, table, prepared, key)
    factor = largest = None
    if parts.sampler.needs.metric != "none":
        factor = parts.sampler.known.factor
        if factor is None:
            shape = metric.shape_at(model, table, position, parts.sampler.needs.metric, key)
            factor, largest = shape.factor, shape.largest
    found = partial(_scales, model, parts, table, prepared.memory, position, key=key, thorough=thorough)
    scales = found(factor, largest)
    kinked = _strongest(scales) > limits.LIMITS.kinked * scales.largest_curvature
    if kinked and scales.factor is not None:
        kinked = scores.roundness(model, table, position, scales.factor, key) >= limits.LIMITS.no_shape
    if kinked:
        if parts.sampler.needs.metric == "laplace" and parts.sampler.known.factor is None:
            scales = found(metric.shape_at(model, table, position, "fisher", key).factor, None)
        scales = scales._replace(largest_curvature=max(scales.largest_curvature, _strongest(scales)))
    return scales


def _scales(
    model: Model,
    parts: Parts,
    table: Table,
    memory: PyTree,
    position: Params,
    factor: Any,
    largest: float | None,
    key: Key,
    thorough: bool,
) -> Scales:
    """The content of `Scales` for this L; `largest`: its largest curvature, where it is known."""
    if thorough:
        noise, information, factor = noise_of_all(model, table, parts.batching, position, factor, key)
        if largest is None:
            largest = _curvature_on_sample(model, table, position, factor, key)
        return Scales(largest, noise, information, parts.batching.epoch, factor)
    scales = scales_at(model, parts, table, memory, position, factor, key)
    return scales if largest is None else scales._replace(largest_curvature=largest)


def _curvature_on_sample(model: Model, table: Table, position: Params, factor: Any, key: Key) -> float:
    """The largest curvature in the coordinates of L, on the rows on which the mode was searched for."""
    if factor.shape != (_tree.size(position),) * 2 or len(factor) > DENSE_PARAMETERS:
        return curvature_limit(model, table, position, key_for(key, Purpose.PILOT), factor)
    curvature = OnRows(model, table.num_rows, position, some_rows(model, table, key)).curvature(position)
    lower = np.asarray(factor, np.float64)
    found = lower.T @ curvature @ lower
    if not np.all(np.isfinite(found)):
        raise BadStartError("the curvature of the log density is not finite at the starting point.")
    return float(np.max(np.abs(np.linalg.eigvalsh((found + found.T) / 2))))


def noise_of_all(
    model: Model, table: Table, batching: Batching, centre: Params, factor: Any, key: Key
) -> tuple[PyTree, PyTree, Any]:
    """Variance of one estimate with control variates, for each coordinate u of θ = θ̂ + L u, at points u = ±1.

    The change of a row's gradient is about linear in u. A few heavy rows may cause most of the noise in a direction,
    and each depends on u along one line only: few random points would hide some of them. See `_round_points`. Nor do
    such rows agree with the axes of u: of few parameters the whole covariance is computed, and L is turned so that it
    is diagonal, which LLᵀ does not notice. Second, the information about each coordinate: the sum of the rows' squared
    gradients at the centre; last, L.
    """
    flat, back = vector(centre)
    count, num_rows = _noise_rows(model, table, flat.size, factor.size), table.num_rows
    if count < table.num_rows:
        count = min(count, limits.LIMITS.streamed_rows) if table.streamed else count
        rows = table.random_rows(count, key_for(key, Purpose.PILOT), False)
        table = Resident(rows, AllRows(count, count))
    lower = np.asarray(factor, np.float64)
    whole = factor.shape == (flat.size, flat.size) and flat.size <= DENSE_PARAMETERS
    points = _round_points(flat.size, table.num_rows)
    of = (centre, back(flat + rows_times(lower, points)), lower.astype(flat.dtype))
    squares, sums, first = (
        np.asarray(each, np.float64) / table.num_rows for each in table.sum(_SquaredChange(model, whole), of)
    )
    found = squares / len(points) - (sums.T @ sums if whole else np.sum(sums**2, axis=0)) / len(points)
    if whole and np.all(np.isfinite(found)):
        found, turned = np.linalg.eigh((found + found.T) / 2)
        first = np.einsum("ij,ik,kj->j", turned, first, turned)
        factor = (lower @ turned).astype(factor.dtype)
    elif whole:
        found, first = np.diagonal(found), np.diagonal(first)
    variance = np.maximum(found, 0.0) * batching.num_rows**2 / batching.size * batching.correction
    return back(variance), back(num_rows * first), factor


def _noise_rows(model: Model, table: Table, size: int, numbers: int) -> int:
    """Rows from which the noise of so many parameters is computed, for an L of so many numbers."""
    cost = model.facts.row_cost(table.row_spec)
    count = max(scores.least_rows(size), int(limits.LIMITS.noise_work / (numbers * cost)))
    return count if cost == 1 else min(count, limits.LIMITS.costly_rows)


def _round_points(size: int, num_rows: int) -> np.ndarray:
    """Points u (point, d) of signs, of which the mean of any quadratic form is nearly its mean over u ~ N(0, I).

    Rows of a Hadamard matrix with random signs of its columns: the mean is exact for all of its rows, which are taken
    if they are few enough.
    """
    order = 1 << max(0, size - 1).bit_length()
    most = max(limits.LIMITS.noise_points, int(limits.LIMITS.noise_numbers / (num_rows * size)))
    rng = np.random.default_rng([SeedPurpose.ROUNDNESS])
    rows = np.arange(order) if order <= most else rng.choice(order, most, replace=False)
    odd = np.bitwise_count(rows[:, None] & np.arange(size)) & 1
    return (1.0 - 2.0 * odd) * (2.0 * rng.integers(2, size=size) - 1.0)


@dataclass(frozen=True)
class _SquaredChange(metric.OfModel):
    """Changes of the rows' gradients from a centre to places, in the coordinates u: their squares, and the changes.

    Last, the squares of the gradients at the centre. `whole`: all products of two coordinates, in place of squares.
    """

    whole: bool

    def numbers_per_row(self, position: PyTree) -> int:
        """Those of a gradient: fewer rows at a time, for their memory."""
        return _tree.size(position[0])

    def total(
        self, position: PyTree, rows: Rows, weights: Array | None = None, key: Key | None = None
    ) -> tuple[Array, Array, Array]:
        """Sums over the rows, and for the squares over the places: (d,) or (d, d), (place, d), (d,) or (d, d)."""
        centre, places, factor = position

        def pulled(place: Params) -> Array:
            each = jax.vmap(lambda tree: ravel_pytree(tree)[0])(self.model.summand.each(place, rows))
            return rows_times(factor, each, transposed=True)

        def squared(values: Array) -> Array:
            weighted = values if weights is None else weights[:, None] * values
            return weighted.T @ values if self.whole else jnp.sum(weighted * values, axis=0)

        here = pulled(centre)

        def add(squares: Array, place: Params) -> tuple[Array, Array]:
            change = pulled(place) - here
            return squares + squared(change), jnp.sum(change, axis=0) if weights is None else weights @ change

        first = squared(here)
        return *jax.lax.scan(add, jnp.zeros_like(first), places), first


def programs(
    model: Model, table: Resident, position: Params, key: Key, noise: bool
) -> list[tuple[Any, tuple[Any, ...]]]:
    """The jitted functions of `scores.roundness`, and of a thorough `measure` (`noise`), with their arguments."""
    flat, back = vector(position)
    size = flat.size
    found: list[Any] = [scores.program(model, table, position, key)]
    if noise and table.num_rows <= _noise_rows(model, table, size, size**2):
        places = back(np.zeros(_round_points(size, table.num_rows).shape))
        of = (position, places, np.zeros((size, size), flat.dtype))
        found.insert(0, table.program(_SquaredChange(model, True), of))
    return found


def _strongest(scales: Scales) -> float:
    """The largest information about a parameter: near a mode it is about the curvature, unless there are kinks."""
    return largest_of(scales.information)


def near_mode(model: Model, table: Table, prepared: Prepared, key: Key) -> Params:
    """A point near the mode: the estimator's, or one found by a short optimisation."""
    if prepared.near_mode or importlib.util.find_spec("optax") is None:
        return prepared.position
    return approach_mode(model, table, prepared.position, key)[0]


def scales_at(
    model: Model,
    parts: Parts,
    table: Table,
    memory: PyTree,
    position: Params,
    factor: Any,
    key: Key,
    thorough: bool = False,
) -> Scales:
    """The content of `Scales`, around `position`, in the coordinates u of θ = θ₀ + L u when there is a factor L.

    `thorough`: use the curvature of all rows where affordable, because a sample of rows may miss or overweight some.
    """
    if factor is not None and factor.shape[0] != _tree.size(position):
        raise InvalidValueError(
            f"`factor` of Preconditioned is for {factor.shape[0]} parameters; there are {_tree.size(position)}."
        )
    measured = _measure(*_measurement(model, parts, table, memory, position, factor, key, thorough))
    largest = curvature_limit(model, table, position, key, factor, thorough=True) if thorough else measured[0]
    if not math.isfinite(float(largest)):
        raise BadStartError("the curvature of the log density is not finite at the starting point.")
    noise, information = jax.device_get(measured[1:])  # what is computed from them is no program of its own
    return Scales(float(largest), noise, information, parts.batching.epoch, factor)


def programs_of_scales(
    model: Model, parts: Parts, table: Resident, memory: PyTree, position: Params, factor: Any, key: Key
) -> list[tuple[Any, tuple[Any, ...]]]:
    """The jitted functions of a thorough `scales_at`, with their arguments."""
    found: list[Any] = [(_measure, _measurement(model, parts, table, memory, position, factor, key, True))]
    if _is_affordable(model, table, position):
        found.append((_curvature_of_all, (model, table.num_rows, table.data, position, factor, key)))
    return found


def _measurement(
    model: Model, parts: Parts, table: Table, memory: PyTree, position: Params, factor: Any, key: Key, thorough: bool
) -> tuple[Any, ...]:
    """The arguments of `_measure`."""
    rows = _rows(table, position)
    points, own = limits.LIMITS.pilot_points, key_for(key, Purpose.PILOT)
    if not table.whole:
        feed = table.feed(jax.random.split(own, 3)[2])
        segment = feed.at(0)
        feed.close()
        points = min(limits.LIMITS.pilot_points, segment.stop)
        parts = parts._replace(data=segment.data, batching=segment.batching)
    exact = next_pass(parts.estimator, 1, table.num_rows) == 1 and not table.whole
    bare: Any = parts._replace(sampler=None)  # type: ignore[arg-type]  # it may hold words in place of numbers
    return model, points, exact, thorough, bare, rows, position, factor, without_value(memory), own


def noise_at(
    model: Model, parts: Parts, table: Table, memory: PyTree, positions: Params, factor: Any, key: Key
) -> PyTree:
    """Variance of one gradient estimate at each of some positions: leaves (position, ...), for each parameter.

    In the coordinates of the sampler, as `scales_at`; estimated from the spread within a batch, a new one per position.
    """
    numbers = jnp.arange(jax.tree.leaves(positions)[0].shape[0])
    if not table.whole:
        feed = table.feed(key)
        segment = feed.at(0)
        feed.close()
        parts = parts._replace(data=segment.data, batching=segment.batching)
        numbers = numbers % segment.stop
    bare: Any = parts._replace(sampler=None)  # type: ignore[arg-type]
    memory = without_value(memory)
    return _noise_at(model, bare, positions, numbers, factor, memory, key)


@setup_program(1)
def _noise_at(
    model: Model, parts: Parts, positions: Params, numbers: Array, factor: Any, memory: PyTree, key: Key
) -> PyTree:
    return jax.lax.map(
        lambda each: _noise_of_batch(model, parts, each[0], factor, memory, key, each[1]), (positions, numbers)
    )


def _noise_of_batch(
    model: Model, parts: Parts, position: Params, factor: Any, memory: PyTree, key: Key, number: Any
) -> PyTree:
    batch = parts.batching.take(parts.data, parts.batching.plan(key, number))
    context = Context(parts.data if parts.resident else None, batch, jnp.asarray(1, jnp.int32))
    estimator = parts.estimator
    if factor is not None and factor.ndim == 2 and factor.shape[0] != factor.shape[1]:
        if not estimator.traits.needs_index:  # a table of the rows' gradients is in the parameters' own coordinates
            return estimator.estimate(_Pulled(model.summand, factor), position, memory, context, "diagonal")[0].noise
        factor = factor[:, 0]
    kind = "diagonal" if factor is None or factor.ndim == 1 else "full"
    estimate = estimator.estimate(model.summand, position, memory, context, kind)[0]
    return _noise_in(factor, estimate.noise, position)


class _Pulled(NamedTuple):
    """Lᵀ f for a summand f."""

    summand: Any
    factor: Any

    def total(self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None) -> PyTree:
        """The sum, in round coordinates."""
        return _pull(self.factor, self.summand.total(position, rows, weights, key))

    def each(self, position: Params, rows: Rows, key: Key | None = None) -> PyTree:
        """The value of each row, in round coordinates."""
        return jax.vmap(partial(_pull, self.factor))(self.summand.each(position, rows, key))


def curvature_limit(
    model: Model, table: Table, position: Params, key: Key, factor: Any = None, thorough: bool = False
) -> float:
    """The largest curvature alone: for advice after a divergence, and for diagnosis."""
    if thorough and isinstance(table, Resident) and _is_affordable(model, table, position):
        return float(_curvature_of_all(model, table.num_rows, table.data, position, factor, key))
    return float(_curvature(model, table.num_rows, _rows(table, position), position, factor, key))


def _is_affordable(model: Model, table: Table, position: Params) -> bool:
    """Whether the curvature of all rows is computed."""
    return table.num_rows * _tree.size(position) * model.facts.row_cost(table.row_spec) <= limits.LIMITS.exact_curvature


def stiffness(model: Model, table: Table, position: Params, sampler: Sampler, eps: PyTree, key: Key) -> float:
    """ε λ in the sampler's coordinates, or ε² λ with a momentum: the largest eigenvalue of √ε H √ε, or of ε H ε."""
    power = 1.0 / core_of(sampler).known.step_order
    spread = jax.tree.map(lambda e, p: jnp.broadcast_to(e**power, p.shape), eps, position)
    roots, factor, largest = ravel_pytree(spread)[0], sampler.known.factor, 1.0
    if factor is None:
        factor = roots
    elif factor.ndim == 2 and factor.shape[0] != factor.shape[1]:
        largest = float(jnp.max(roots)) ** 2  # a diagonal and directions: the largest step stands for all
    else:
        factor = jnp.asarray(factor) * roots  # columns, or entries of a diagonal
    return largest * curvature_limit(model, table, position, key, factor, thorough=True)


@partial(jax.jit, static_argnums=(0, 1))
def _curvature(model: Model, num_rows: int, rows: PyTree, position: Params, factor: Any, key: Key) -> Array:
    gradient = jax.grad(negative_log_posterior(model, num_rows, rows))

    def image(direction: PyTree) -> PyTree:
        return _pull(factor, jax.jvp(gradient, (position,), (_push(factor, direction),))[1])

    return _power_iteration(image, position, key)


@setup_program(2)
def _curvature_of_all(model: Model, num_rows: int, data: PyTree, position: Params, factor: Any, key: Key) -> Array:
    """The largest curvature, by power iteration with Hessian-vector products over all rows, in chunks."""
    summand = Probed(model.summand)

    def image(direction: PyTree) -> PyTree:
        pushed = _push(factor, direction)
        _, likelihood = full_sum(summand, (position, pushed), data, num_rows)
        prior = jax.jvp(jax.grad(model.log_prior_density), (position,), (pushed,))[1]
        return _pull(factor, _tree.scale(-1.0, _tree.add(likelihood, prior)))

    return _power_iteration(image, position, key)


def _power_iteration(image: Callable[[PyTree], PyTree], like: PyTree, key: Key) -> Array:
    """The largest |eigenvalue| of a symmetric linear map."""

    def iterate(_: Array, carry: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
        found = image(carry[0])
        length = _tree.norm(found)
        return _tree.scale(1.0 / jnp.maximum(length, 1e-30), found), length

    direction = _tree.normal_like(key, like)
    direction = _tree.scale(1.0 / _tree.norm(direction), direction)
    return jax.lax.fori_loop(0, _POWER_STEPS, iterate, (direction, _tree.norm(direction)))[1]


def _push(factor: Any, u: PyTree) -> PyTree:
    return u if factor is None else times(factor, u)


def _pull(factor: Any, gradient: PyTree) -> PyTree:
    return gradient if factor is None else times(factor, gradient, transposed=True)


@setup_program(4)
def _measure(
    model: Model,
    points: int,
    exact: bool,
    noise_alone: bool,
    parts: Parts,
    rows: PyTree,
    position: Params,
    factor: Any,
    memory: PyTree,
    key: Key,
) -> tuple[Array, PyTree, PyTree]:
    """The largest curvature (0 with `noise_alone`), the noise at typical points, and the rows' information."""
    power_key, point_key, batch_key = jax.random.split(key, 3)
    each = model.summand.each(position, rows)
    if factor is not None:
        each = jax.vmap(partial(_pull, factor))(each)
    squares = jax.tree.map(lambda g: jnp.mean(g * g, axis=0), each)
    information = _tree.scale(parts.batching.num_rows, squares)
    mean = _tree.vdot(information, jax.tree.map(jnp.ones_like, information)) / _tree.size(information)
    deviation = jax.tree.map(lambda f: 1.0 / jnp.sqrt(jnp.maximum(f, 1e-3 * mean) + 1e-30), information)
    if factor is not None:  # in these coordinates the posterior standard deviations are about 1
        deviation = jax.tree.map(jnp.ones_like, position)

    def noise_at(number: Array) -> PyTree:
        xi = _tree.normal_like(jax.random.fold_in(point_key, number), position)
        away = _push(factor, jax.tree.map(jnp.multiply, deviation, xi))
        return _noise_of_batch(model, parts, _tree.add(position, away), factor, memory, batch_key, number)

    curvature = jnp.zeros(())
    if not noise_alone:
        curvature = _curvature(model, parts.batching.num_rows, rows, position, factor, power_key)
    if exact:  # every estimate is a pass over all rows
        return curvature, _tree.zeros_like(position), information
    noise = jax.lax.map(noise_at, jnp.arange(points))
    return curvature, jax.tree.map(lambda v: v.mean(axis=0), noise), information


def _noise_in(factor: Any, noise: PyTree, position: Params) -> PyTree:
    """The diagonal of LᵀVL, as a tree like the parameters."""
    if factor is None:
        return noise
    if factor.ndim == 1:
        return times(factor**2, noise)
    unravel = ravel_pytree(position)[1]
    return unravel(jnp.sum(factor * (noise @ factor), axis=0).astype(ravel_pytree(position)[0].dtype))


def _rows(table: Table, position: Params) -> PyTree:
    """Rows spread evenly over the data."""
    count = max(2, min(limits.LIMITS.pilot_rows, limits.LIMITS.gradient_numbers // _tree.size(position)))
    return table.spread_rows(min(count, table.num_rows))
