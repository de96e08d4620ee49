"""Many settings of one sampler, run side by side.

All lanes use the same batches, so that a batch is read once for all, and lanes of the same replicate the same noise, so
that settings are compared on equal terms. A program serves a fixed number of lanes: when settings drop out, the others
are given their lanes, as further chains.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.data import Table
from scirocco.errors import InvalidValueError
from scirocco.model import Model
from scirocco.run import loop
from scirocco.run.loop import KernelState, Parts, Start
from scirocco.run.tuning.candidates import WIDTH, stacked
from scirocco.samplers import Sampler
from scirocco.types import Key, Params


class Arena(NamedTuple):
    """What lanes share: model, method, data, and where they start."""

    model: Model
    parts: Parts
    table: Table
    start: Start
    settings: dict[str, Any]
    """What tells this arena from others: the batch size, where several are tried."""


class Lanes:
    """Chains of settings that differ in numbers alone."""

    def __init__(self, arena: Arena, samplers: list[Sampler], key: Key):
        self.arena, self._key = arena, key
        self.alive = list(range(len(samplers)))
        """Settings that are still in the race."""
        # in multiples of the usual number, so that one compiled program serves different numbers of settings
        self.count = -(-len(samplers) // WIDTH) * WIDTH
        spare = self.count - len(samplers)
        self._inners = stacked(samplers + samplers[:1] * spare)
        self.owners = np.array([*self.alive, *[-1] * spare])
        """Which setting each lane belongs to; -1: none."""
        self.replicates = 1
        """Lanes for each setting."""
        self._feed = arena.table.feed(key)
        estimator = arena.parts.estimator
        if not arena.table.whole and estimator.next_pass(1, arena.table.num_rows) is not None:
            raise InvalidValueError(
                f"tuning on data that are not in one place reads batches, and {type(estimator).__name__} makes passes "
                "over all rows: tune with sc.ControlVariates or sc.Minibatch."
            )
        keys = self._replicate_keys(np.zeros(self.count, int))
        self._shared, self.states = self._begin(keys)

    def _replicate_keys(self, replicates: np.ndarray) -> Key:
        return jax.vmap(lambda r: jax.random.fold_in(self._key, r))(jnp.asarray(replicates, jnp.uint32))

    def _parts(self, number: int) -> tuple[Parts, int]:
        segment = self._feed.at(number)
        return self.arena.parts._replace(data=segment.data, batching=segment.batching), segment.stop

    def _begin(self, keys: Key) -> tuple[bool, KernelState]:
        """The first states; the estimators' memory is shared by all lanes where they do not write to it."""
        arena, parts = self.arena, self._parts(0)[0]
        begin = (arena.model, parts, self._inners, arena.start, self._key, keys)
        try:
            states = _start(True, *begin)
            jax.eval_shape(partial(_advance_all, arena.model, True, 1), parts, self._inners, states, 1, 1, 0)
            return True, states
        except ValueError:  # the memory is each lane's own
            return False, _start(False, *begin)

    def advance(self, num_steps: int, thin: int) -> tuple[Params, np.ndarray]:
        """Draws (lane, draw, ...) in the user's units, and whether each lane is still finite."""
        capacity, done = num_steps // thin, 0
        room = min(capacity, self.arena.table.steps_in_segment // thin + 2)
        draws, good = [], np.ones(self.count, bool)
        while done < capacity * thin:
            number, phase = int(self.states.number), done % thin
            parts, stop = self._parts(number + 1)  # step m moves, then asks for estimate m + 1
            steps = min(capacity * thin - done, stop - number - 1)
            static = (self.arena.model, self._shared, room)
            self.states, chunk = _advance(*static, parts, self._inners, self.states, steps, thin, phase)
            complete = (phase + steps) // thin
            draws.append(jax.tree.map(lambda leaf, most=complete: leaf[:, :most], chunk.draws))
            good &= np.asarray(chunk.bad_step) < 0
            done += steps
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), *draws), good

    def keep(self, settings: list[int]) -> None:
        """Only these settings go on; each is given as many lanes as there are."""
        replicates = self.replicates = self.count // len(settings)
        owners = np.repeat(settings, replicates)
        lanes = [int(np.flatnonzero(self.owners == owner)[0]) for owner in owners]
        spare = self.count - len(lanes)
        lanes += lanes[:1] * spare
        index = jnp.asarray(lanes)
        pick = partial(jax.tree.map, lambda leaf: leaf[index])
        number = np.concatenate([np.tile(np.arange(replicates), len(settings)), np.arange(spare)])
        self._inners = pick(self._inners)
        self.states = self.states._replace(
            sampler=pick(self.states.sampler),
            gradient=pick(self.states.gradient),
            memory=self.states.memory if self._shared else pick(self.states.memory),
            noise_key=self._replicate_keys(number),
        )
        self.owners = np.concatenate([owners, np.full(spare, -1)])
        self.alive = settings

    def close(self) -> None:
        """Release the feed."""
        self._feed.close()


def _axes(shared: bool) -> Any:
    return KernelState._make((0, 0, None if shared else 0, None, None, 0))


def _with_inner(parts: Parts, inner: Sampler) -> Parts:
    """The lane's own sampler, in the coordinates that all lanes share (None: the parameters' own)."""
    return parts._replace(sampler=inner if parts.sampler is None else parts.sampler.with_core(inner))


@partial(jax.jit, static_argnums=(0, 1))
def _start(
    shared: bool, model: Model, parts: Parts, inners: Sampler, begin: Start, key: Key, keys: Key
) -> KernelState:
    def one(inner: Sampler, noise_key: Key) -> KernelState:
        state = loop.start_chain(model, _with_inner(parts, inner), begin, key, 0)[0]
        return state._replace(noise_key=noise_key)

    return jax.vmap(one, out_axes=_axes(shared))(inners, keys)


def _advance_all(
    model: Model,
    shared: bool,
    capacity: int,
    parts: Parts,
    inners: Sampler,
    states: KernelState,
    num_steps: Any,
    thin: Any,
    phase: Any,
) -> tuple[KernelState, loop.Chunk]:
    def one(inner: Sampler, state: KernelState) -> tuple[KernelState, loop.Chunk]:
        return loop.advance(model, False, capacity, _with_inner(parts, inner), state, num_steps, thin, phase)

    return jax.vmap(one, in_axes=(0, _axes(shared)), out_axes=(_axes(shared), 0))(inners, states)


_advance = partial(jax.jit, static_argnums=(0, 1, 2))(_advance_all)
