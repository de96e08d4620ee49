"""Several chains at once: as threads on a CPU, as one vectorised program on an accelerator.

On a CPU a minibatch gradient is limited by memory, so a vectorised program gains nothing and loses the cheap contiguous
reads; separate programs in threads use every core, and one compiled program serves any number of chains. On an
accelerator one wide program is the only way to keep it busy. Both give the same chains (to rounding).
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from scirocco import _tree
from scirocco.model import Model
from scirocco.run import loop
from scirocco.run.loop import KernelState
from scirocco.run.setup import Ready
from scirocco.types import Array, Key, Params, PyTree

METHODS = ("auto", "threads", "vmap")
_BUFFER_BYTES = 1 << 25
_MAX_CAPACITY = 8_192


class HostChunk(NamedTuple):
    """A chunk on the host; leaves have the axes (chain, draw, ...)."""

    draws: PyTree
    gradients: PyTree | None
    stats: dict[str, np.ndarray]
    bad_step: np.ndarray
    bad_leaf: np.ndarray


class Chains(Protocol):
    """Anything that advances all chains together."""

    capacity: int

    def advance(self, num_steps: int, thin: int, num_draws: int) -> HostChunk:
        """Make steps in every chain and bring the first `num_draws` kept draws to the host."""

    def close(self) -> None:
        """Release threads."""


def make_chains(
    model: Model, ready: Ready, num_chains: int, key: Key, keep_gradients: bool, method: str
) -> ThreadedChains | VectorizedChains:
    """Chains with keys `fold_in(key, chain)`, all started from the same point."""
    if method == "auto":
        method = "threads" if jax.default_backend() == "cpu" else "vmap"
    kind = ThreadedChains if method == "threads" else VectorizedChains
    return kind(model, ready, num_chains, key, keep_gradients)


def _capacity(position: Params, keep_gradients: bool, num_chains: int) -> int:
    per_draw = _tree.nbytes(position) * (2 if keep_gradients else 1) * num_chains + 16
    return max(1, min(_MAX_CAPACITY, _BUFFER_BYTES // per_draw))


_start = partial(jax.jit, static_argnums=0)(loop.start_chain)
_advance = partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=4)(loop.advance)


class ThreadedChains:
    """Each chain is its own program call; as many at a time as there are cores."""

    def __init__(self, model: Model, ready: Ready, num_chains: int, key: Key, keep_gradients: bool):
        self.capacity = _capacity(ready.start.position, keep_gradients, 1)
        self._static = (model, keep_gradients, self.capacity)
        self._parts = ready.parts
        starts = [
            _start(model, ready.parts, ready.start, key, np.int32(chain)) for chain in range(num_chains)
        ]
        self.states = [state for state, _ in starts]
        self.first_density = starts[0][1]
        workers = min(num_chains, os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="chain") if workers > 1 else None

    @property
    def first_gradient(self) -> PyTree:
        """The gradient of the first chain's current state."""
        return self.states[0].gradient.total

    def _one(self, chain: int, num_steps: int, thin: int) -> loop.Chunk:
        state, chunk = _advance(
            *self._static,
            self._parts,
            self.states[chain],
            np.int32(num_steps),
            np.int32(thin),
        )
        self.states[chain] = jax.block_until_ready(state)
        return chunk

    def advance(self, num_steps: int, thin: int, num_draws: int) -> HostChunk:
        """All chains, in parallel where there are cores."""
        chains = range(len(self.states))
        if self._pool is None:
            chunks = [self._one(chain, num_steps, thin) for chain in chains]
        else:
            chunks = list(self._pool.map(lambda chain: self._one(chain, num_steps, thin), chains))
        host = [jax.tree.map(np.asarray, chunk) for chunk in chunks]
        stacked = jax.tree.map(
            lambda *leaves: np.stack([leaf[:num_draws] if leaf.ndim else leaf for leaf in leaves]), *host
        )
        return HostChunk(*stacked)

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


_AXES: Any = KernelState._make((0, 0, 0, None, 0, 0))
"""The step number is common to all chains, so that branches on it stay branches."""


@partial(jax.jit, static_argnums=0)
def _start_all(
    model: Model, parts: loop.Parts, begin: loop.Start, key: Key, chains: Array
) -> tuple[KernelState, Array]:
    def one(chain: Array) -> tuple[KernelState, Array]:
        return loop.start_chain(model, parts, begin, key, chain)

    return jax.vmap(one, out_axes=(_AXES, 0))(chains)


@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=4)
def _advance_all(
    model: Model,
    keep_gradients: bool,
    capacity: int,
    parts: loop.Parts,
    states: KernelState,
    num_steps: Any,
    thin: Any,
) -> tuple[KernelState, loop.Chunk]:
    def one(state: KernelState) -> tuple[KernelState, loop.Chunk]:
        return loop.advance(model, keep_gradients, capacity, parts, state, num_steps, thin)

    return jax.vmap(one, in_axes=(_AXES,), out_axes=(_AXES, 0))(states)


class VectorizedChains:
    """All chains in one program, vectorised with `vmap`."""

    def __init__(self, model: Model, ready: Ready, num_chains: int, key: Key, keep_gradients: bool):
        self.capacity = _capacity(ready.start.position, keep_gradients, num_chains)
        self._static = (model, keep_gradients, self.capacity)
        self._parts = ready.parts
        numbers = np.arange(num_chains, dtype=np.int32)
        self.states, self.first_density = _start_all(model, ready.parts, ready.start, key, numbers)

    @property
    def first_gradient(self) -> PyTree:
        """The gradients of the current states."""
        return self.states.gradient.total

    def advance(self, num_steps: int, thin: int, num_draws: int) -> HostChunk:
        """One call for all chains."""
        self.states, chunk = _advance_all(
            *self._static, self._parts, self.states, np.int32(num_steps), np.int32(thin)
        )
        host = jax.tree.map(np.asarray, chunk)
        return HostChunk(*jax.tree.map(lambda leaf: leaf[:, :num_draws] if leaf.ndim > 1 else leaf, host))

    def close(self) -> None:
        """Nothing to release."""
