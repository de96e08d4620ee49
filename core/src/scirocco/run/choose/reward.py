"""The criterion: the kernel Stein discrepancy of a candidate's draws, in coordinates that make the posterior round.

Gradients at the draws are control-variate estimates around the mode, from separate rows: for each draw the exact
gradient at the mode plus the scaled change over a block of rows. They are unbiased, and independent of the draw, so the
mean of the Stein kernel over pairs of different draws is correct for any noise; pairs of a draw with itself add
the same amount for all candidates, because they are evaluated on the same rows.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from scirocco._programs import setup_loop_program
from scirocco._random import Purpose, key_for
from scirocco._stein import stein_kernel
from scirocco.data import Table
from scirocco.estimators.newton import look
from scirocco.model import Model
from scirocco.types import Array, Key, Params, PyTree, Rows

_ROWS, _BLOCK = 16_384, 1_024
"""Random rows from which the gradients at draws come, and those of them that each draw uses."""
_EXACT = 2_048
"""Maximum number of rows for which gradients are exact."""


class Judge(NamedTuple):
    """The inputs of the gradients at draws."""

    centre: Params
    gradient: PyTree
    """∇ log posterior at the centre, exact."""
    rows: Rows
    """Random rows, of which every draw uses a block; blocks wrap around the end."""
    scale: Any
    """N over the rows in a block."""
    factor: Array
    inverse: Array
    temperature: Any
    """T: the target is posterior^(1/T)."""


def make_judge(
    model: Model,
    table: Table,
    centre: Params,
    factor: Any,
    inverse: Any,
    temperature: Any,
    key: Key,
    gradient: PyTree | None = None,
) -> Judge:
    """The exact gradient at the centre, if it is not known from one pass, and a sample of rows."""
    if gradient is None:
        gradient = look(model, table, centre).gradient
    exact = table.num_rows <= _EXACT
    rows = table.random_rows(_EXACT if exact else _ROWS, key_for(key, Purpose.REWARD_ROWS), False)
    block = table.num_rows if exact else _BLOCK
    return Judge(centre, gradient, rows, table.num_rows / block, factor, inverse, temperature)


def discrepancies(model: Model, judge: Judge, replicates: int, draws: Params, key: Key) -> np.ndarray:
    """KSD² of each candidate, over all pairs (V-statistic): never negative.

    `draws`: in the units of the user, leaves (lanes, draws, ...); `replicates` consecutive lanes are chains of one
    candidate, and lanes that are left over at the end are not used.
    """
    function, arguments = program(model, judge, replicates, draws, key)
    lanes, count = jax.tree.leaves(draws)[0].shape[:2]
    return np.asarray(function(*arguments))[: lanes // replicates] / (replicates * count) ** 2


def program(model: Model, judge: Judge, replicates: int, draws: Params, key: Key) -> tuple[Any, tuple[Any, ...]]:
    """The jitted function of `discrepancies`, and its arguments."""
    lanes = jax.tree.leaves(draws)[0].shape[0]
    own = np.arange(lanes) // replicates
    both = np.argwhere(np.triu(own[:, None] == own) & (own < lanes // replicates))
    pairs = np.zeros((lanes * (lanes + 1) // 2, 3), np.int32)  # one program for any number of replicates
    pairs[: len(both)] = np.column_stack([both, own[both[:, 0]]])
    return _sums_over_pairs, (model, block_of(judge), judge, draws, key, pairs, len(both))


@setup_loop_program(2)
def _sums_over_pairs(
    model: Model, block: int, judge: Judge, draws: Params, key: Key, pairs: Array, num_pairs: Any
) -> Array:
    """The sum of the Stein kernel over all pairs of draws of each candidate.

    `pairs`: two lanes and their candidate; a pair of different lanes stands for both orders.
    """
    x, s = _rounded(model, block, judge, draws, key)
    # about the median distance where the posterior is round
    scale = jnp.sqrt(jnp.asarray(2.0 * x.shape[2], x.dtype))

    def add(number: Array, sums: Array) -> Array:
        a, b, candidate = pairs[number]
        found = jnp.sum(stein_kernel(jnp, x[a], s[a], x[b], s[b], scale))
        return sums.at[candidate].add(jnp.where(a == b, 1.0, 2.0) * found)

    with jax.default_matmul_precision("highest"):  # distances are differences of large products
        return jax.lax.fori_loop(0, num_pairs, add, jnp.zeros(x.shape[0], x.dtype))


def _rounded(model: Model, block: int, judge: Judge, draws: Params, key: Key) -> tuple[Array, Array]:
    """Draws and their scores as vectors, in the coordinates that make the posterior round."""
    with jax.default_matmul_precision("highest"):
        draws = jax.vmap(jax.vmap(model.unconstrain))(draws)
        scores = gradients(model, block, judge, draws, key)
        flat = jax.vmap(jax.vmap(lambda tree: ravel_pytree(tree)[0]))
        x = flat(jax.tree.map(lambda leaf, c: leaf - c, draws, judge.centre))
        s = flat(scores) / judge.temperature
        if judge.factor.ndim == 1:
            return x * judge.inverse, s * judge.factor
        return x @ judge.inverse.T, s @ judge.factor


def block_of(judge: Judge) -> int:
    """The rows from which a gradient is computed."""
    total = jax.tree.leaves(judge.rows)[0].shape[0]
    return total if total <= _EXACT else _BLOCK


def gradients(model: Model, block: int, judge: Judge, draws: Params, key: Key) -> PyTree:
    """For draw number t of every lane: the gradient from block number t of rows."""
    count = jax.tree.leaves(draws)[0].shape[1]
    # the first rows again at the end: in as many blocks as the others
    total = jax.tree.leaves(judge.rows)[0].shape[0]
    repeated = 0 if block == total else block - 1
    longer = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf[:repeated]]), judge.rows)
    offsets = jax.random.randint(key, (count,), 0, total + repeated - block + 1)

    def one(numbered: tuple[Array, Params]) -> PyTree:
        offset, positions = numbered
        rows = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, offset, block), longer)
        there = _parts(model, rows, judge.centre)
        return jax.vmap(partial(_gradient, model, judge, rows, there))(positions)

    swapped = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), draws)
    found = jax.lax.map(one, (offsets, swapped))
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), found)


def _parts(model: Model, rows: PyTree, position: Params) -> tuple[PyTree, PyTree]:
    """Gradients of the log likelihood of these rows and of the log prior."""
    return model.summand.total(position, rows), jax.grad(model.log_prior_density)(position)


def _gradient(model: Model, judge: Judge, rows: PyTree, there: tuple[PyTree, PyTree], position: Params) -> PyTree:
    """The gradient at the centre plus the change from there, on these rows."""
    here = _parts(model, rows, position)
    return jax.tree.map(
        lambda g, a, b, p, q: g + judge.scale * (a - b) + (p - q),
        *(judge.gradient, here[0], there[0], here[1], there[1]),
    )
