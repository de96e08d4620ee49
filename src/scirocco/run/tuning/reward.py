"""The criterion: the kernel Stein discrepancy of a candidate's draws, in coordinates that make the posterior round.

Gradients at the draws are control-variate estimates around the mode, from separate rows: for each draw the exact
gradient at the mode plus the scaled change over a block of rows. They are unbiased, and independent of the draw, so the
mean of the Stein kernel over pairs of different draws is correct for any noise; pairs of a draw with itself add
the same amount for all candidates, because they are evaluated on the same rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from scirocco._programs import setup_program
from scirocco._random import Purpose, key_for
from scirocco._stein import stein_kernel
from scirocco.data import Table
from scirocco.model import Model
from scirocco.types import Array, Key, Params, PyTree, Rows

_ROWS = 16_384
_BLOCK = 1_024
_EXACT = 2_048
"""Maximum number of rows for which gradients are exact."""
_PAIRS = 2_048


class Judge(NamedTuple):
    """The inputs of the gradients at draws."""

    centre: Params
    gradient: PyTree
    """∇ log posterior at the centre, exact."""
    rows: Rows
    """Random rows, of which every draw uses a block."""
    scale: Any
    """N over the rows in a block."""
    factor: Array
    inverse: Array
    temperature: Any
    """T: the target is posterior^(1/T)."""


def make_judge(
    model: Model, table: Table, centre: Params, factor: Any, inverse: Any, temperature: Any, key: Key
) -> Judge:
    """One pass for the exact gradient at the centre, and a sample of rows."""
    total = table.sum(model.summand, centre)
    exact = table.num_rows <= _EXACT
    rows = table.random_rows(_EXACT if exact else _ROWS, key_for(key, Purpose.REWARD_ROWS), False)
    block = table.num_rows if exact else _BLOCK
    # blocks wrap around the end, so that all rows have the same weight
    gradient, rows = _gradient_and_rows(model, 0 if exact else block - 1, centre, total, rows)
    return Judge(
        centre,
        gradient,
        rows,
        table.num_rows / block,
        jnp.asarray(factor),
        jnp.asarray(inverse),
        temperature,
    )


@setup_program(0, 1)
def _gradient_and_rows(
    model: Model, repeated: int, centre: Params, total: PyTree, rows: Rows
) -> tuple[PyTree, Rows]:
    """The gradient of the log posterior, and the rows with the first ones repeated at the end."""
    longer = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf[:repeated]]), rows)
    return model.combine(centre, total), longer


def discrepancies(model: Model, block: int, replicates: int, judge: Judge, draws: Params, key: Key) -> Array:
    """KSD² of each candidate, over all pairs (V-statistic): never negative.

    `draws`: in the units of the user, leaves (lanes, draws, ...); `replicates` consecutive lanes are chains of one
    candidate, and lanes that are left over at the end are not used.
    """
    return _pooled(replicates, *_rounded(model, block, judge, draws, key))


@setup_program(0, 1)
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


@setup_program(0)
def _pooled(replicates: int, x: Array, s: Array) -> Array:
    lanes, count, size = x.shape
    candidates = lanes // replicates
    pooled = (candidates, replicates * count, size)
    x, s = (leaf[: candidates * replicates].reshape(pooled) for leaf in (x, s))
    with jax.default_matmul_precision("highest"):  # distances are differences of large products
        return jax.lax.map(_mean_over_pairs, (x, s))


def block_of(judge: Judge) -> int:
    """The rows from which a gradient is computed."""
    total = jax.tree.leaves(judge.rows)[0].shape[0]
    return total if total <= _EXACT else _BLOCK


def gradients(model: Model, block: int, judge: Judge, draws: Params, key: Key) -> PyTree:
    """For draw number t of every lane: the gradient from block number t of rows."""
    count = jax.tree.leaves(draws)[0].shape[1]
    total = jax.tree.leaves(judge.rows)[0].shape[0]
    offsets = jax.random.randint(key, (count,), 0, total - block + 1)

    def one(numbered: tuple[Array, Params]) -> PyTree:
        offset, positions = numbered
        rows = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, offset, block), judge.rows)
        there = model.summand.total(judge.centre, rows)
        prior_there = jax.grad(model.log_prior_density)(judge.centre)

        def at(position: Params) -> PyTree:
            here = model.summand.total(position, rows)
            prior = jax.grad(model.log_prior_density)(position)
            return jax.tree.map(
                lambda g, a, b, p, q: g + judge.scale * (a - b) + (p - q),
                judge.gradient,
                here,
                there,
                prior,
                prior_there,
            )

        return jax.vmap(at)(positions)

    swapped = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), draws)
    found = jax.lax.map(one, (offsets, swapped))
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), found)


def _mean_over_pairs(pair: tuple[Array, Array]) -> Array:
    """V-statistic of the Stein kernel, in stripes so that memory stays small."""
    x, s = pair
    count, size = x.shape
    scale = jnp.sqrt(
        jnp.asarray(2.0 * size, x.dtype)
    )  # about the median distance where the posterior is round
    stripe = min(count, _PAIRS)
    stripes = -(-count // stripe)
    padded = stripes * stripe - count
    rows = jnp.pad(x, ((0, padded), (0, 0))).reshape(stripes, stripe, size)
    scores = jnp.pad(s, ((0, padded), (0, 0))).reshape(stripes, stripe, size)
    real = (jnp.arange(stripes * stripe) < count).reshape(stripes, stripe)

    def one(part: tuple[Array, Array, Array]) -> Array:
        x_part, s_part, there = part
        return jnp.sum(there * stein_kernel(jnp, x_part, s_part, x, s, scale).sum(axis=1))

    return jnp.sum(jax.lax.map(one, (rows, scores, real))) / count**2
