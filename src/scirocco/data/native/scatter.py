"""A uniformly random order of rows that come in a stream, of unknown number, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from scirocco.data.native.npy import as_bytes

_NUM_BUCKETS = 256
_PIECE = 4 << 20
_INDEX_BYTES = 16


class RowShuffle:
    """Shuffle rows in one pass over the source.

    Every row goes to one of 256 buckets, chosen uniformly and independently; then each bucket is loaded, shuffled and
    handed on. That is the same as sorting the rows by independent uniform numbers, whose leading digit is the bucket:
    every permutation is exactly equally likely. The number of rows need not be known beforehand. When all of them
    fit the memory budget there is one bucket, in memory, and nothing is written; a bucket that turns out too large
    for the budget is shuffled in the same way, through buckets of its own.

    The order depends only on the seed, the memory budget, and the rows' number and dtypes, not on how the source
    cuts them into chunks.

    Parameters
    ----------
    record
        One row of all arrays, as a structured dtype.
    folder
        Where the bucket files go; they are deleted as they are used.
    rng, memory
        The generator, and the budget in bytes.
    """

    def __init__(
        self,
        record: np.dtype,
        folder: Path,
        rng: np.random.Generator,
        memory: int,
        *,
        num_buckets: int = _NUM_BUCKETS,
        prefix: str = "bucket",
    ):
        self.record, self.folder, self.rng, self.memory = record, folder, rng, memory
        self.num_buckets, self.prefix = num_buckets, prefix
        # Half of the budget for the rows and their order; the rest is for what the reader and the writer hold.
        self.capacity = max(1, memory // 2 // (record.itemsize + _INDEX_BYTES))
        self.filled = 0
        self.counts = np.zeros(num_buckets, np.int64)
        self._rows: np.ndarray | None = None

    def add(self, chunk: Mapping[str, np.ndarray]) -> None:
        """Take in some rows."""
        length, start = len(next(iter(chunk.values()))), 0
        while start < length:
            if self.filled == self.capacity:
                self._spill()
            if self._rows is None:
                self._rows = np.empty(
                    self.capacity, self.record
                )  # the system commits pages when they are touched
            count = min(length - start, self.capacity - self.filled)
            for name, array in chunk.items():
                self._rows[name][self.filled : self.filled + count] = array[start : start + count]
            self.filled, start = self.filled + count, start + count

    def drain(self) -> Iterator[np.ndarray]:
        """All rows in random order, as pieces of a structured array."""
        if not self.counts.any():
            if self._rows is not None:
                yield from self._shuffled(self._rows[: self.filled])
            return
        self._spill()
        self._rows = None
        for bucket in range(self.num_buckets):
            path = self._path(bucket)
            if not self.counts[bucket]:
                continue
            if self.counts[bucket] <= self.capacity:
                yield from self._shuffled(np.fromfile(path, self.record))
            else:
                yield from self._split_again(bucket)
            path.unlink()

    def _spill(self) -> None:
        """Send the rows held to their buckets."""
        if self._rows is None or not self.filled:
            return
        choice = self.rng.integers(0, self.num_buckets, self.filled).astype(np.uint8)
        order = np.argsort(choice, kind="stable")
        ends = np.cumsum(np.bincount(choice, minlength=self.num_buckets))
        for bucket, end in enumerate(ends):
            start = ends[bucket - 1] if bucket else 0
            if end > start:
                with open(self._path(bucket), "ab") as file:
                    file.write(as_bytes(self._rows[order[start:end]]))
                self.counts[bucket] += end - start
        self.filled = 0

    def _split_again(self, bucket: int) -> Iterator[np.ndarray]:
        inner = RowShuffle(
            *(self.record, self.folder, self.rng, self.memory),
            num_buckets=self.num_buckets,
            prefix=self._path(bucket).name,
        )
        step = max(1, _PIECE // self.record.itemsize)
        with open(self._path(bucket), "rb") as file:
            while len(rows := np.fromfile(file, self.record, step)):
                inner.add({name: rows[name] for name in self.record.names or ()})
        yield from inner.drain()

    def _shuffled(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        order = self.rng.permutation(len(rows))
        step = max(1, _PIECE // self.record.itemsize)
        for start in range(0, len(order), step):
            yield rows[order[start : start + step]]

    def _path(self, bucket: int) -> Path:
        return self.folder / f"{self.prefix}-{bucket}"
