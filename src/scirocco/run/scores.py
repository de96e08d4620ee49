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
from scirocco.estimators.newton import look, negative_log_posterior
from scirocco.model import Model, Posterior
from scirocco.run import metric
from scirocco.samplers.preconditioned import rows_times
from scirocco.types import Array, Key, Params, PyTree

_SCORES, _SCORE_WORK, _LEAST_ROWS, _LEAST_WORK = 64, 4_000_000, 1_024, 1 << 26
"""Scores computed at a time, the maximum of rows × parameters for each, the fewest rows, and their maximum."""
_FEW_SCORES = 16
"""The number of scores for the shape of very many parameters."""
_SPARSE_WORK = 10**9
_ROWS_PER_PARAMETER, _MOST_SCORE_WORK = 16, 64_000_000
"""More rows where there are many parameters: the sample adds d/n to the mean square of a score."""
_SHIFTED = 0.5
ROUND_ENOUGH = 1.0
"""`roundness` up to which the curvature at the mode says something about the posterior's shape."""


def roundness(model: Model, table: Table, position: Params, factor: Any, key: Key) -> float:
    """How far the posterior is from a Gaussian with mode `position` and covariance LLᵀ; 0: it is one.

    In its coordinates u the score of the Gaussian is -u. At draws from it, the mean square of what a straight line in
    each coordinate leaves of the posterior's score: for a posterior of skewness κ about ½κ². At least 1 if the lines
    are those of a Gaussian elsewhere (half a standard deviation) or of another width (twice).

    An L of a diagonal and a few directions fits a Gaussian only roughly, and what it leaves adds up over many
    parameters: the linear part of the score is then taken from the curvature at the mode, whatever L is.
    """
    kind, count = (
        (np.float64, _SCORES) if _tree.size(position) <= metric.DOUBLE else (np.float32, _FEW_SCORES)
    )
    flat, factor = _tree.vector(position)[0].astype(kind), np.asarray(factor, kind)
    u = np.random.default_rng([SeedPurpose.ROUNDNESS]).standard_normal((count, flat.size), kind)
    u[0] = 0.0
    changes, of_sample = rows_times(factor, u), 0.0
    if factor.ndim == 2 and factor.shape[0] == factor.shape[1]:
        pulled = rows_times(factor, scores_at(model, table, position, flat + changes, key), transposed=True)
        read = min(table.num_rows, _scored_rows(model, table, flat.size))
        of_sample = 2 * flat.size / read * (1 - read / table.num_rows)
    else:
        pulled = rows_times(factor, _bends_at(model, table, position, changes, key), transposed=True) - u
    u, pulled = u[1:], pulled[1:] - pulled[0]  # `position` need not be the mode to the last digit
    if not np.all(np.isfinite(pulled)):
        return math.inf
    centred = u - u.mean(axis=0)
    slope = -np.sum(centred * pulled, axis=0) / np.sum(centred**2, axis=0)
    shift = pulled.mean(axis=0) + slope * u.mean(axis=0)
    left = float(np.max(np.mean((pulled + slope * u - shift) ** 2, axis=0)))
    left = max(0.0, left - of_sample)
    near = np.max(np.abs(shift)) < _SHIFTED and 0.25 < np.min(slope) and np.max(slope) < 4
    return left if near else max(left, 1.0)


def _bends_at(model: Model, table: Table, centre: Params, changes: np.ndarray, key: Key) -> np.ndarray:
    """What is not linear in the change of the score from `centre` to each of some places, on a sample of rows."""
    flat, back = _tree.vector(centre)
    rows = table.random_rows(_scored_rows(model, table, flat.size), key_for(key, Purpose.ROUNDNESS), False)
    return _tree.matrix(_bends(model, table.num_rows, rows, centre, back(changes)), changes.dtype)


@setup_program(0, 1)
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
    if (
        model.facts.transforms is None and model.facts.has_density
    ):  # they are on the real line, and need no program
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
    flat, back = _tree.vector(centre)
    affordable = _scored_rows(model, table, flat.size)
    rows = table.random_rows(affordable, key_for(key, Purpose.ROUNDNESS), False)

    def scores_on_rows(some: np.ndarray) -> np.ndarray:
        padded = back(np.resize(some, (_SCORES, flat.size)))
        return _tree.matrix(_scores(model, table.num_rows, rows, padded), positions.dtype)[: len(some)]

    found = [
        scores_on_rows(positions[begin : begin + _SCORES]) for begin in range(0, len(positions), _SCORES)
    ]
    scores = np.concatenate(found)
    if table.num_rows <= affordable:
        return scores
    exact = look(model, table, centre).gradient
    return scores - scores_on_rows(flat[None]) + _tree.vector(exact)[0].astype(positions.dtype)


def _scored_rows(model: Posterior, table: Table, size: int) -> int:
    """Rows that are used for a score of so many parameters."""
    size, cost = max(1, size), model.facts.row_cost(table.row_spec)
    if cost > 1:
        return max(_LEAST_ROWS, int(_SCORE_WORK / (size * cost)))
    numbers = table.num_rows * sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(table.row_spec))
    if numbers <= _SCORE_WORK and table.num_rows * size <= _SPARSE_WORK:  # few numbers, of many groups
        return table.num_rows
    many = min(_ROWS_PER_PARAMETER * size, _MOST_SCORE_WORK // size)
    return max(least_rows(size), _SCORE_WORK // size, many)


def least_rows(size: int) -> int:
    """The fewest rows from which something is computed for so many parameters."""
    return max(64, min(_LEAST_ROWS, _LEAST_WORK // max(1, size)))


@setup_program(0, 1)
def _scores(model: Model, num_rows: int, rows: PyTree, positions: Params) -> PyTree:
    slope = jax.grad(negative_log_posterior(model, num_rows, rows))
    return jax.lax.map(lambda at: _tree.scale(-1.0, slope(at)), positions)


def program(model: Model, table: Table, position: Params, key: Key) -> tuple[Any, tuple[Any, ...]]:
    """The jitted function of `scores_at`, with its arguments, so that it can be compiled beforehand."""
    flat, back = _tree.vector(position)
    rows = table.random_rows(_scored_rows(model, table, flat.size), key_for(key, Purpose.ROUNDNESS), False)
    return _scores, (model, table.num_rows, rows, back(np.zeros((_SCORES, flat.size))))
