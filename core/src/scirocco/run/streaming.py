"""One chain on streamed data: the host feeds superbatches to the compiled loop, and makes the passes itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _tree
from scirocco._programs import program
from scirocco.data import Probed, Table
from scirocco.estimators import full_sum
from scirocco.estimators.base import next_pass
from scirocco.model import Posterior, without_value
from scirocco.run import loop
from scirocco.run.loop import KernelState, Parts, Start
from scirocco.samplers import Gradient, Mover, Proposer
from scirocco.types import Array, Key, Params, PyTree


class StreamedParts:
    """The parts of a chain, with the rows for a given estimate."""

    def __init__(self, parts: Parts, table: Table, batch_key: Key):
        self._parts, self.table = parts, table
        self._feed = table.feed(batch_key)

    def at(self, number: int) -> tuple[Parts, int]:
        """Parts with the rows for estimate `number`, and the first estimate that needs other rows."""
        segment = self._feed.at(number)
        return self._parts._replace(data=segment.data, batching=segment.batching), segment.stop

    def next_pass(self, number: int) -> int | None:
        """The first estimate from `number` on that needs all rows."""
        return next_pass(self._parts.estimator, number, self.table.num_rows)

    @property
    def without_rows(self) -> Parts:
        """Parts for work that needs no rows."""
        return self._parts

    def close(self) -> None:
        """Stop reading ahead."""
        self._feed.close()


def start_streamed(
    model: Posterior, parts: Parts, table: Table, begin: Start, key: Key, chain: int, leader: int | None = None
) -> tuple[KernelState, Array, StreamedParts]:
    """As `loop.start_chain`, with the rows for the chain's first estimate."""
    number, of_group = np.int32(chain), None if leader is None else np.int32(leader)
    keys = loop.chain_keys(model, parts, key, number, of_group)
    streamed = StreamedParts(parts, table, keys.batches)
    if streamed.next_pass(0) == 0:
        begin = begin.of_chain(chain)
        signs = loop.random_signs(begin.position, keys.signs)
        gradient, memory = _pass(model, streamed, begin.position, begin.memory, signs, keys.estimate)
        state = _first_state(parts, begin.position, gradient, memory, keys)
        return state, jnp.zeros(()), streamed
    served, _ = streamed.at(0)
    state, density = start_compiled(model, served, begin, key, number, of_group)
    return jax.block_until_ready(state), density, streamed


start_compiled = program(1)(loop.start_chain)
_first_state = jax.jit(loop.first_state)


class Piece(NamedTuple):
    """Consecutive steps: their chunk, the draws it completes, and where it started."""

    chunk: loop.Chunk
    num_draws: int
    start: int
    phase: int


def advance_streamed(
    model: Posterior,
    keep_gradients: bool,
    capacity: int,
    streamed: StreamedParts,
    state: KernelState,
    num_steps: int,
    thin: int,
) -> Iterator[tuple[KernelState, Piece]]:
    """Make `num_steps` steps, in as many pieces as their superbatches and passes require."""
    number, done = int(state.number), 0
    while done < num_steps:
        phase = done % thin
        due = streamed.next_pass(number + 1)
        if due == number + 1:
            steps = 1
            state, chunk = _pass_step(model, keep_gradients, streamed, state)
        else:
            parts, stop = streamed.at(number + 1)
            steps = min(num_steps - done, stop - number - 1, capacity * thin - phase)
            if due is not None:
                steps = min(steps, due - number - 1)
            counts = (np.int32(steps), np.int32(thin), np.int32(phase))
            state, chunk = advance_compiled(model, keep_gradients, capacity, parts, state, *counts)
            state = jax.block_until_ready(state)  # the buffer of the rows will be reused
        yield state, Piece(chunk, (phase + steps) // thin, number, phase)
        number, done = number + steps, done + steps


advance_compiled = partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=4)(loop.advance)


def step_streamed(
    model: Posterior, streamed: StreamedParts, state: KernelState, key: Key
) -> tuple[KernelState, loop.Info]:
    """One step with fresh randomness from `key`."""
    number = int(state.number) + 1
    if streamed.next_pass(number) == number:
        parts = streamed.without_rows
        proposal, noise, signs, own = _move(model, parts, state, key)
        there, memory = _pass(model, streamed, proposal.position, state.memory, signs, own)
        moved, gradient = proposal, there
        if isinstance(parts.sampler, Proposer):
            moved, gradient = _accept(parts.sampler, state, proposal, there, noise)
        state = state.after(state.number + 1, moved, gradient, memory)
        return state, loop.inform(model, parts, state)
    return jax.block_until_ready(step_compiled(model, streamed.at(number)[0], state, key))


@partial(jax.jit, static_argnums=0)
def step_compiled(model: Posterior, parts: Parts, state: KernelState, key: Key) -> tuple[KernelState, loop.Info]:
    """One step of `Kernel`, with rows that are there."""
    draws = loop.draw(model, parts, state.sampler.position, key, state.batch_key, state.number)
    return loop.move(model, parts, state, draws)


def _pass_step(
    model: Posterior, keep_gradients: bool, streamed: StreamedParts, state: KernelState
) -> tuple[KernelState, loop.Chunk]:
    """A step whose estimate needs all rows."""
    state, info = step_streamed(model, streamed, state, loop.step_key(state.noise_key, state.number))
    gradient = state.gradient.total if keep_gradients else None
    kept = (model.constrain(state.sampler.position), gradient, info.stats)
    draws, gradients, stats = jax.tree.map(lambda leaf: leaf[None], kept)
    bad = info.code > 0
    step = jnp.where(bad, state.number - 1, -1)
    return state, loop.Chunk(draws, gradients, stats, step, jnp.where(bad, info.code - 1, -1))


@partial(jax.jit, static_argnums=0)
def _move(
    model: Posterior, parts: Parts, state: KernelState, key: Key
) -> tuple[Any, PyTree, PyTree | None, Key | None]:
    """The sampler's half of a step, exactly as in `loop.move`, its noise, and signs and key for its estimate."""
    noise, signs, own = loop.noise_and_signs(model, parts, state.sampler.position, key)
    sampler = cast(Mover | Proposer, parts.sampler)  # others require rows in memory
    return sampler.step(state.sampler, state.gradient, noise, state.number), noise, signs, own


@jax.jit
def _accept(
    sampler: Proposer, state: KernelState, proposal: Any, there: Gradient, noise: PyTree
) -> tuple[Any, Gradient]:
    return sampler.accept(state.sampler, state.gradient, proposal, there, noise, state.number)


def _pass(
    model: Posterior, streamed: StreamedParts, position: Params, memory: PyTree, signs: PyTree | None, key: Key | None
) -> tuple[Gradient, PyTree]:
    """The gradient at `position` from a pass over all rows (or many), and the memory after it."""
    table, target = streamed.table, streamed.without_rows.target(model)
    passes = streamed.without_rows.estimator.passes
    assert passes is not None
    many = passes.rows(table.num_rows)
    if many < table.num_rows:
        assert key is not None
        some = table.random_rows(many, jax.random.fold_in(key, 1), replace=False)
        sums = (_scaled_sum(target, table.num_rows / many, position, some, key), None)
    elif signs is None:
        sums = (table.sum(target.summand, position, key), None)
    else:
        sums = table.sum(Probed(target.summand), (position, signs), key)
    return _absorb(target, streamed.without_rows, position, memory, sums, signs)


@partial(jax.jit, static_argnums=0)
def _scaled_sum(model: Posterior, factor: float, position: Params, rows: PyTree, key: Key) -> PyTree:
    count = jax.tree.leaves(rows)[0].shape[0]
    return _tree.scale(factor, full_sum(model.summand, position, rows, count, key=key))


@partial(jax.jit, static_argnums=0)
def _absorb(
    target: Posterior, parts: Parts, position: Params, memory: PyTree, sums: Any, signs: PyTree | None
) -> tuple[Gradient, PyTree]:
    total, tangent = sums
    passes = parts.estimator.passes
    assert passes is not None
    estimate, memory = passes.absorb(total, position, memory, parts.sampler.needs.noise)
    if signs is None:
        return loop.as_gradient(target, position, target.combine(position, estimate.total), estimate), memory
    drive, image = jax.jvp(target.combine, (position, estimate.total), (signs, tangent))
    curvature = jax.tree.map(jnp.multiply, signs, without_value(image))
    return loop.as_gradient(target, position, drive, estimate)._replace(curvature=curvature), memory
