"""Several chains: as threads on a CPU, as one vectorised program on an accelerator.

On a CPU a minibatch gradient is limited by memory bandwidth, so a vectorised program gains nothing and loses the cheap
contiguous reads. Separate programs in threads use every core, and one compiled program serves any number of chains. An
accelerator needs one wide program to be busy. Both give the same chains (to rounding). Chains on
streamed data always run in threads, because each chain reads its own rows.
"""

from __future__ import annotations

import os
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _tree
from scirocco._programs import loop_program, setup_program, threads
from scirocco.data import Devices
from scirocco.errors import InvalidValueError
from scirocco.model import Posterior
from scirocco.run import accelerator_loop, encoding, loop
from scirocco.run.keeping import DeviceChains, HostChunk, buffer_capacity, good_draws, join, stack
from scirocco.run.loop import CHAIN_AXES, KernelState, Start
from scirocco.run.over_devices import SpreadChains
from scirocco.run.session import NEVER, Plan
from scirocco.run.setup import Problem
from scirocco.run.streaming import StreamedParts, advance_compiled, advance_streamed, start_compiled, start_streamed
from scirocco.samplers import Gradient, Sampler
from scirocco.types import Array, Key, PyTree

METHODS = ("auto", "threads", "vmap")
_MOST_AHEAD, _MUCH_MEMORY = 3, 1 << 24
"""Chunks that are started before the host requests them, and bytes of positions from which it is one."""
Saved = dict[str, np.ndarray]
"""The state of all chains, by name."""


def resolve_method(method: str, streamed: bool) -> str:
    """Replace "auto" by the method for this backend."""
    if streamed and method == "vmap":
        raise InvalidValueError(
            'chain_method="vmap" requires the data on the device, but each chain of a streamed run reads its own rows. '
            'Omit `chain_method` or use "threads".'
        )
    if method == "auto":
        return "threads" if streamed or jax.default_backend() == "cpu" else "vmap"
    return method


def make_chains(
    problem: Problem, start: Start, plan: Plan, devices: Devices | None = None, saved: Saved | None = None
) -> DeviceChains:
    """Chains with keys `fold_in(key, chain)`, started where `start` says, or restored from a saved state."""
    method = resolve_method(plan.chain_method, problem.table.streamed)
    average = plan.keeping.reducing.average(problem.model.constrain)
    if average is not None:
        averaging = problem.parts.sampler.known.averaging
        assert averaging is not None  # `sc.sample` checks it
        sampler = averaging(average)
        problem = problem._replace(parts=problem.parts._replace(sampler=sampler))
    if devices is not None:
        return SpreadChains(problem, start, plan, devices, method == "vmap", saved)
    return (ThreadedChains if method == "threads" else VectorizedChains)(problem, start, plan, saved)


def _number(chain: int | None) -> np.int32 | None:
    return None if chain is None else np.int32(chain)


class ThreadedChains(DeviceChains):
    """Each chain is a separate program call; as many run at a time as there are cores."""

    def __init__(self, problem: Problem, start: Start, plan: Plan, saved: Saved | None = None):
        model, num_chains, keeping = problem.model, plan.num_chains, plan.keeping
        keep_gradients = keeping.gradients_in_loop
        self.capacity = buffer_capacity(start.position, keep_gradients, 1)
        # a superbatch yields at most one draw per batch: a larger buffer would only hold zeros
        room = min(self.capacity, problem.table.steps_in_segment)
        self._static = (model, keep_gradients, room)
        self._parts, self._keeping = problem.parts, keeping
        self._streams: list[StreamedParts] = []
        self.first_density: Any = np.zeros(())
        params = model.constrain(start.position)
        self.reducing = [keeping.reducing.init(params)] * num_chains
        self.made = [0] * num_chains
        if saved is None:
            self.states = self._begin(problem, start, plan)
        else:
            self._restore(problem, start, plan, saved)
        workers = min(num_chains, os.cpu_count() or 1)
        self._pool = threads(workers, "chain") if workers > 1 else None

    def _begin(self, problem: Problem, start: Start, plan: Plan) -> list[KernelState]:
        (model, _, parts, table), key = problem, plan.key
        if not table.streamed:
            begin = start_compiled.of(model)
            starts = [begin(parts, start, key, np.int32(chain), _number(plan.leader(chain))) for chain in plan.numbers]
            self.first_density = starts[0][1]
            return [state for state, _ in starts]
        begun = [start_streamed(model, parts, table, start, key, chain, plan.leader(chain)) for chain in plan.numbers]
        self._streams = [streamed for _, _, streamed in begun]
        self.first_density = begun[0][1]
        return [state for state, _, _ in begun]

    def _restore(self, problem: Problem, start: Start, plan: Plan, saved: Saved) -> None:
        template = encoding.template(problem, start.position, plan.key, self.reducing[0])
        restored = [encoding.restore(template, saved, chain) for chain in range(plan.num_chains)]
        self.states = [state for state, _, _ in restored]
        self.reducing = [reducing for _, reducing, _ in restored]
        self.made = [int(made) for _, _, made in restored]
        if problem.table.streamed:
            self._streams = [StreamedParts(problem.parts, problem.table, s.batch_key) for s in self.states]

    @property
    def first_gradient(self) -> PyTree:
        """The gradient of the first chain's current state."""
        return self.states[0].gradient.total

    @property
    def first_state(self) -> KernelState:
        """The state of the first chain."""
        return self.states[0]

    @property
    def current(self) -> tuple[PyTree, Gradient]:
        """Positions and gradients of all chains."""
        pairs = [(state.sampler.position, state.gradient) for state in self.states]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *pairs)

    def _one(self, num_steps: int, thin: int, chain: int) -> HostChunk:
        if self._streams:
            pieces = []
            for state, piece in advance_streamed(
                *self._static, self._streams[chain], self.states[chain], num_steps, thin
            ):
                self.states[chain] = state
                good = good_draws(piece.chunk, piece.num_draws, piece.start, thin, piece.phase)
                pieces.append(self._keep(chain, piece.chunk, good))
                if pieces[-1].bad_step >= 0:
                    break
            return join(pieces, 0)
        start = int(self.states[chain].number)
        counts = (np.int32(num_steps), np.int32(thin), np.int32(0))
        state, chunk = advance_compiled(*self._static, self._parts, self.states[chain], *counts)
        self.states[chain] = jax.block_until_ready(state)
        return self._keep(chain, chunk, good_draws(chunk, num_steps // thin, start, thin))

    def _keep(self, chain: int, chunk: loop.Chunk, count: int) -> HostChunk:
        reducing = self._keeping.reducing
        self.reducing[chain] = reducing.update(self.reducing[chain], chunk, count)
        host = self._keeping.to_host(chunk, count, self.made[chain], axis=0)
        self.made[chain] += count
        return host

    def advance(self, num_steps: int, thin: int) -> HostChunk:
        """Advance all chains, in parallel where there are cores."""
        chains = range(len(self.states))
        mapped = map if self._pool is None else self._pool.map
        return stack(list(mapped(partial(self._one, num_steps, thin), chains)))

    def save(self) -> dict[str, np.ndarray]:
        """All chains' states."""
        chains = zip(self.states, self.reducing, self.made, strict=True)
        return encoding.save_chains([encoding.Snapshot(*chain) for chain in chains])

    def reduced(self) -> PyTree:
        """The reducers' states."""
        return jax.tree.map(lambda *leaves: np.stack(leaves), *self.reducing)

    def close(self) -> None:
        """Shut down the threads."""
        for streamed in self._streams:
            streamed.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


@setup_program(1)
def _start_all(
    model: Posterior, parts: loop.Parts, begin: loop.Start, key: Key, chains: Array, leaders: Array | None
) -> tuple[KernelState, Array]:
    def one(chain: Array, leader: Array | None) -> tuple[KernelState, Array]:
        return loop.start_chain(model, parts, begin, key, chain, leader)

    return jax.vmap(one, out_axes=(CHAIN_AXES, 0))(chains, leaders)


@partial(jax.jit, static_argnums=(0, 1, 2, 3), donate_argnums=5)
def _advance_all(
    model: Posterior,
    keep_gradients: bool,
    capacity: int,
    group_size: int,
    parts: loop.Parts,
    states: KernelState,
    num_steps: Any,
    thin: Any,
) -> tuple[KernelState, loop.Chunk]:
    def one(state: KernelState) -> tuple[KernelState, loop.Chunk]:
        return loop.advance(model, keep_gradients, capacity, parts, state, num_steps, thin, 0)

    return loop.over_chains(one, states, group_size, parts.estimator.traits.keeps_one_sum)


@loop_program(5)
def _advance_all_by_draws(
    model: Posterior,
    keep_gradients: bool,
    capacity: int,
    group_size: int,
    pace: accelerator_loop.Pace,
    parts: loop.Parts,
    states: KernelState,
    num_steps: Any,
) -> tuple[KernelState, loop.Chunk]:
    def one(state: KernelState) -> tuple[KernelState, loop.Chunk]:
        return accelerator_loop.advance_by_draws(model, keep_gradients, capacity, pace, parts, state, num_steps)

    if states.noise_key.shape[0] == 1:  # the plain program reads its rows as a slice, not as a gather
        only = jax.tree.map(lambda leaf: leaf[0], states._replace(number=states.number[None]))
        state, chunk = jax.tree.map(lambda leaf: leaf[None], one(only))
        return state._replace(number=state.number[0]), chunk
    return loop.over_chains(one, states, group_size, parts.estimator.traits.keeps_one_sum)


class _Made(NamedTuple):
    """The results of a number of steps."""

    states: KernelState
    chunk: loop.Chunk
    copied: loop.Chunk
    """The part of it that is copied to the host."""


class _Ahead(NamedTuple):
    """Steps that the device makes before the host asks for them."""

    steps: tuple[int, int, int]
    """The number of the first, how many, and how many per draw."""
    made: Future[_Made]

    @property
    def end(self) -> int:
        """The number of the step after them."""
        return self.steps[0] + self.steps[1]

    @property
    def num_draws(self) -> int:
        """Draws made in them."""
        return self.steps[1] // self.steps[2]


class VectorizedChains(DeviceChains):
    """All chains in one program, vectorised with `vmap`.

    On an accelerator a call of a program with loops returns only when the last steps have started. So programs are
    called in a thread: the next one waits there while the host receives, checks and stores the draws before.
    """

    def __init__(self, problem: Problem, start: Start, plan: Plan, saved: Saved | None = None):
        model, num_chains, keeping = problem.model, plan.num_chains, plan.keeping
        self._pace = accelerator_loop.pace_of(problem.parts, start.position, plan.thin, num_chains, plan.group_size)
        capacity = buffer_capacity(start.position, keeping.gradients_in_loop, num_chains)
        together = min(self._pace.draws_together, capacity) if loop.in_lockstep() else 1
        self.capacity = capacity // together * together
        self.steps_together = together * plan.thin if loop.in_lockstep() else 1
        self._static = (model, keeping.gradients_in_loop, self.capacity, plan.group_size)
        self._parts, self._keeping, self._num_chains = problem.parts, keeping, num_chains
        one = keeping.reducing.init(model.constrain(start.position))
        self.reducing = jax.tree.map(lambda leaf: jnp.stack([leaf] * num_chains), one)
        self.made, self.first_density = 0, jnp.zeros(())
        self._thin, self._ahead = plan.thin, list[_Ahead]()
        if loop.in_lockstep():  # each needs memory for its draws and states
            self.most_ahead = _MOST_AHEAD if num_chains * _tree.nbytes(start.position) < _MUCH_MEMORY else 1
        self._sender = threads(1, "steps") if loop.in_lockstep() else None
        self._number = 0
        if saved is None:
            numbers = np.asarray(plan.numbers, np.int32)
            leaders = None if plan.group_size == 1 else numbers - numbers % plan.group_size
            self.states, self.first_density = _start_all(model, problem.parts, start, plan.key, numbers, leaders)
            return
        template = encoding.template(problem, start.position, plan.key, one)
        restored = [encoding.restore(template, saved, chain) for chain in range(num_chains)]
        states, self.reducing = jax.tree.map(
            lambda *leaves: jnp.stack(leaves), *[(state, reducing) for state, reducing, _ in restored]
        )
        self.states = states._replace(number=states.number[0])
        self.made, self._number = int(restored[0].made), int(self.states.number)

    @property
    def first_gradient(self) -> PyTree:
        """The gradients of the current states."""
        return self.states.gradient.total

    @property
    def first_state(self) -> KernelState:
        """The state of the first chain."""
        return jax.tree.map(lambda leaf: leaf[0], self._numbered())

    @property
    def current(self) -> tuple[PyTree, Gradient]:
        """Positions and gradients of all chains."""
        return jax.tree.map(np.asarray, (self.states.sampler.position, self.states.gradient))

    def advance(self, num_steps: int, thin: int) -> HostChunk:
        """One call for all chains."""
        start = self._number  # of the states: reading it from the device would wait for the steps made ahead
        self.states, chunk, copied = self._advanced(start, num_steps, thin)
        count = good_draws(chunk, num_steps // thin, start, thin)
        self.reducing = self._keeping.reducing.update(self.reducing, chunk, count, vectorized=True)
        host = self._keeping.to_host(chunk, count, self.made, 1, copied)
        self._number += num_steps
        self.made += count
        return host

    def _advanced(self, start: int, num_steps: int, thin: int) -> tuple[KernelState, loop.Chunk, loop.Chunk | None]:
        if self._sender is not None:
            made, wanted = self.made, (start, num_steps, thin)
            self.overlapped = bool(self._ahead) and self._ahead[0].steps == wanted
            sent = self._ahead if self.overlapped else [self._sent(None, wanted, made)]
            for number, steps in enumerate(self.promised, 1):  # made while the host stores the draws before
                made += sent[number - 1].num_draws
                if number == len(sent):
                    following = (sent[-1].end, steps, self._thin)
                    sent.append(self._sent(sent[-1].made, following, made))
            found, self._ahead = sent[0].made.result(), sent[1:]
            if np.all(np.asarray(found.chunk.bad_step) < 0):
                return found
            self._ahead = []
        counts = (np.int32(num_steps), np.int32(thin))
        return *_advance_all(*self._static, self._parts, self.states, *counts), None

    def _sent(self, before: Future[_Made] | None, steps: tuple[int, int, int], made: int) -> _Ahead:
        """Steps that the device makes after those of `before`, or now; their draws are then copied to the host."""
        assert self._sender is not None
        _, num_steps, thin = steps
        # in the burn-in no draw is kept: it runs at the pace of the sampling, in the same program
        pace = self._pace if thin == NEVER else self._pace._replace(every=thin)
        parts, count = self._parts, np.int32(num_steps)
        # compiled in this thread, whose settings of JAX apply
        program = _advance_all_by_draws.lower(*self._static, pace, parts, self.states, count).compile()
        begin = self.states if before is None else None

        def make() -> _Made:
            states, chunk = program(parts, begin if before is None else before.result().states, count)
            return _Made(states, chunk, self._keeping.begin_copy(chunk, num_steps // thin, made))

        return _Ahead(steps, self._sender.submit(make))

    def retune(self, sampler: Sampler) -> None:
        """Replace the sampler's hyper-parameters; steps that were made ahead are dropped."""
        super().retune(sampler)
        self._ahead = []

    def _numbered(self) -> KernelState:
        """The states with one step number per chain, as they are stored."""
        return self.states._replace(number=jnp.stack([self.states.number] * self._num_chains))

    def save(self) -> dict[str, np.ndarray]:
        """All chains' states."""
        made = np.full(self._num_chains, self.made)
        return encoding.save_stacked_chains(encoding.Snapshot(self._numbered(), self.reducing, made))

    def reduced(self) -> PyTree:
        """The reducers' states."""
        return jax.tree.map(np.asarray, self.reducing)

    def close(self) -> None:
        """Drop steps that nobody will ask for."""
        self._ahead = []
        if self._sender is not None:
            self._sender.shutdown(wait=False, cancel_futures=True)
