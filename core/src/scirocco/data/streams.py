"""Rows on disk: a thread reads superbatches ahead while the device works on the last one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _tree
from scirocco._programs import threads
from scirocco.data.arrays import RowSource, check_finite
from scirocco.data.batching import AllRows, Batching, Blocks, IndependentRows, aligned_empty
from scirocco.data.sizes import READING
from scirocco.data.sources import available_memory
from scirocco.data.superbatches import ScatteredRows, ShuffledBlocks, Superbatch, SuperbatchScheme
from scirocco.data.tables import EachRow, Feed, Segment, Summed, Table, size_of_row, to_device
from scirocco.errors import DataChangedError
from scirocco.types import Key, Params, PyTree, Rows

log = logging.getLogger("scirocco")

_SUPERBATCH_BYTES = 32 << 20  # of rows in one superbatch
_WIDE_SUPERBATCH_BYTES = 64 << 20  # if distant rows must be mixed
_MAX_BLOCKS = 16  # windows in a superbatch
_SETUP_BATCH = 500  # rows of the batches of a set-up without batches
BUFFERS = 3  # superbatches: one is used, the others are filled
_PLANNED = 4  # superbatches drawn by one program


class Streamed(Table):
    """Rows of a source, in superbatches."""

    streamed = True
    whole = False

    def __init__(self, source: RowSource, batching: Batching, automatic: bool, wants_index: bool = False):
        self.source = source
        self.num_rows = source.num_rows
        self.reader = _BufferReader(source, wants_index)
        self.row_spec = self.reader.spec
        whole = isinstance(batching, AllRows)  # the host makes passes; batches are only for the set-up
        drawn = Blocks(batching.num_rows, min(_SETUP_BATCH, batching.num_rows)) if whole else batching
        self.scheme, self.reason = choose(source, self.reader.spec, drawn, automatic or whole)
        self.batching = batching if whole else self.scheme.batching

    @property
    def steps_in_segment(self) -> int:
        """Batches in a superbatch."""
        return self.scheme.group

    def feed(self, key: Key) -> Feed:
        """Superbatches; the next one is read ahead."""
        return _SuperbatchFeed(self.reader, self.scheme, key)

    def sum(self, summand: Summed, position: Params, key: Key | None = None) -> PyTree:
        """One sequential pass, in pieces of about 8 MB."""
        total = None
        for number, rows in enumerate(self._pieces()):
            if total is None:
                spec = jax.eval_shape(summand.total, position, rows, None, key)
                total = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), spec)
            own = _own(key, number)
            total = jax.block_until_ready(_accumulate(summand, position, rows, total, own))
        return total

    def each(self, summand: EachRow, position: Params, key: Key | None = None) -> PyTree:
        """One pass; the result has a value for every row, so it must fit into memory."""
        parts = [
            jax.tree.map(np.asarray, _each(summand, position, rows, _own(key, number)))
            for number, rows in enumerate(self._pieces())
        ]
        return jax.tree.map(lambda *leaves: jnp.asarray(np.concatenate(leaves)), *parts)

    def _pieces(self) -> Iterator[Rows]:
        """All rows in order; a piece is valid until the next but one is requested."""
        length = min(self.num_rows, max(256, READING.pass_bytes // size_of_row(self.reader.spec)))
        buffers = [self.reader.buffer(length) for _ in range(2)]

        def read(number: int) -> Rows:
            start, stop = number * length, min(self.num_rows, (number + 1) * length)
            rows = jax.tree.map(lambda leaf: leaf[: stop - start], buffers[number % 2])
            self.reader.read(start, stop, rows, 0)
            self.reader.check(rows, start)
            return rows

        count = -(-self.num_rows // length)
        with threads(1, "pass") as pool:
            ahead = pool.submit(read, 0)
            for number in range(count):
                rows = ahead.result()
                if number + 1 < count:
                    ahead = pool.submit(read, number + 1)
                yield jax.tree.map(to_device, rows)

    def spread_rows(self, count: int) -> Rows:
        """Every k-th row."""
        stride = max(1, self.num_rows // count)
        return self._some(np.arange(count) * stride)

    def random_rows(self, count: int, key: Key, replace: bool = True) -> Rows:
        """A gather on the host."""
        count = min(count, self.num_rows)
        if count == self.num_rows:
            return self._some(np.arange(count))
        words = np.asarray(jax.random.key_data(key)).ravel().tolist()
        return self._some(np.sort(np.random.default_rng(words).choice(self.num_rows, count, replace=replace)))

    def _some(self, index: np.ndarray) -> Rows:
        rows = self.reader.buffer(len(index))
        self.reader.take(index, rows)
        return jax.tree.map(jnp.asarray, rows)

    def with_batches_of(self, size: int) -> Table:
        """Another scheme over the same source."""
        return Streamed(self.source, Blocks(self.num_rows, size), automatic=True)


@partial(jax.jit, static_argnums=0)
def _accumulate(summand: Summed, position: Params, rows: Rows, total: PyTree, key: Key | None) -> PyTree:
    return _tree.add(total, summand.total(position, rows, None, key))


@partial(jax.jit, static_argnums=0)
def _each(summand: EachRow, position: Params, rows: Rows, key: Key | None) -> PyTree:
    return summand.each(position, rows, key)


def _own(key: Key | None, number: int) -> Key | None:
    """The key of a piece, if the summand is random."""
    return None if key is None else jax.random.fold_in(key, number)


class _BufferReader:
    """Fills preallocated arrays from any source, in the precision of JAX."""

    def __init__(self, source: RowSource, wants_index: bool):
        self.source, self.wants_index = source, wants_index
        self.spec = jax.tree.map(
            lambda s: jax.ShapeDtypeStruct(s.shape, jax.dtypes.canonicalize_dtype(s.dtype)), source.row_spec
        )
        same = jax.tree.map(lambda a, b: a.dtype == b.dtype, self.spec, source.row_spec)
        self._direct = source.fills and all(jax.tree.leaves(same))
        self.scatters = self._direct and source.scatters
        self._places: dict[int, tuple[Any, Any]] = {}  # for the buffers of a feed, which are few and permanent
        self._check = not source.checked

    def buffer(self, num_rows: int) -> Rows:
        """Memory for rows that JAX can use without a copy."""
        return jax.tree.map(lambda s: aligned_empty((num_rows, *s.shape), s.dtype), self.spec)

    def take(self, index: np.ndarray, out: Rows) -> None:
        """Read scattered rows into `out`."""
        if self._direct:
            self.source.take(index, out=out)  # type: ignore[call-arg]
        else:
            self._copy(out, self.source.take(index), "take")

    def read(self, start: int, stop: int, out: Rows, offset: int) -> None:
        """Read neighbouring rows into `out` from row `offset` on."""
        part = jax.tree.map(lambda leaf: leaf[offset : offset + stop - start], out)
        if self._direct:
            self.source.read(start, stop, out=part)  # type: ignore[call-arg]
        else:
            self._copy(part, self.source.read(start, stop), "read")

    def _copy(self, out: Rows, rows: Rows, call: str) -> None:
        """Copy into the buffers, in JAX's precision; raises an error if the form of the rows has changed."""
        got, wanted = _tree.leaf_names(rows), _tree.leaf_names(out)
        who = f"`{call}` of {type(self.source.given).__name__}"
        if got != wanted:
            raise DataChangedError(f"{who} returned {got} instead of {wanted}.")
        for name, to, values in zip(wanted, jax.tree.leaves(out), jax.tree.leaves(rows), strict=True):
            if np.shape(values) != to.shape:
                raise DataChangedError(
                    f"{who} returned `{name}` with shape {np.shape(values)} where "
                    f"{to.shape} was requested: has the source shrunk or changed?"
                )
            np.copyto(to, values, casting="same_kind")

    def scatter(self, starts: list[int], slots: list[list[int]], run: int, out: Rows) -> None:
        """Read windows of neighbouring rows into `out`, a run of them to each slot."""
        first = jax.tree.leaves(out)[0]
        if id(first) not in self._places:
            self._places[id(first)] = (first, self.source.places(out, run))
        self.source.scatter(starts, slots, run, self._places[id(first)][1])

    def forget(self, buffers: list[Rows]) -> None:
        """Release the buffers of a feed that has ended."""
        for buffer in buffers:
            self._places.pop(id(jax.tree.leaves(buffer)[0]), None)

    def check(self, rows: Rows, start: int) -> None:
        """Raise an error for NaN and infinite values, unless the source was checked when it was written."""
        if self._check:
            for name, leaf in zip(_tree.leaf_names(rows), jax.tree.leaves(rows), strict=True):
                check_finite(leaf, f"data `{name}`", start)


class _SuperbatchFeed(Feed):
    """A ring of buffers: the device works on one while a thread fills the next ones."""

    def __init__(self, reader: _BufferReader, scheme: SuperbatchScheme, key: Key):
        self._reader, self._scheme = reader, scheme
        # a separate copy: the loop donates the buffers of a state
        words = np.array(jax.random.key_data(key))
        self._key, self._seed = jax.random.wrap_key_data(jnp.array(words)), words.ravel().tolist()
        self._plans: dict[int, np.ndarray] = {}
        self.buffers: list[Rows] = []
        self._spare: Rows = None
        self._pool = threads(1, "read-ahead")
        self._ahead: dict[int, Future[Segment]] = {}
        self._current: tuple[int, Segment] | None = None

    def at(self, number: int) -> Segment:
        """The superbatch for estimate `number`."""
        wanted = number // self._scheme.group
        if self._current is not None and self._current[0] == wanted:
            return self._current[1]
        if wanted not in self._ahead:
            self._drop_ahead()
        # A request for this one means that the previous one is no longer used: its buffer can be filled at once.
        for coming in range(wanted, wanted + BUFFERS):
            if coming not in self._ahead:
                self._ahead[coming] = self._pool.submit(self._fill, coming, self._plan(coming))
        self._current = (wanted, self._ahead.pop(wanted).result())
        return self._current[1]

    def _plan(self, number: int) -> np.ndarray:
        if number not in self._plans:
            coming = self._scheme.plans(self._key, number, _PLANNED)
            self._plans = dict(zip(range(number, number + _PLANNED), coming, strict=True))
        return self._plans.pop(number)

    def _fill(self, number: int, plan: np.ndarray) -> Segment:
        if not self.buffers:
            rows = self._scheme.group * self._scheme.batching.size
            self.buffers = [self._reader.buffer(rows) for _ in range(BUFFERS)]
            self._spare = self._reader.buffer(self._scheme.spare_rows)
        scheme, buffer = self._scheme, self.buffers[number % BUFFERS]
        index = scheme.fill(self._reader, plan, [*self._seed, number], buffer, self._spare)
        rows = jax.block_until_ready(jax.tree.map(to_device, buffer))
        first = number * scheme.group
        batching = Superbatch(
            scheme.batching.num_rows,
            scheme.batching.size,
            scheme.batching.correction,
            scheme.batching.epoch,
            np.int32(first),  # type: ignore[arg-type]
            index if self._reader.wants_index else None,  # type: ignore[arg-type]
            scheme.weights(index),  # type: ignore[arg-type]
        )
        return Segment(rows, batching, first, first + scheme.group)

    def _drop_ahead(self) -> None:
        """Wait for superbatches that are no longer needed but still fill their buffers."""
        for unwanted in self._ahead.values():
            unwanted.exception()
        self._ahead = {}

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._reader.forget(self.buffers)


def choose(source: RowSource, spec: PyTree, batching: Batching, automatic: bool) -> tuple[SuperbatchScheme, str]:
    """The scheme for a source, and the reason; the reason also goes to the log `scirocco`."""
    row_bytes = size_of_row(spec)
    shuffled = source.shuffled
    room = available_memory()
    nbytes = row_bytes * source.num_rows
    fits = nbytes <= READING.share_of_cache * room
    size = f"{nbytes / 2**30:.2f} GiB of rows, {room / 2**30:.1f} GiB of memory free"
    if not isinstance(batching, Blocks):
        scattered, reason = True, "this estimator requires independent rows"
        if not fits:
            reason += f", although the rows do not fit into the page cache ({size}): expect disk latency"
    elif not automatic:
        scattered, reason = False, 'sampling="blocks" was requested'
    elif shuffled:
        scattered, reason = False, "the rows were shuffled when they were written"
    else:
        scattered = fits
        reason = f"the rows are in unknown order and {'fit' if fits else 'do not fit'} into the page cache ({size})"
    if scattered and isinstance(batching, Blocks):
        batching = IndependentRows(batching.num_rows, batching.size, replace=False)
    scheme = _make(batching, row_bytes, scattered, shuffled)
    log.info("streaming %d rows: %s, because %s", source.num_rows, scheme.in_words, reason)
    return scheme, f"{scheme.in_words}: {reason}"


def _make(batching: Batching, row_bytes: int, scattered: bool, shuffled: bool) -> SuperbatchScheme:
    """Superbatches of a power of two batches, about 32 MB (64 MB if distant rows must be mixed)."""
    target = _SUPERBATCH_BYTES if scattered or shuffled else _WIDE_SUPERBATCH_BYTES
    most = min(READING.superbatch_batches, target // (row_bytes * batching.size), batching.num_rows // batching.size)
    group = 1 << max(0, int(most).bit_length() - 1)
    if scattered:
        return ScatteredRows(batching, group)
    num_blocks = min(group, _MAX_BLOCKS)
    return ShuffledBlocks(batching.num_rows, batching.size, group, num_blocks, row_bytes, shuffled)
