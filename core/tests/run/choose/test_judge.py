"""The judge of tuning: the Stein discrepancy of `analysis.ksd`, in the posterior's own coordinates, without bias."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import scirocco as sc
from scirocco.analysis import ksd
from scirocco.data import ArraySource, Resident
from scirocco.data.batching import IndependentRows
from scirocco.run.choose import reward

KEY = jax.random.key(2)
MODEL = sc.Model(
    lambda params, row: -0.5 * ((row["y"] - row["x"] @ params["slopes"]) / params["sd"]) ** 2 - jnp.log(params["sd"]),
    lambda params: -0.05 * jnp.sum(params["slopes"] ** 2) - params["sd"],
    transforms={"slopes": None, "sd": sc.transforms.positive},
)
SIZE = 3
pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]


def table_of(num_rows, seed=0):
    """Rows in ascending order of their weight: those near the ends count most and least."""
    rng = np.random.default_rng([seed, 4])
    x = rng.normal(size=(num_rows, 2)) * np.linspace(0.0, 3.0, num_rows)[:, None]
    y = x @ np.array([1.0, -0.5]) + 0.7 * rng.normal(size=num_rows)
    arrays = {"x": x.astype(np.float32), "y": y.astype(np.float32)}
    batching = IndependentRows(num_rows, 10, replace=True)
    return Resident(jax.tree.map(jnp.asarray, ArraySource(arrays).arrays), batching)


CENTRE = {"slopes": jnp.array([1.0, -0.5]), "sd": jnp.asarray(0.7)}


def judge_of(table, dense=True):
    """With some L, about as wide as the posterior."""
    width = 0.7 / np.sqrt(table.num_rows)
    factor = width * (np.tri(SIZE) if dense else np.array([0.5, 1.0, 2.0]))
    inverse = np.linalg.inv(factor) if dense else 1 / factor
    args = (np.asarray(f, np.float32) for f in (factor, inverse))
    return reward.make_judge(MODEL, table, MODEL.unconstrain(CENTRE), *args, 1.0, KEY), factor


def positions(shape, width, seed):
    """On the real line, around the centre."""
    flat, unravel = ravel_pytree(MODEL.unconstrain(CENTRE))
    noise = np.random.default_rng([seed, 5]).normal(size=(*shape, SIZE)).astype(np.float32)
    return jax.vmap(jax.vmap(unravel))(flat + width * noise)


def gradients(table, at):
    """∇ log posterior over all rows."""
    return jax.jit(jax.vmap(jax.vmap(lambda p: ravel_pytree(MODEL.combine(p, MODEL.summand.total(p, table.data)))[0])))(
        at
    )


@pytest.mark.rotates(2)
@pytest.mark.parametrize("dense", [True, False], ids=["matrix", "diagonal"])
def test_it_is_ksd_in_whitened_coordinates(dense, seed):
    """Exact gradients, scale √(2d), all pairs, pooled over chains, by one program; a lane may be left over."""
    table = table_of(600, seed)
    judge, factor = judge_of(table, dense)
    assert reward.block_of(judge) == 600
    lanes, count = 4, 41
    at = positions((lanes, count), 0.05, seed)
    draws = jax.vmap(jax.vmap(MODEL.constrain))(at)
    flat = np.asarray(jax.vmap(jax.vmap(lambda tree: ravel_pytree(tree)[0]))(at), np.float64)
    away, slopes = (flat - np.asarray(ravel_pytree(judge.centre)[0]), np.asarray(gradients(table, at), np.float64))
    matrix = factor if dense else np.diag(factor)
    u, s = away @ np.linalg.inv(matrix).T, slopes @ matrix
    for replicates in (1, 2, 3):
        found = reward.discrepancies(MODEL, judge, replicates, draws, KEY)
        used = lanes // replicates * replicates
        pooled = (lanes // replicates, -1, SIZE)
        exact = [
            ksd(x, g, scale=np.sqrt(2 * SIZE), standardise=False, unbiased=False).squared
            for x, g in zip(u[:used].reshape(pooled), s[:used].reshape(pooled), strict=True)
        ]
        np.testing.assert_allclose(found, exact, rtol=2e-3, atol=2e-3 * np.mean(s**2))


def test_blocks_of_rows_have_no_bias(seed, monkeypatch):
    """The average over all blocks is the exact gradient: rows at both ends are in as many blocks as the others."""
    num_rows = 2_049  # not a whole number of blocks
    table = table_of(num_rows, seed)
    judge, _ = judge_of(table)
    block = reward.block_of(judge)
    assert block == 1_024
    seen = []

    def every_offset(key, shape, low, high):
        seen.append((shape, low, high))
        return jnp.arange(low, high)

    monkeypatch.setattr(jax.random, "randint", every_offset)
    at = positions((1, 1), 0.1, seed)
    repeated = jax.tree.map(lambda leaf: jnp.repeat(leaf, num_rows, axis=1), at)
    found = reward.gradients(MODEL, block, judge, repeated, KEY)
    assert seen == [((num_rows,), 0, num_rows)]
    each = np.concatenate([np.asarray(leaf, np.float64).reshape(num_rows, -1) for leaf in jax.tree.leaves(found)], 1)
    exact = np.asarray(gradients(table, at), np.float64)[0, 0]
    spread = each.std(axis=0)
    assert np.all(spread > 0.01 * np.abs(exact))  # single blocks differ, so there is something to average
    np.testing.assert_allclose(each.mean(axis=0), exact, rtol=1e-3, atol=5e-3 * np.max(spread))


def test_of_many_rows_some_are_taken_once():
    """16,384 different ones."""
    rows = jnp.arange(20_000, dtype=jnp.float32)
    table = Resident(rows, IndependentRows(20_000, 10, replace=True))
    model = sc.Model(lambda mu, row: -0.5 * (mu - row) ** 2)
    judge = reward.make_judge(model, table, jnp.asarray(0.0), np.ones(1), np.ones(1), 1.0, KEY)
    assert judge.rows.shape == (16_384,)
    assert len(np.unique(np.asarray(judge.rows))) == 16_384
    assert judge.scale == pytest.approx(20_000 / 1_024)
    assert float(judge.gradient) == pytest.approx(float(rows.sum()), rel=1e-5)
