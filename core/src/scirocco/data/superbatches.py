"""Which rows a superbatch contains: the host side of batching for data on disk.

A superbatch contains the rows of G successive batches in one array; superbatch s serves the estimates s G to
(s + 1) G - 1. Its content depends only on (batch key, s), so a run that is interrupted and resumed has the
same batches. Reading G batches at once makes a streamed step nearly as cheap as one in memory.

Effect on the distribution
--------------------------
scattered rows
    The rows that the batching would draw from an array in memory: the same chain, bit for bit. Every row is a
    random access, so the file should fit into the page cache.
shuffled blocks
    B windows of L = G n / B neighbouring rows are read (from a random offset, in random order, both new each epoch,
    so within an epoch no row is used twice), and their rows are shuffled together before they are cut into G batches.
    The start of a window is uniform on 0..N-1, hence every single estimate is unbiased. If the rows were shuffled
    when they were written (as by `sc.data.convert`), neighbours are random rows, and the distribution is that of random
    reshuffling: at most the variance of independent batches. If they were not, rows of a batch share a window with
    probability 1/B, and what neighbours have in common is not averaged out: the variance of an estimate is up to
    1 + (n - 1) ρ / B times that of independent rows, with ρ the correlation of values within a window.
"""

from __future__ import annotations

import abc
from functools import partial
from typing import Any

import jax
import numpy as np

from scirocco._tree import pytree_dataclass, static
from scirocco.data.batching import Batch, Batching, Blocks
from scirocco.types import Array, Data, Key, Rows

_RUN_BYTES = 65_536  # of rows that are moved together
_RUNS_IN_BATCH = 4  # the fewest


@pytree_dataclass
class Superbatch(Batching):
    """The batching of one superbatch on the device: batch number `step` is a slice of it."""

    num_rows: int = static()
    size: int = static()
    factor: float = static()
    """Finite-population factor of the original batching."""
    length: int = static()
    """Steps per epoch of the original batching."""
    first: Array
    """Number of the estimate for the first batch."""
    index: Array | None
    weights: Array | None

    whole = False

    @property
    def correction(self) -> float:
        """The factor of the original batching."""
        return self.factor

    @property
    def epoch(self) -> int:
        """The epoch of the original batching."""
        return self.length

    def plan(self, key: Key, step: Array) -> Array:
        """Where the batch starts."""
        return (step - self.first) * self.size

    def take(self, data: Data, plan: Array) -> Batch:
        """A contiguous copy."""

        def cut(leaf: Array) -> Array:
            return jax.lax.dynamic_slice_in_dim(leaf, plan, self.size)

        index = None if self.index is None else cut(self.index)
        weights = None if self.weights is None else cut(self.weights)
        scale = self.num_rows / self.size if weights is None else 1.0
        return Batch(jax.tree.map(cut, data), index, weights, scale, self.factor, self.num_rows)


class SuperbatchScheme(abc.ABC):
    """Fills superbatches."""

    group: int
    """G, the number of batches in a superbatch."""
    batching: Batching
    in_words: str
    spare_rows: int = 0
    """Additional rows of memory that `fill` needs."""

    def __init__(self, batching: Batching, group: int):
        self.batching, self.group = batching, group

    @abc.abstractmethod
    def plans(self, key: Key, number: int, count: int) -> list[np.ndarray]:
        """The plans of superbatches `number` to `number + count - 1`.

        Made in the computing thread: a program started by another thread would wait for the one that runs.
        """

    @abc.abstractmethod
    def fill(self, reader: Any, plan: np.ndarray, seed: list[int], out: Rows, spare: Rows) -> np.ndarray | None:
        """Put the rows of a superbatch into `out`; return their numbers if they are known.

        `seed` is the superbatch's own, for randomness in addition to the plan.
        """

    def weights(self, index: np.ndarray | None) -> np.ndarray | None:
        """The weights of the rows, if they differ."""
        return None


class ScatteredRows(SuperbatchScheme):
    """Rows drawn one by one, by the batching for arrays in memory."""

    in_words = "rows drawn one by one"

    def plans(self, key: Key, number: int, count: int) -> list[np.ndarray]:
        """Row numbers, drawn as a program on the device would draw them."""
        first = np.int32(number * self.group)
        return list(np.asarray(_plans(self.batching, count * self.group, key, first)).reshape(count, -1))

    def fill(self, reader: Any, plan: np.ndarray, seed: list[int], out: Rows, spare: Rows) -> np.ndarray | None:
        """Gather."""
        reader.take(plan, out)
        return plan

    def weights(self, index: np.ndarray | None) -> np.ndarray | None:
        """The weights of the batching for arrays in memory."""
        return None if index is None else self.batching.row_weights(index)


class ShuffledBlocks(SuperbatchScheme):
    """Windows of neighbouring rows, shuffled together."""

    def __init__(self, num_rows: int, size: int, group: int, num_blocks: int, row_bytes: int, shuffled: bool):
        super().__init__(Blocks(num_rows, size), group)
        self.num_blocks = num_blocks
        self.block_rows = self.spare_rows = group * size // num_blocks
        self._windows = Blocks(num_rows, self.block_rows)
        # If neighbours are random rows already, short runs of them are moved together: several times faster.
        longest = min(_RUN_BYTES // row_bytes, size // _RUNS_IN_BATCH)
        self.run = _largest_divisor(size, longest) if shuffled else 1
        self.in_words = f"{num_blocks} blocks of {self.block_rows} rows, shuffled together"

    def plans(self, key: Key, number: int, count: int) -> list[np.ndarray]:
        """Where the windows start."""
        first = np.int32(number * self.num_blocks)
        starts = np.asarray(_plans(self._windows, count * self.num_blocks, key, first))
        return list(starts.reshape(count, -1))

    def fill(self, reader: Any, plan: np.ndarray, seed: list[int], out: Rows, spare: Rows) -> np.ndarray | None:
        """Read the windows, and put their rows into random order."""
        starts, random = plan, np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed)))
        slots = random.permutation(self.group * self.batching.size // self.run)
        by_window = slots.reshape(self.num_blocks, -1)
        inside = (starts + self.block_rows <= self._windows.num_rows) & reader.scatters
        if inside.any():
            reader.scatter(starts[inside].tolist(), by_window[inside].tolist(), self.run, out)
        for window in np.flatnonzero(~inside):
            self._read_and_move(reader, int(starts[window]), by_window[window], out, spare)
        if not reader.wants_index:
            return None
        rows = (starts[:, None].astype(np.int64) + np.arange(self.block_rows)) % self._windows.num_rows
        index = np.empty((len(slots), self.run), np.int32)
        index[slots] = rows.reshape(-1, self.run)
        return index.reshape(-1)

    def _read_and_move(self, reader: Any, start: int, places: np.ndarray, out: Rows, spare: Rows) -> None:
        """Read a window in two steps; one that reaches the end continues at the beginning."""
        length, inside = self.block_rows, min(self.block_rows, self._windows.num_rows - start)
        reader.read(start, start + inside, spare, 0)
        if inside < length:
            reader.read(0, length - inside, spare, inside)

        def move(rows: np.ndarray, to: np.ndarray) -> None:
            to.reshape(-1, self.run, *rows.shape[1:])[places] = rows.reshape(-1, self.run, *rows.shape[1:])

        jax.tree.map(move, spare, out)


@partial(jax.jit, static_argnums=1)
def _plans(batching: Batching, count: int, key: Key, first: Array) -> Array:
    """The plans of `count` successive estimates, exactly as a program on the device would draw them."""
    return jax.vmap(lambda step: batching.plan(key, first + step))(np.arange(count, dtype=np.int32))


def _largest_divisor(number: int, limit: int) -> int:
    return max(k for k in range(1, max(1, min(number, limit)) + 1) if number % k == 0)
