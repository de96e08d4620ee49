"""Where draws are written as they are made: a list in memory, or a store on disk."""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from scirocco import _tree
from scirocco.run.keeping import HostChunk
from scirocco.store import Store, StoredArray, Variable
from scirocco.types import PyTree

_COMMIT_SECONDS = 2.0
_COMMIT_SHARE = 0.05
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
        self._last, self._pause = time.perf_counter(), _COMMIT_SECONDS

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
        self._pause = max(_COMMIT_SECONDS, (self._last - begin) / _COMMIT_SHARE)

    def collect(self) -> Kept:
        """Arrays that stay on the disk."""
        from scirocco.store import open_stored

        return stored_arrays(open_stored(self.store.path).arrays, self._spec)

    def close(self) -> None:
        """Let go of the folder."""
        self.store.close()


def new_sink(
    path: str | os.PathLike[str] | None,
    spec: Kept,
    num_chains: int,
    record: dict[str, Any],
    *,
    overwrite: bool = False,
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
                name: Variable(tuple(leaf.shape), leaf.dtype)
                for name, leaf in zip(names, leaves, strict=True)
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
