"""Access to all rows for the set-up and the loop, whether they are on the device or on disk.

A table provides three things: the sum of a summand over all rows (in pieces, so that memory does not grow with the
data), a few rows spaced over the data, and segments: arrays on the device together with a batching that serves a
range of estimates from them. For data on the device one segment serves a whole run; for streamed data a segment is
a superbatch (see `scirocco.data.streams`).
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _tree
from scirocco._programs import setup_program
from scirocco.data.batching import Batching, IndependentRows
from scirocco.data.shuffle import random_order, uniform_index
from scirocco.data.sizes import READING
from scirocco.types import Array, ArrayLike, Data, Key, Params, PyTree, Rows

_CHUNK_BYTES = 1 << 21  # of rows in one piece of a sum over all
_CHUNK_BYTES_ACCELERATOR = 1 << 26  # the same on a GPU
_CHUNK_WORK, _FEWEST = 1 << 19, 32
"""The same for rows that cost as much as many, in units of plain rows, and the least number of them."""
_DENSE_NUMBERS = 1 << 23  # that the rows of a piece may make at once


class Summed(Protocol):
    """f whose sum over rows can be computed."""

    def total(self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None) -> PyTree:
        """Σ_i w_i f(θ, x_i) over the rows."""


class EachRow(Protocol):
    """f whose value for each row can be computed."""

    def each(self, position: Params, rows: Rows, key: Key | None = None) -> PyTree:
        """f(θ, x_i) for each row."""


class Summand(Summed, EachRow, Protocol):
    """f in Σ_i f(θ, x_i); hashable, because compiled programs are kept for each summand."""


@runtime_checkable
class OverDevices(Summand, Protocol):
    """A summand whose rows are on several devices."""

    @property
    def here(self) -> Summand:
        """The part of this device."""

    def across(self, total: PyTree) -> PyTree:
        """The sum of the parts."""


@runtime_checkable
class SaysIfDense(Summed, Protocol):
    """A summand that says whether the value of a row takes as many numbers as there are parameters."""

    @property
    def dense(self) -> bool:
        """Whether it does."""


@runtime_checkable
class SaysHowMany(Summed, Protocol):
    """A summand that says how many numbers the value of a row takes."""

    def numbers_per_row(self, position: Params) -> int:
        """The numbers, with the intermediate results."""


@runtime_checkable
class SummandOfSummand(Protocol):
    """A summand made from another one."""

    @property
    def summand(self) -> Summed:
        """The other one."""


@runtime_checkable
class SummandOfModel(Protocol):
    """The summand of a model."""

    @property
    def model(self) -> Any:
        """The model."""


def is_dense(summand: Summed) -> bool:
    """Whether the value of a row takes as many numbers as there are parameters, according to the summand."""
    return isinstance(summand, SaysIfDense) and summand.dense


def full_sum(
    summand: Summed, position: Params, data: Data, num_rows: int, chunk: int | None = None, key: Key | None = None
) -> PyTree:
    """Σ_i f(θ, x_i) over the first `num_rows` rows of arrays on the device (inside a compiled program).

    The last chunk extends backwards to be full, and the rows that were already counted get weight 0: one graph serves
    all chunks.
    """
    if isinstance(summand, OverDevices):  # one sum of sums at the end, not one per chunk
        return summand.across(full_sum(summand.here, position, data, num_rows, chunk, key))
    chunk = min(num_rows, chunk or rows_per_chunk(data, _row_cost(summand, data)))
    if is_dense(summand):
        chunk = min(chunk, max(1, _DENSE_NUMBERS // max(1, _tree.size(position))))
        return _plain_sum(summand, position, data, num_rows, chunk, key)
    if isinstance(summand, SaysHowMany):
        chunk = min(chunk, max(1, _DENSE_NUMBERS // max(1, summand.numbers_per_row(position))))
    steps = -(-num_rows // chunk)
    weighted = num_rows % chunk != 0

    def part(step: ArrayLike) -> PyTree:
        begin = jnp.minimum(step * chunk, num_rows - chunk)
        rows = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, begin, chunk), data)
        fresh = begin + jnp.arange(chunk) >= step * chunk
        own = None if key is None else jax.random.fold_in(key, step)
        return summand.total(position, rows, fresh.astype(jnp.float32) if weighted else None, own)

    spec = jax.eval_shape(part, 0)
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), spec)
    return jax.lax.fori_loop(0, steps, lambda step, total: _tree.add(total, part(step)), zeros)


def _plain_sum(summand: Summed, position: Params, data: Data, num_rows: int, chunk: int, key: Key | None) -> PyTree:
    """The same without weights, which would store every row's value separately; the last rows are summed separately."""

    def part(begin: ArrayLike, length: int, number: ArrayLike) -> PyTree:
        rows = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, begin, length), data)
        return summand.total(position, rows, None, None if key is None else jax.random.fold_in(key, number))

    whole, rest = divmod(num_rows, chunk)
    total = part(whole * chunk, rest, whole) if rest else None
    if total is None:
        whole -= 1
        total = part(whole * chunk, chunk, whole)
    return jax.lax.fori_loop(0, whole, lambda step, sums: _tree.add(sums, part(step * chunk, chunk, step)), total)


def _row_cost(summand: Summed, data: Data) -> float:
    """The cost of a row of the model of a summand, see `model.Facts`."""
    inner = summand.summand if isinstance(summand, SummandOfSummand) else summand
    if not isinstance(inner, SummandOfModel):
        return 1.0
    spec = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), data)
    return float(inner.model.facts.row_cost(spec))


def rows_per_chunk(data: Data, row_cost: float = 1.0) -> int:
    """Rows that fill about 2 MB: enough to keep a core busy, few enough for its cache; 64 MB on accelerators.

    Fewer of those whose log likelihood has large intermediate results.
    """
    if row_cost > 1:
        return max(_FEWEST, int(_CHUNK_WORK / row_cost))
    row_bytes = max(1, sum(leaf.nbytes // max(1, leaf.shape[0]) for leaf in jax.tree.leaves(data)))
    room = _CHUNK_BYTES if jax.default_backend() == "cpu" else _CHUNK_BYTES_ACCELERATOR
    return max(256, room // row_bytes)


@dataclass(frozen=True)
class Probed:
    """The summand and its derivative along a direction: f and ∂f·v at the position (θ, v)."""

    summand: Summand

    def total(self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None) -> PyTree:
        """Both sums."""
        at, direction = position
        return jax.jvp(lambda p: self.summand.total(p, rows, weights, key), (at,), (direction,))

    def each(self, position: Params, rows: Rows, key: Key | None = None) -> PyTree:
        """Both for each row."""
        at, direction = position
        return jax.jvp(lambda p: self.summand.each(p, rows, key), (at,), (direction,))


ENDLESS = 1 << 31  # steps: more than a run has


class Segment(NamedTuple):
    """Rows on the device that serve the estimates numbered from `start` up to `stop`."""

    data: Data
    batching: Batching
    start: int
    stop: int


class Feed(abc.ABC):
    """The segments of one chain, requested in ascending order."""

    @abc.abstractmethod
    def at(self, number: int) -> Segment:
        """The segment for estimate `number`; earlier ones are no longer valid."""

    def close(self) -> None:  # noqa: B027
        """Release threads and buffers."""


class Table(abc.ABC):
    """All rows."""

    num_rows: int
    batching: Batching
    """How batches are drawn: their size, the finite-population factor, the length of an epoch."""
    streamed: bool
    whole = True
    """Whether a program that receives the data has all rows, as arrays in one place."""
    row_spec: PyTree
    """Shape and dtype of one row on the device."""

    @property
    def steps_in_segment(self) -> int:
        """The maximum number of estimates for one segment."""
        return ENDLESS

    @abc.abstractmethod
    def feed(self, key: Key) -> Feed:
        """The batches of a chain's batch key."""

    @abc.abstractmethod
    def sum(self, summand: Summed, position: Params, key: Key | None = None) -> PyTree:
        """Σ_i f(θ, x_i) over all rows (host side: one pass); `key` is for random summands."""

    @abc.abstractmethod
    def each(self, summand: EachRow, position: Params, key: Key | None = None) -> PyTree:
        """f(θ, x_i) for every row, in the order of batch indices."""

    @abc.abstractmethod
    def spread_rows(self, count: int) -> Rows:
        """`count` rows spaced evenly over the data, on the device."""

    @abc.abstractmethod
    def random_rows(self, count: int, key: Key, replace: bool = True) -> Rows:
        """`count` uniform rows (all of them if there are no more), on the device."""

    @abc.abstractmethod
    def with_batches_of(self, size: int) -> Table:
        """The same rows in smaller batches."""


class Resident(Table):
    """Rows held as arrays on the device."""

    streamed = False

    def __init__(self, data: Data, batching: Batching):
        self.data, self.batching, self.num_rows = data, batching, batching.num_rows
        self.row_spec = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), data)

    def feed(self, key: Key) -> Feed:
        """One segment for all estimates."""
        return WholeFeed(Segment(self.data, self.batching, 0, ENDLESS))

    def sum(self, summand: Summed, position: Params, key: Key | None = None) -> PyTree:
        """One compiled pass."""
        return _sum.of(summand, self.num_rows)(position, self.data, key)

    def program(self, summand: Summed, position: Params, key: Key | None = None) -> tuple[Any, tuple[Any, ...]]:
        """The jitted function of `sum`, and its arguments."""
        return _sum, (summand, self.num_rows, position, self.data, key)

    def each(self, summand: EachRow, position: Params, key: Key | None = None) -> PyTree:
        """In chunks, so that the intermediates stay small."""
        return _each(summand, self.num_rows, position, self.data, key)

    def spread_rows(self, count: int) -> Rows:
        """Every k-th row."""
        return _spread_rows(count, max(1, self.num_rows // count), self.data)

    def random_rows(self, count: int, key: Key, replace: bool = True) -> Rows:
        """A gather."""
        return random_rows(self.num_rows, count, replace, self.data, key)

    def with_batches_of(self, size: int) -> Table:
        """Independent rows, which need no arrangement."""
        return Resident(self.data, IndependentRows(self.num_rows, size, replace=True))


class WholeFeed(Feed):
    """One segment that serves every estimate."""

    def __init__(self, segment: Segment):
        self.segment = segment

    def at(self, number: int) -> Segment:
        """Always the same."""
        return self.segment


@setup_program(2)
def _sum(summand: Summed, num_rows: int, position: Params, data: Data, key: Key | None) -> PyTree:
    return full_sum(summand, position, data, num_rows, key=key)


@partial(jax.jit, static_argnums=(0, 1))
def _each(summand: EachRow, num_rows: int, position: Params, data: Data, key: Key | None) -> PyTree:
    rows = jax.tree.map(lambda leaf: leaf[:num_rows], data)

    def one(numbered: tuple[Array, PyTree]) -> PyTree:
        number, row = numbered
        own = None if key is None else jax.random.fold_in(key, number)
        values = summand.each(position, jax.tree.map(lambda leaf: leaf[None], row), own)
        return jax.tree.map(lambda value: value[0], values)

    return jax.lax.map(one, (jnp.arange(num_rows), rows), batch_size=rows_per_chunk(data))


@partial(jax.jit, static_argnums=(0, 1))
def _spread_rows(count: int, stride: int, data: Data) -> Rows:
    return jax.tree.map(lambda leaf: leaf[: count * stride : stride], data)


@partial(jax.jit, static_argnums=(0, 1, 2))
def random_rows(num_rows: int, count: int, replace: bool, data: Data, key: Key) -> Rows:
    """`count` uniform rows of arrays on the device (all of them if there are no more)."""
    count = min(num_rows, count)
    if count == num_rows:
        index = jnp.arange(num_rows)
    elif replace:
        index = uniform_index(key, (count,), num_rows)
    else:
        index = random_order(jax.random.bits(key, (2,), jnp.uint32), jnp.arange(count), num_rows)
    return jax.tree.map(lambda leaf: leaf.at[index].get(mode="promise_in_bounds"), data)


def to_device(array: np.ndarray) -> jax.Array:
    """The array as a JAX array, without a copy if memory is shared and its start is aligned.

    Large data are then used in place: they must not change while the result is in use.
    """
    shared = jax.default_backend() == "cpu" and array.nbytes >= READING.shared_bytes
    # required by DLPack
    fit = array.flags.c_contiguous and array.flags.writeable and array.dtype.kind in "fiu"
    if shared and fit and array.ctypes.data % 64 == 0:
        return jnp.from_dlpack(array)
    return jax.device_put(array)


def size_of_row(spec: PyTree) -> int:
    """Bytes in one row."""
    return max(1, _tree.nbytes(spec))
