"""Draws from the subposteriors of `divide-and-conquer`: NUTS for all shards and all runs in one program.

The chains of shards and runs differ in their rows and keys only, so that one vectorised program serves them all. The
subposteriors of the normal law are known, N(x̄_s, Σ S/N), and are drawn exactly. In those of the mixture half of the
draws get their centres exchanged, a move that leaves each of them as it is: chains rarely make it by themselves.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco._extras import require
from scirocco.types import Key
from scirocco_papers.divide_and_conquer.problems import NUM_SHARDS, Draws, Problem

WARMUP, DEPTH = 300, 3
"""At most 2³ - 1 leapfrog steps: all chains wait for the longest."""


def subposterior_draws(problem: Problem, num_runs: int, num_draws: int, seed: int) -> Draws:
    """(run, shard, draw, d)."""
    if problem.normal is not None:
        return _known(problem, problem.normal[1], num_runs, num_draws, seed)
    draws = _nuts(problem, num_runs, num_draws, seed)
    if problem.exchange is None:
        return draws
    heads = np.random.default_rng([seed, 6]).random(draws.shape[:-1]) < 0.5
    return np.where(heads[..., None], problem.exchange(draws), draws)


def _known(problem: Problem, covariance: Draws, num_runs: int, num_draws: int, seed: int) -> Draws:
    means = problem.shards().mean(axis=1, dtype=np.float64)
    rng = np.random.default_rng([seed, 5, problem.dimension])
    normals = rng.normal(size=(num_runs, NUM_SHARDS, num_draws, problem.dimension))
    return np.asarray(means[:, None] + normals @ np.linalg.cholesky(NUM_SHARDS * covariance).T)


def _nuts(problem: Problem, num_runs: int, num_draws: int, seed: int) -> Draws:
    require("numpyro", "`scirocco reproduce divide-and-conquer`")
    from numpyro.infer.hmc import hmc

    shards = jnp.asarray(problem.shards())
    start = problem.fold(jnp.asarray(problem.start, jnp.float32))
    init, move = hmc(
        potential_fn_gen=lambda rows: lambda z: -problem.folded_density(z, rows, NUM_SHARDS), algo="NUTS"
    )

    def chain(key: Key, rows: Any) -> Any:
        state = init(start, WARMUP, max_tree_depth=DEPTH, model_args=(rows,), rng_key=key)

        def step(state: Any, _: None) -> tuple[Any, Any]:
            state = move(state, model_args=(rows,))
            return state, state.z

        return jax.vmap(problem.unfold)(jax.lax.scan(step, state, length=WARMUP + num_draws)[1][WARMUP:])

    keys = jax.random.split(jax.random.PRNGKey(seed), num_runs * NUM_SHARDS)
    every = jnp.tile(shards, (num_runs, *[1] * (shards.ndim - 1)))
    draws = np.asarray(jax.jit(jax.vmap(chain))(keys, every), np.float64)
    return draws.reshape(num_runs, NUM_SHARDS, num_draws, problem.dimension)
