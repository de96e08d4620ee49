"""The compiled loop of accelerators: as many steps as possible between two queries of the host.

An accelerator queries the host in each iteration of a loop whose length is data, so that here groups of steps have a
fixed length, and draws are kept, and checked, every few steps. The numbers are those of `loop.advance`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from scirocco import _tree
from scirocco.model import Posterior
from scirocco.run import loop
from scirocco.run.loop import Chunk, Draws, KernelState, Parts, noise_and_signs, step_key
from scirocco.run.sizes import RUNNING
from scirocco.samplers import Mover
from scirocco.types import Array, Params, PyTree

_NOISE_AHEAD_PAYS = 32
"""Share of the room for randomness above which a step draws its own noise."""
_UNROLL = (4, 5, 3, 2)
"""Steps written out in a loop whose length they divide, the best first."""


class Pace(NamedTuple):
    """How `advance_by_draws` divides its steps; static."""

    every: int
    """Steps per draw."""
    ahead: int
    """Steps whose batches, and noise if it is not `inline`, are drawn together."""
    inline: bool
    """Whether a step draws its own noise: for so many parameters that writing and reading it again would take time."""
    grouped: bool
    """Whether several chains share their batches."""

    @property
    def draws_together(self) -> int:
        """Draws made in one loop of fixed length."""
        return max(1, self.ahead // self.every)


def pace_of(parts: Parts, params: Params, every: int, num_chains: int, group_size: int) -> Pace:
    """The pace of that many chains, of which so many share their batches."""
    numbers, plans = (num_chains * max(1, size) for size in (_tree.size(params), parts.batching.plan_size))
    inline = numbers * _NOISE_AHEAD_PAYS > RUNNING.ahead_words_accelerator
    room = RUNNING.ahead_words_accelerator // (plans if inline else max(numbers, plans))
    ahead = max(1, min(RUNNING.ahead_steps, room))
    return Pace(every, ahead, inline, group_size > 1)


class Strides(NamedTuple):
    """What does not change while `advance_by_draws` makes steps."""

    model: Posterior
    keep_gradients: bool
    parts: Parts
    num_steps: Array
    every: int
    """Steps per draw."""
    together: int
    """Draws in a loop of fixed length."""
    ahead: int
    """Steps whose randomness is drawn together."""
    inline: bool
    """Whether a step draws its own noise."""

    @property
    def length(self) -> int:
        """Steps in a loop of fixed length."""
        return self.every * self.together


class MadeDraws(NamedTuple):
    """How far `advance_by_draws` is."""

    done: Array
    state: KernelState
    buffers: PyTree


def advance_by_draws(
    model: Posterior,
    keep_gradients: bool,
    capacity: int,
    pace: Pace,
    parts: Parts,
    state: KernelState,
    num_steps: Array,
) -> tuple[KernelState, Chunk]:
    """As `loop.advance`, for accelerators: a step only moves the chain.

    Draws are kept, and checked, every `pace.every` steps. As many as the randomness drawn ahead lasts for are made in
    one loop of fixed length. If the chunk diverged, `bad_step` is the step of the first draw that is not finite;
    `loop.advance` finds the step itself.
    """
    every, together = pace.every, min(pace.draws_together, capacity)
    ahead = min(pace.ahead, every * together)
    whole = (n for n in range(ahead, ahead // 2, -1) if every % n == 0)  # blocks without a remainder
    buffers = loop.buffers_for(loop.kept(model, parts, state, keep_gradients), capacity)
    batching, data = parts.batching.for_accelerator(parts.data, pace.grouped)
    parts = parts._replace(batching=batching, data=data)
    strides = Strides(model, keep_gradients, parts, num_steps, every, together, next(whole, ahead), pace.inline)
    begin = MadeDraws(jnp.zeros((), jnp.int32), state, buffers)
    end = jax.lax.while_loop(lambda made: made.done < num_steps, partial(_next, strides), begin)
    codes = jnp.append(jax.vmap(loop.code_of)(end.buffers[0]), loop.code_of(end.state.sampler.position))
    worst = jnp.argmax(codes > 0)  # the first
    step = jnp.minimum(state.number + (worst + 1) * every, end.state.number) - 1
    bad = (jnp.where(codes[worst] > 0, step, -1), jnp.where(codes[worst] > 0, codes[worst] - 1, -1))
    return end.state, loop.chunk_of(model, end.buffers, bad)


def _next(strides: Strides, made: MadeDraws) -> MadeDraws:
    """A loop of fixed length where one fits, otherwise the steps to the next draw."""
    group, rest = partial(_group, strides), partial(_rest, strides)
    if _tree.size(made.state.sampler.position) >= RUNNING.long_step:
        return rest(made)
    fits = (strides.num_steps - made.done >= strides.length) & (made.done % strides.every == 0)
    return jax.lax.cond(fits, group, rest, made)


def _group(strides: Strides, made: MadeDraws) -> MadeDraws:
    """Draws in a loop of fixed length."""
    done, state, buffers = made
    slot, length = done // strides.every, strides.length
    if strides.ahead < length:
        state = _blocks(strides, length, state)
        return MadeDraws(done + length, state, _put(strides, buffers, state, slot))
    drawn = _drawn_ahead(strides, state, length)
    unroll = _unrolled(strides.together, state) if strides.every == 1 else 1
    one = partial(_draw_one, strides, drawn, slot)
    return MadeDraws(done + length, *jax.lax.fori_loop(0, strides.together, one, (state, buffers), unroll=unroll))


def _draw_one(
    strides: Strides, drawn: PyTree, slot: Array, number: Array, inner: tuple[KernelState, PyTree]
) -> tuple[KernelState, PyTree]:
    state = _steps(strides, strides.every, inner[0], drawn, number * strides.every)
    return state, _put(strides, inner[1], state, slot + number)


def _rest(strides: Strides, made: MadeDraws) -> MadeDraws:
    """The steps to the next draw, or to the end."""
    done, state, buffers = made
    slot = done // strides.every
    left = jnp.minimum(strides.every - done % strides.every, strides.num_steps - done)
    count = jnp.minimum(strides.ahead, left)
    state = _steps(strides, count, state, _drawn_ahead(strides, state, strides.ahead))
    return MadeDraws(done + count, state, _put(strides, buffers, state, slot))


def _blocks(strides: Strides, count: int, state: KernelState) -> KernelState:
    """`count` steps, of which the randomness is drawn for `ahead` at a time."""
    ahead = strides.ahead
    state = jax.lax.fori_loop(0, count // ahead, lambda _, at: _block(strides, ahead, at), state)
    return _block(strides, count % ahead, state) if count % ahead else state


def _block(strides: Strides, count: int, state: KernelState) -> KernelState:
    return _steps(strides, count, state, _drawn_ahead(strides, state, count))


def _drawn_ahead(strides: Strides, state: KernelState, count: int) -> PyTree:
    """The randomness of the next `count` steps; their batches alone if steps draw their own noise."""
    if not strides.inline:
        return loop.draws_of(strides.model, strides.parts, state, count)
    plan = strides.parts.batching.plan
    return jax.vmap(lambda number: plan(state.batch_key, number + 1))(state.number + jnp.arange(count))


def _steps(strides: Strides, count: Any, state: KernelState, drawn: PyTree, first: Any = 0) -> KernelState:
    """`count` steps, of which the randomness is `drawn` from number `first` on."""
    fixed = isinstance(count, int)
    if strides.inline and fixed and strides.parts.scheme.only_moves(strides.model, strides.parts):
        return _steps_from_estimates(strides, state, count, drawn, first)
    one = partial(_step, strides, drawn, first, state.number)
    end = jax.lax.fori_loop(0, count, one, state, unroll=_unrolled(count, state) if fixed else None)
    return end._replace(number=state.number + count)


def _step(strides: Strides, drawn: PyTree, first: Any, number: Array, offset: Array, state: KernelState) -> KernelState:
    # the number comes from the loop's own counter: carried along, it would be another kernel per step
    now, draws = number + offset, loop.at(drawn, first + offset)
    if strides.inline:
        key = step_key(state.noise_key, now)
        noise, signs, own = noise_and_signs(strides.model, strides.parts, state.sampler.position, key)
        draws = Draws(noise, draws, signs, own)
    moved = strides.parts.scheme.move(strides.model, strides.parts, state._replace(number=now), draws)
    return moved._replace(number=number)


def _steps_from_estimates(strides: Strides, state: KernelState, count: int, drawn: PyTree, first: Any) -> KernelState:
    """`count` steps, each made directly after the estimate that drives it.

    A gradient is then consumed where it is made; the loop does not write it to memory and read it again.
    """
    number = state.number
    begin = (_moved_alone(strides, number, state).sampler, state.memory)
    one = partial(_estimate_and_move, strides, state, drawn, first)
    sampler, memory = jax.lax.fori_loop(1, count, one, begin, unroll=_unrolled(count - 1, state))
    last = state._replace(sampler=sampler, memory=memory)
    return _estimated(strides, last, number, count - 1, drawn, first)._replace(number=number + count)


def _estimate_and_move(
    strides: Strides, state: KernelState, drawn: PyTree, first: Any, offset: Any, carry: tuple[Any, PyTree]
) -> tuple[Any, PyTree]:
    before = state._replace(sampler=carry[0], memory=carry[1])
    after = _estimated(strides, before, state.number, offset - 1, drawn, first)
    moved = _moved_alone(strides, state.number + offset, after)
    return moved.sampler, moved.memory


def _moved_alone(strides: Strides, now: Any, state: KernelState) -> KernelState:
    """The sampler's half of step `now`."""
    key = step_key(state.noise_key, now)
    noise = noise_and_signs(strides.model, strides.parts, state.sampler.position, key)[0]
    sampler = cast(Mover, strides.parts.sampler)
    return state._replace(sampler=sampler.step(state.sampler, state.gradient, noise, now))


def _estimated(
    strides: Strides, state: KernelState, number: Array, offset: Any, drawn: PyTree, first: Any
) -> KernelState:
    """The estimator's half of step `number` + `offset`."""
    plan = loop.at(drawn, first + offset)
    at = (state.sampler.position, state.memory, number + offset + 1, plan, None, None)
    gradient, memory = strides.parts.scheme.evaluate(strides.model, strides.parts, *at)
    return state._replace(gradient=gradient, memory=memory)


def _put(strides: Strides, buffers: PyTree, state: KernelState, slot: Array) -> PyTree:
    kept = loop.kept(strides.model, strides.parts, state, strides.keep_gradients)
    return loop.put_in(buffers, kept, slot)


def _unrolled(count: int, state: KernelState) -> int:
    """How many steps of a loop of this length are written out: work at the end of one then merges with the next.

    Of large networks one: those written out would read the counters of their noise from memory, all the same array.
    """
    if _tree.size(state.sampler.position) >= _tree.MANY_NORMALS:
        return 1
    return next((number for number in _UNROLL if count % number == 0), 1)
