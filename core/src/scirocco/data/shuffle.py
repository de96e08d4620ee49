"""Random orders of rows: computed entry by entry, stored as an array, or applied to a stream of rows.

`random_order` needs O(1) time and memory per entry. It is the swap-or-not shuffle (Hoang, Morris & Rogaway 2012): in
every round an index x is paired with K - x mod m for a random K, and a hash bit of the pair decides whether the two
swap. Every round is a permutation of 0..m-1 for any m, so the whole is one. After r rounds an index is uniform up to
2^-r. No table, no sort, no checkpoint: a batch without replacement costs O(n), never O(N), and the order of an
epoch follows from its key alone. `shuffled_numbers` is a permutation on the host; `RowShuffle` puts a stream of rows,
of unknown number, into random order in bounded memory. (Compiled code of the host has a twin of `random_order` that
keeps neighbours together, `models.dp._common.rows_at`.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.data.native.npy import as_bytes
from scirocco.types import Array, Key

ROUNDS = 32  # an index is then uniform up to 2^-32


def random_order(words: Array, positions: Array, length: int | Array) -> Array:
    """π(positions), where π is the random permutation of 0..length-1 defined by two random 32-bit words.

    With arrays of words and lengths every position has its own permutation.
    """
    m = jnp.asarray(length, jnp.uint32)

    def swap_or_not(number: Array, x: Array) -> Array:
        salt = _mix(words[0] + jnp.uint32(0x9E3779B9) * (2 * number.astype(jnp.uint32) + 1))
        pivot = multiply_high(_mix(salt ^ words[1]), m)
        partner = jnp.where(pivot >= x, pivot - x, pivot + m - x)
        coin = _mix(jnp.maximum(x, partner) ^ salt) >> 31
        return jnp.where(coin == 1, partner, x)

    return jax.lax.fori_loop(0, ROUNDS, swap_or_not, positions.astype(jnp.uint32)).astype(jnp.int32)


def shuffled_numbers(numbers: int | np.ndarray, seed: int, *purpose: int) -> np.ndarray:
    """0..numbers-1, or the given numbers, in a uniformly random order, on the host; one for each seed and purpose."""
    return np.random.default_rng([seed, *map(int, purpose)]).permutation(numbers)


def epoch_words(key: Key, epoch: Array, count: int) -> Array:
    """`count` random 32-bit words for an epoch, hashed from the key and the epoch's number.

    The order of a shuffle needs no cryptographic generator, and a few multiplications compile ten times faster.
    """
    first, second = jax.random.key_data(key).reshape(-1)[:2]
    counters = jnp.asarray(epoch, jnp.uint32) * jnp.uint32(count) + jnp.arange(count, dtype=jnp.uint32)
    return _mix(first ^ _mix(counters ^ _mix(second)))


def scale_word(word: Array, length: int) -> Array:
    """A random 32-bit word as an integer 0..length-1; each within 2^-32 of its probability 1/length."""
    return multiply_high(word, jnp.uint32(length)).astype(jnp.int32)


def uniform_index(key: Key, shape: tuple[int, ...], length: int) -> Array:
    """Uniform integers 0..length-1.

    One 32-bit word each, scaled by a multiply-high: several times cheaper than `jax.random.randint`. No index is more
    than 2^-32 off its probability; beyond 2^22 rows, where this matters, two words make it 2^-64. (There
    `randint` reduces a single word modulo the length, which favours small indices by up to length / 2^32.)
    """
    if length <= 1 << 22:
        return scale_word(jax.random.bits(key, shape, jnp.uint32), length)
    high, low = jax.random.bits(key, (2, *shape), jnp.uint32)
    m = jnp.uint32(length)
    below = high * m
    carry = (below + multiply_high(low, m)) < below
    return (multiply_high(high, m) + carry.astype(jnp.uint32)).astype(jnp.int32)


def multiply_high(a: Array, b: Array) -> Array:
    """The upper 32 bits of the product of two 32-bit words, without 64-bit arithmetic."""
    mask = jnp.uint32(0xFFFF)
    a_low, a_high, b_low, b_high = a & mask, a >> 16, b & mask, b >> 16
    low, cross = a_low * b_low, a_high * b_low
    middle = (low >> 16) + (cross & mask) + a_low * b_high
    return a_high * b_high + (cross >> 16) + (middle >> 16)


def _mix(x: Array) -> Array:
    """A 32-bit finaliser with low bias: every input bit reaches every output bit."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


_NUM_BUCKETS = 256  # one byte names a bucket
_PIECE = 4 << 20  # bytes that are returned at a time
_INDEX_BYTES = 16  # of a row, for its order


class RowShuffle:
    """Shuffle rows in one pass over the source.

    Every row goes to one of 256 buckets, chosen uniformly and independently; then each bucket is loaded, shuffled and
    returned. This is equivalent to sorting the rows by independent uniform numbers, whose leading digit is the bucket:
    every permutation is exactly equally likely. The number of rows need not be known beforehand. If all rows
    fit the memory budget there is one bucket, in memory, and nothing is written; a bucket that is too large
    for the budget is shuffled in the same way, through its own buckets.

    The order depends only on the seed, the memory budget, and the rows' number and dtypes, not on how the source
    divides them into chunks.

    Parameters
    ----------
    record
        One row of all arrays, as a structured dtype.
    folder
        Folder of the bucket files; they are deleted as they are used.
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
        # Half of the budget for the rows and their order; the rest is for the reader and the writer.
        self.capacity = max(1, memory // 2 // (record.itemsize + _INDEX_BYTES))
        self.filled = 0
        self.counts = np.zeros(num_buckets, np.int64)
        self._rows: np.ndarray | None = None

    def add(self, chunk: Mapping[str, np.ndarray]) -> None:
        """Add some rows."""
        length, start = len(next(iter(chunk.values()))), 0
        while start < length:
            if self.filled == self.capacity:
                self._spill()
            if self._rows is None:
                # the system commits pages when they are touched
                self._rows = np.empty(self.capacity, self.record)
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
        """Distribute the rows in memory to their buckets."""
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
