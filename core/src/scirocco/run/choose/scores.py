"""Scores, the gradients of the log posterior, at many places: how far they are from those of a Gaussian."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from scirocco import _tree
from scirocco._programs import setup_program
from scirocco._random import Purpose, SeedPurpose, key_for
from scirocco.data import Table
from scirocco.estimators.newton import look, negative_log_posterior, vector
from scirocco.model import Model, Posterior
from scirocco.run.choose import limits
from scirocco.samplers.preconditioned import rows_times
from scirocco.types import Array, Key, Params, PyTree

_MOVES = 2
"""How often `roundness` moves to the centre of the Gaussian that fits the scores."""


def roundness(model: Model, table: Table, position: Params, factor: Any, key: Key) -> float:
    """How far the posterior is from a Gaussian with mode `position` and covariance LLᵀ; 0: it is one.

    In its coordinates u the score of the Gaussian is -u. At draws from it, the mean square of what a straight line in
    each coordinate leaves of the posterior's score: for a posterior of skewness κ about ½κ². If the lines are those of
    a Gaussian elsewhere, around its centre. At least 1 if there is none near, or it has another width (twice).

    An L of a diagonal and a few directions fits a Gaussian only roughly, and what it leaves adds up over many
    parameters: the linear part of the score is then taken from the curvature at the mode, whatever L is.
    """
    kind, count = (
        (np.float64, limits.LIMITS.scores)
        if _tree.size(position) <= limits.LIMITS.double_precision
        else (np.float32, limits.LIMITS.scores_of_many)
    )
    flat, factor = vector(position)[0].astype(kind), np.asarray(factor, kind)
    u = np.random.default_rng([SeedPurpose.ROUNDNESS]).standard_normal((count, flat.size), kind)
    u[0] = 0.0
    dense, of_sample = factor.ndim == 2 and factor.shape[0] == factor.shape[1], 0.0
    if dense:
        read = min(table.num_rows, scored_rows(model, table, flat.size))
        of_sample = 2 * flat.size / read * (1 - read / table.num_rows)

    def pulled_at(places: np.ndarray) -> np.ndarray:
        changes = rows_times(factor, places)
        if dense:
            scores = scores_at(model, table, position, flat + changes, key)
            return rows_times(factor, scores, transposed=True)
        return rows_times(factor, _bends_at(model, table, position, changes, key), transposed=True) - places

    centre: np.ndarray = np.zeros(flat.size, kind)
    here, left = None, math.inf
    for _ in range(1 + _MOVES):
        pulled = pulled_at(centre + u)
        here = pulled[0] if here is None else here  # `position` need not be the mode to the last digit
        line = _line(u[1:], pulled[1:] - here)
        if line is None:
            return math.inf
        slope, shift, left = line[0], line[1], max(0.0, line[2] - of_sample)
        if not (limits.LIMITS.too_slack < np.min(slope) and np.max(slope) < limits.LIMITS.too_stiff):
            return max(left, 1.0)
        if np.max(np.abs(shift)) < limits.LIMITS.shifted:
            return left
        centre = centre + shift / slope
    return max(left, 1.0)


def stiffness_in_tails(model: Model, table: Table, position: Params, factor: Any, key: Key) -> float:
    """The curvature of the posterior where it is the largest, in its coordinates u: 1 if it is Gaussian.

    Moments, and the noise of batches, carry chains some standard deviations away: there the curvature grows in the
    direction in which the posterior is skewed. It is found from the best of some draws by the power iteration of the
    third derivative, v ← T(v, v), where score(rv) ≈ -rv - r² T(v, v) / 2.
    """
    flat, factor = vector(position)[0].astype(np.float64), np.asarray(factor, np.float64)
    far, step = limits.LIMITS.tails, 1.0
    if factor.ndim != 2 or factor.shape[0] != factor.shape[1]:
        return 1.0

    def pulled_at(places: np.ndarray) -> np.ndarray:
        scores = scores_at(model, table, position, flat + rows_times(factor, places), key)
        return rows_times(factor, scores, transposed=True)

    u = np.random.default_rng([SeedPurpose.ROUNDNESS, 1]).standard_normal((limits.LIMITS.scores, flat.size))
    v = u / np.linalg.norm(u, axis=1, keepdims=True)
    for keep in limits.LIMITS.tail_searches:
        here, *there = pulled_at(np.vstack([np.zeros(flat.size), far / 2 * v]))
        bend = here - np.array(there) - far / 2 * v
        best = np.argsort(-np.sum(bend * v, axis=1))[:keep]
        lengths = np.linalg.norm(bend[best], axis=1, keepdims=True)
        if not np.all(np.isfinite(bend[best])) or np.max(lengths) < limits.LIMITS.straight:
            break
        v = bend[best] / np.maximum(lengths, limits.LIMITS.straight)
    inner, outer = np.split(pulled_at(np.vstack([(far - step) * v, far * v])), 2)
    steep = np.sum((inner - outer) * v, axis=1) / step
    return float(np.max(np.nan_to_num(steep, posinf=math.inf), initial=1.0))


def _line(u: np.ndarray, pulled: np.ndarray) -> tuple[np.ndarray, np.ndarray, float] | None:
    """The line -slope · u + shift through the scores in each coordinate, and the largest mean square around it."""
    if not np.all(np.isfinite(pulled)):
        return None
    centred = u - u.mean(axis=0)
    slope = -np.sum(centred * pulled, axis=0) / np.sum(centred**2, axis=0)
    shift = pulled.mean(axis=0) + slope * u.mean(axis=0)
    return slope, shift, float(np.max(np.mean((pulled + slope * u - shift) ** 2, axis=0)))


def _bends_at(model: Model, table: Table, centre: Params, changes: np.ndarray, key: Key) -> np.ndarray:
    """What is not linear in the change of the score from `centre` to each of some places, on a sample of rows."""
    flat, back = vector(centre)
    rows = table.random_rows(scored_rows(model, table, flat.size), key_for(key, Purpose.ROUNDNESS), False)
    return _tree.matrix(_bends(model, table.num_rows, rows, centre, back(changes)), changes.dtype)


@setup_program(2)
def _bends(model: Model, num_rows: int, rows: PyTree, centre: Params, changes: Params) -> PyTree:
    slope = jax.grad(negative_log_posterior(model, num_rows, rows))
    here, along = jax.linearize(slope, centre)

    def bend(change: Params) -> PyTree:
        there = slope(_tree.add(centre, change))
        return jax.tree.map(lambda a, b, c: a + b - c, here, along(change), there)

    return jax.lax.map(bend, changes)


def flat_positions(model: Posterior, draws: Params, dtype: Any = np.float64) -> np.ndarray:
    """Draws in the user's units, leaves (chain, draw, ...), as numbers on the real line (chain, draw, d)."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(draws)]
    facts = model.facts
    if facts.transforms is None and facts.has_density:  # on the real line: no program is needed
        together = [leaf.reshape(*leaf.shape[:2], -1) for leaf in leaves]
        return np.asarray(together[0] if len(together) == 1 else np.concatenate(together, axis=2), dtype)
    return np.asarray(_flat_positions(model, jax.tree.unflatten(jax.tree.structure(draws), leaves)), dtype)


@partial(jax.jit, static_argnums=0)
def _flat_positions(model: Posterior, draws: Params) -> Array:
    return jax.vmap(jax.vmap(lambda one: ravel_pytree(model.unconstrain(one))[0]))(draws)


def scores_at(model: Model, table: Table, centre: Params, positions: np.ndarray, key: Key) -> np.ndarray:
    """∇ log posterior at each of some positions (position, d), on the real line.

    Of many rows a sample is used: the exact gradient at `centre` and the change from there over the sample.
    """
    flat, back = vector(centre)
    affordable = scored_rows(model, table, flat.size)
    rows = table.random_rows(affordable, key_for(key, Purpose.ROUNDNESS), False)

    program = _scores.of(model, table.num_rows)

    def scores_on_rows(some: np.ndarray) -> np.ndarray:
        padded = back(np.resize(some, (limits.LIMITS.scores, flat.size)))
        return _tree.matrix(program(rows, padded), positions.dtype)[: len(some)]

    found = [
        scores_on_rows(positions[begin : begin + limits.LIMITS.scores])
        for begin in range(0, len(positions), limits.LIMITS.scores)
    ]
    scores = np.concatenate(found)
    if table.num_rows <= affordable:
        return scores
    exact = look(model, table, centre).gradient
    return scores - scores_on_rows(flat[None]) + vector(exact)[0].astype(positions.dtype)


def scored_rows(model: Posterior, table: Table, size: int) -> int:
    """Rows that are used for a score of so many parameters."""
    size, cost = max(1, size), model.facts.row_cost(table.row_spec)
    if cost > 1:
        return max(limits.LIMITS.least_rows, int(limits.LIMITS.score_work / (size * cost)))
    numbers = table.num_rows * sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(table.row_spec))
    if (
        numbers <= limits.LIMITS.score_work and table.num_rows * size <= limits.LIMITS.sparse_work
    ):  # few numbers, of many groups
        return table.num_rows
    many = min(limits.LIMITS.rows_per_parameter * size, limits.LIMITS.most_score_work // size)
    return max(least_rows(size), limits.LIMITS.score_work // size, many)


def least_rows(size: int) -> int:
    """The fewest rows from which something is computed for so many parameters."""
    return max(64, min(limits.LIMITS.least_rows, limits.LIMITS.least_work // max(1, size)))


@setup_program(2)
def _scores(model: Model, num_rows: int, rows: PyTree, positions: Params) -> PyTree:
    slope = jax.grad(negative_log_posterior(model, num_rows, rows))
    return jax.lax.map(lambda at: _tree.scale(-1.0, slope(at)), positions)


def program(model: Model, table: Table, position: Params, key: Key) -> tuple[Any, tuple[Any, ...]]:
    """The jitted function of `scores_at`, with its arguments, so that it can be compiled beforehand."""
    flat, back = vector(position)
    rows = table.random_rows(scored_rows(model, table, flat.size), key_for(key, Purpose.ROUNDNESS), False)
    return _scores, (model, table.num_rows, rows, back(np.zeros((limits.LIMITS.scores, flat.size))))
