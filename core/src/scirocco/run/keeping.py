"""What is kept of the results of a chunk, how it comes to the host, and where it goes: memory, or a store on disk."""

from __future__ import annotations

import abc
import os
import time
from functools import cache
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from scirocco import _checks, _tree
from scirocco.reducers import Reducing
from scirocco.run import loop
from scirocco.run.sizes import RUNNING
from scirocco.samplers import Gradient, Sampler
from scirocco.store import Store, StoredArray, Variable
from scirocco.types import Params, PyTree

_MANY_BYTES, _PINNED = 1 << 20, "pinned_host"
"""Bytes of a leaf from which it is copied by way of the kind of memory that JAX calls so."""


class HostChunk(NamedTuple):
    """The results of a chunk on the host; leaves have the axes (chain, draw, ...)."""

    draws: PyTree | None
    """The draws that are kept: all, every k-th, or None."""
    gradients: PyTree | None
    stats: dict[str, np.ndarray]
    traces: dict[str, PyTree]
    bad_step: np.ndarray
    bad_leaf: np.ndarray

    @property
    def num_draws(self) -> int:
        """Draws made in each chain, kept or not."""
        return jax.tree.leaves(self.stats)[0].shape[1]


class Keeping(NamedTuple):
    """What the user wants to keep."""

    gradients: bool
    every: int
    """1: all draws; k: every k-th; 0: none."""
    reducing: Reducing

    @classmethod
    def checked(cls, keep_gradients: Any, keep_draws: Any, reducers: Any) -> Keeping:
        """Build from the arguments of `sample`."""
        every = int(keep_draws) if isinstance(keep_draws, bool) else _checks.positive_int(keep_draws, "keep_draws")
        return cls(_checks.flag(keep_gradients, "keep_gradients"), every, Reducing(reducers))

    @property
    def gradients_in_loop(self) -> bool:
        """Whether the loop keeps the gradients of a chunk: for the user, or for a reducer."""
        return self.gradients or self.reducing.needs_gradients

    def _chosen(self, count: int, made: int) -> slice:
        """The draws that are kept of the next `count`, after `made` earlier ones."""
        if not self.every:
            return slice(0, 0)
        return slice((self.every - 1 - made) % self.every, count, self.every)

    def begin_copy(self, chunk: loop.Chunk, count: int, made: int) -> loop.Chunk:
        """Let the device copy what is kept of its chunk (chain, draw, ...) to the host as soon as it is there.

        Returns the chunk with the buffers that are copied.
        """
        kept = range(count)[self._chosen(count, made)]
        parts: tuple[PyTree, ...] = (chunk.draws, chunk.gradients if self.gradients else None) if kept else (None, None)
        # buffers as a whole: the part that is filled would be a program for each length
        draws, gradients, stats = jax.tree.map(_sent, (*parts, chunk.stats))
        for leaf in (chunk.bad_step, chunk.bad_leaf):
            leaf.copy_to_host_async()
        return chunk._replace(
            draws=chunk.draws if draws is None else draws,
            gradients=chunk.gradients if gradients is None else gradients,
            stats=stats,
        )

    def to_host(
        self, chunk: loop.Chunk, count: int, made: int, axis: int, copied: loop.Chunk | None = None
    ) -> HostChunk:
        """The first `count` draws of a chunk, thinned, after `made` earlier draws; `axis` is the axis of the draws.

        `copied` is the result of `begin_copy`, if it was called.
        """
        before = (slice(None),) * axis
        every, chosen = (*before, slice(0, count)), (*before, self._chosen(count, made))

        def bring(tree: PyTree, part: Any) -> PyTree:
            def one(leaf: Any) -> np.ndarray:
                length = len(range(leaf.shape[axis])[part[-1]])
                if not length:  # nothing is copied
                    return np.empty((*leaf.shape[:axis], 0, *leaf.shape[axis + 1 :]), leaf.dtype)
                found = np.asarray(leaf)[part]
                whole = 2 * length >= leaf.shape[axis] and not _is_pinned(leaf)
                return found if whole else found.copy()  # else it would keep the buffer

            return jax.tree.map(one, tree)

        there = chunk if copied is None else copied
        draws = bring(there.draws, chosen) if self.every else None
        gradients = bring(there.gradients, chosen) if self.every and self.gradients else None
        traces = bring(self.reducing.trace(chunk.draws, axis), every)
        bad = (np.asarray(chunk.bad_step), np.asarray(chunk.bad_leaf))
        return HostChunk(draws, gradients, bring(there.stats, every), traces, *bad)


def _sent(leaf: Any) -> Any:
    """A leaf whose copy to the host has started.

    Copies to ordinary memory take thirty times as long on an NVIDIA GPU as copies to pinned memory, which the host sees
    as an array. It is scarce, so draws are copied from there. To get it takes time, in which the device waits: this
    does not pay for single large draws.
    """
    if leaf.nbytes >= _MANY_BYTES and leaf.shape[1] > 1 and _has_pinned_memory():
        return jax.device_put(leaf, leaf.sharding.with_memory_kind(_PINNED))
    leaf.copy_to_host_async()
    return leaf


@cache
def _has_pinned_memory() -> bool:
    device = jax.devices()[0]
    return device.platform == "gpu" and any(m.kind == _PINNED for m in device.addressable_memories())


def _is_pinned(leaf: Any) -> bool:
    return getattr(getattr(leaf, "sharding", None), "memory_kind", None) == _PINNED


def good_draws(chunk: loop.Chunk, count: int, start: int, thin: int, phase: int = 0) -> int:
    """How many of `count` draws were made before any chain diverged (NaN or inf)."""
    bad = np.asarray(chunk.bad_step)
    if np.all(bad < 0):
        return count
    first = int(np.min(bad[bad >= 0]))
    return min(count, max(0, (phase + first - start) // thin))


def join(chunks: list[HostChunk], axis: int) -> HostChunk:
    """Concatenate chunks along the axis of the draws."""
    if len(chunks) == 1:
        return chunks[0]
    bad = next((chunk for chunk in chunks if np.any(chunk.bad_step >= 0)), chunks[0])
    kept = [tuple(chunk[:4]) for chunk in chunks]
    draws, gradients, stats, traces = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis), *kept)
    return HostChunk(draws, gradients, stats, traces, bad.bad_step, bad.bad_leaf)


def stack(chunks: list[HostChunk]) -> HostChunk:
    """Stack the chunks of several chains, cut to the shortest."""
    shortest = [min(lengths) for lengths in zip(*(_lengths(chunk) for chunk in chunks), strict=True)]

    def cut(chunk: HostChunk) -> tuple[PyTree, ...]:
        pairs = zip(chunk[:4], shortest, strict=True)
        return tuple(jax.tree.map(lambda leaf, n=n: leaf[:n], part) for part, n in pairs) + tuple(chunk[4:])

    return HostChunk(*jax.tree.map(lambda *leaves: np.stack(leaves), *map(cut, chunks)))


def _lengths(chunk: HostChunk) -> list[int]:
    return [(leaves[0].shape[0] if (leaves := jax.tree.leaves(part)) else 0) for part in chunk[:4]]


class Chains(abc.ABC):
    """Anything that advances all chains together."""

    capacity: int
    """The maximum number of draws of a chunk."""
    first_chunks: tuple[int, int] | None = None
    """Steps of the first two chunks, before the speed is known; None: the default."""
    steps_together: int = 1
    """Steps made in one loop on an accelerator: chunks of whole loops are faster."""
    most_ahead: int = 0
    """The largest number of chunks that are started before the host requests them."""
    promised: tuple[int, ...] = ()
    """Steps of the chunks that the host will request next, as far as they are known."""
    overlapped: bool = False
    """Whether the device had started the last chunk before it was requested: then its time says little."""
    among_processes: bool = False
    """Whether other processes take part: then all must do the same, even when only one of them writes."""

    @abc.abstractmethod
    def advance(self, num_steps: int, thin: int) -> HostChunk:
        """Make steps in every chain and copy the draws that are kept to the host."""

    @abc.abstractmethod
    def save(self) -> dict[str, np.ndarray]:
        """Everything needed to resume, leaves with a leading chain axis."""

    @abc.abstractmethod
    def reduced(self) -> PyTree:
        """The reducers' states, leaves with a leading chain axis."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release threads."""

    def agree(self, numbers: list[int]) -> list[int]:
        """The largest of each number over all processes that take part."""
        return numbers


class DeviceChains(Chains):
    """Chains of the compiled loop."""

    _parts: loop.Parts
    first_density: Any
    """The log density of the first state, over the rows that were evaluated."""

    @property
    @abc.abstractmethod
    def first_gradient(self) -> PyTree:
        """The gradient of the current state of the first chain, or of all."""

    @property
    @abc.abstractmethod
    def first_state(self) -> loop.KernelState:
        """The current state of the first chain."""

    @property
    @abc.abstractmethod
    def current(self) -> tuple[Params, Gradient]:
        """The current positions and gradients of all chains, leaves (chain, ...)."""

    def retune(self, sampler: Sampler) -> None:
        """Replace the sampler's hyper-parameters; the chains stay where they are."""
        self._parts = self._parts._replace(sampler=sampler)


def buffer_capacity(position: Params, keep_gradients: bool, num_chains: int) -> int:
    """How many draws of that many chains stay on the device before they are copied to the host."""
    per_draw = _tree.nbytes(position) * (2 if keep_gradients else 1) * num_chains + 16
    return max(1, min(RUNNING.buffer_draws, RUNNING.buffer_bytes // per_draw))


GROUPS = {"draws": "posterior", "gradients": "gradients", "stats": "sample_stats", "traces": "traces"}


class Kept(NamedTuple):
    """Everything that a run keeps; leaves (chain, draw, ...), arrays in memory or on disk."""

    draws: PyTree | None
    gradients: PyTree | None
    stats: dict[str, Any]
    traces: dict[str, PyTree]


class Sink(Protocol):
    """Receives chunks, and returns all of them at the end."""

    @property
    def path(self) -> str | None:
        """The store's folder."""

    def add(self, chunk: HostChunk) -> None:
        """Add a chunk."""

    def due(self) -> bool:
        """Whether it is time to commit."""

    def commit(self, state: dict[str, np.ndarray], progress: dict[str, Any]) -> None:
        """Make the chunks so far permanent."""

    def collect(self) -> Kept:
        """All chunks that were added (for a store: committed)."""

    def close(self) -> None:
        """Release the store."""


class MemorySink:
    """Chunks in a list."""

    path = None

    def __init__(self) -> None:
        self._chunks: list[HostChunk] = []

    def add(self, chunk: HostChunk) -> None:
        """Append."""
        if chunk.num_draws:
            self._chunks.append(chunk)

    def due(self) -> bool:
        """Never: memory has no commits."""
        return False

    def commit(self, state: dict[str, np.ndarray], progress: dict[str, Any]) -> None:
        """Nothing to do."""

    def collect(self) -> Kept:
        """All chunks as one."""
        if not self._chunks:
            return Kept(None, None, {}, {})
        parts = [tuple(chunk[:4]) for chunk in self._chunks]
        return Kept(*jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *parts))

    def close(self) -> None:
        """Nothing to release."""


class StoreSink:
    """Chunks to a store; commits every two seconds, less often where a commit takes long."""

    def __init__(self, store: Store, spec: Kept):
        self.store, self._spec, self.path = store, spec, store.path
        self._last, self._pause = time.perf_counter(), RUNNING.commit_seconds

    def add(self, chunk: HostChunk) -> None:
        """Append to each group what there is for it."""
        for part, group in GROUPS.items():
            tree = chunk._asdict()[part]
            leaves = jax.tree.leaves(tree)
            if leaves and leaves[0].shape[1]:
                self.store.append(group, dict(zip(_tree.leaf_names(tree), leaves, strict=True)))

    def due(self) -> bool:
        """Whether the interval between commits has passed."""
        return time.perf_counter() - self._last >= self._pause

    def commit(self, state: dict[str, np.ndarray], progress: dict[str, Any]) -> None:
        """Commit, and measure the time that it takes."""
        begin = time.perf_counter()
        self.store.commit(state, progress)
        self._last = time.perf_counter()
        self._pause = max(RUNNING.commit_seconds, (self._last - begin) / RUNNING.commit_share)

    def collect(self) -> Kept:
        """Arrays that stay on the disk."""
        from scirocco.store import open_stored

        return stored_arrays(open_stored(self.store.path).arrays, self._spec)

    def close(self) -> None:
        """Let go of the folder."""
        self.store.close()


def new_sink(
    path: str | os.PathLike[str] | None, spec: Kept, num_chains: int, record: dict[str, Any], *, overwrite: bool = False
) -> Sink:
    """A sink for such draws: a new store at `path`, or memory if there is none."""
    if path is None:
        return MemorySink()
    return StoreSink(Store.create(path, store_groups(spec), num_chains, record, overwrite=overwrite), spec)


def store_groups(spec: Kept) -> dict[str, dict[str, Variable]]:
    """The groups of a store for such draws (shapes of one draw, no chain or draw axis)."""
    groups = {}
    for part, group in GROUPS.items():
        tree = spec._asdict()[part]
        leaves = jax.tree.leaves(tree)
        if leaves:
            names = _tree.leaf_names(tree)
            groups[group] = {
                name: Variable(tuple(leaf.shape), leaf.dtype) for name, leaf in zip(names, leaves, strict=True)
            }
    return groups


def stored_arrays(arrays: dict[str, dict[str, StoredArray]], spec: Kept) -> Kept:
    """The arrays of a store in the structure of `spec`."""
    parts = []
    for part, group in GROUPS.items():
        like = spec._asdict()[part]
        leaves = [arrays[group][name] for name in _tree.leaf_names(like)] if jax.tree.leaves(like) else []
        parts.append(jax.tree.unflatten(jax.tree.structure(like), leaves) if leaves else like)
    return Kept(*parts)
