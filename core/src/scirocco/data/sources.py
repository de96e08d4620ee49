"""What is accepted as data: arrays, a native folder, memory maps, or any object that returns rows."""

from __future__ import annotations

import inspect
import os
import sys
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from scirocco import _checks, _tree
from scirocco.data.arrays import ArraySource, RowSource, as_arrays, from_arrays
from scirocco.data.sizes import READING
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.types import Data, PyTree, Rows

_NAMES = ("num_rows", "row_spec", "take", "read", "fingerprint")


@runtime_checkable
class Source(Protocol):
    """An object that returns rows; any class with these five members is one.

    Optional: `shuffled` (True: neighbouring rows are as good as random ones), `checked` (True: known to have no NaN
    or infinite values), and an argument `out` of `take` and `read`, a tree of arrays to fill instead of new ones.
    """

    @property
    def num_rows(self) -> int:
        """The number of rows."""

    @property
    def row_spec(self) -> PyTree:
        """Shape and dtype of one row, as `jax.ShapeDtypeStruct` leaves."""

    def take(self, indices: np.ndarray) -> Rows:
        """The rows with these numbers, in this order. Called from several threads."""

    def read(self, start: int, stop: int) -> Rows:
        """A contiguous range of rows. Called from several threads."""

    def fingerprint(self) -> str:
        """A short string that changes when the data change; called every few seconds, so it should be cheap."""


def as_source(data: Data, groups: str | None = None) -> RowSource:
    """The user's data as a checked source: arrays are wrapped, a path is opened, a source is tested on two rows.

    `groups`: the column with the group of each row, for models whose datum is a group (`Posterior.groups`).
    """
    _checks.refuse_forked()
    if groups is not None:
        from scirocco.data.groups import grouped

        return grouped(as_source(data) if isinstance(data, (str, Path)) else data, groups)
    if isinstance(data, ArraySource):
        return data
    if isinstance(data, (str, Path)):
        from scirocco.data.native.folder import open_folder

        return open_folder(data)
    if worth_streaming(data):
        mapped = MappedSource(data)
        _try_out(mapped)
        return mapped
    if isinstance(data, Source):
        _try_out(data)
        return data if isinstance(data, RowSource) else UserSource(data)
    missing = [name for name in _NAMES if not hasattr(data, name)]
    if not {"take", "read"} & set(missing):
        raise InvalidTypeError(
            f"{type(data).__name__} looks like a data source but lacks {', '.join(f'`{name}`' for name in missing)}; "
            "a source has num_rows, row_spec, take(indices), read(start, stop) and fingerprint()."
        )
    return from_arrays(data)


class UserSource(RowSource):
    """A class of the user's own; optional members that it lacks get default values."""

    def __init__(self, source: Source):
        self.source = source
        self.num_rows = int(source.num_rows)
        self.shuffled, self.checked = (bool(getattr(source, name, False)) for name in ("shuffled", "checked"))
        self.scatters, self._stamps = (hasattr(source, name) for name in ("scatter", "stamp"))
        self.fills = all("out" in inspect.signature(call).parameters for call in (source.take, source.read))

    @property
    def given(self) -> Source:
        """The user's object."""
        return self.source

    @property
    def row_spec(self) -> PyTree:
        """Shape and dtype of one row."""
        return self.source.row_spec

    def take(self, indices: np.ndarray, **out: Rows) -> Rows:
        """The rows with these numbers, in this order."""
        return self.source.take(indices, **out)

    def read(self, start: int, stop: int, **out: Rows) -> Rows:
        """A contiguous range of rows."""
        return self.source.read(start, stop, **out)

    def places(self, out: Rows, run: int) -> Any:
        """The result of the user's class."""
        return self._extra.places(out, run)

    def scatter(self, starts: list[int], slots: list[list[int]], run: int, places: Any) -> None:
        """Calls the user's class."""
        self._extra.scatter(starts, slots, run, places)

    def fingerprint(self) -> str:
        """The result of the user's class."""
        return self.source.fingerprint()

    def stamp(self) -> str:
        """The result of the user's class, or the fingerprint."""
        return self._extra.stamp() if self._stamps else self.source.fingerprint()

    @property
    def _extra(self) -> Any:
        return self.source


def _try_out(source: Source) -> None:
    """Read two rows, to check that they match `row_spec`."""
    name = type(source).__name__
    if not isinstance(source.num_rows, (int, np.integer)) or source.num_rows < 0:
        raise InvalidTypeError(f"`num_rows` of {name} must be a whole number, got {source.num_rows!r}.")
    if source.num_rows == 0:
        raise InvalidValueError(f"the data are empty: {name} has 0 rows.")
    if source.num_rows >= 1 << 31:
        raise InvalidValueError(f"{name} has {source.num_rows} rows; at most 2^31 - 1 are supported.")
    count = min(2, int(source.num_rows))
    for call, rows in (
        (f"read(0, {count})", source.read(0, count)),
        (f"take({list(range(count))})", source.take(np.arange(count))),
    ):
        _compare(name, call, rows, source.row_spec, count)


def _compare(name: str, call: str, rows: Rows, spec: PyTree, count: int) -> None:
    if _tree.leaf_names(rows) != _tree.leaf_names(spec):
        raise InvalidTypeError(
            f"{call} of {name} returned {_tree.leaf_names(rows)}, but `row_spec` has {_tree.leaf_names(spec)}."
        )
    for leaf, row, wanted in zip(_tree.leaf_names(spec), jax.tree.leaves(rows), jax.tree.leaves(spec), strict=True):
        got, want = (np.shape(row), np.asarray(row).dtype), ((count, *wanted.shape), wanted.dtype)
        if got != want:
            raise InvalidTypeError(
                f"{call} of {name} returned `{leaf}` with shape {got[0]} and dtype {got[1]}; `row_spec` requires "
                f"shape {want[0]} and dtype {want[1]}."
            )
        if want[1].kind not in "fiub":
            raise InvalidTypeError(f"`{leaf}` of {name} has dtype {want[1]}; real numbers are required.")


class MappedSource(RowSource):
    """Rows of memory-mapped arrays, read when needed; in the user's order, so not known to be shuffled."""

    def __init__(self, arrays: PyTree):
        if not all(leaf.dtype.isnative for leaf in jax.tree.leaves(arrays)):
            raise InvalidValueError(
                "the memory-mapped data are in the byte order of another machine, and too large to be copied into "
                "memory: convert the files with sc.data.convert."
            )
        self.arrays = as_arrays(arrays)
        self._held = ArraySource(self.arrays)
        self.num_rows = self._held.num_rows

    @property
    def row_spec(self) -> PyTree:
        """Shape and dtype of one row."""
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), self.arrays)

    def take(self, indices: np.ndarray) -> Rows:
        """The rows with these numbers, in this order."""
        return jax.tree.map(lambda leaf: np.take(leaf, indices, axis=0), self.arrays)

    def read(self, start: int, stop: int) -> Rows:
        """A contiguous range of rows."""
        return jax.tree.map(lambda leaf: np.array(leaf[start:stop]), self.arrays)

    def fingerprint(self) -> str:
        """A hash of shapes, dtypes and all values, which are read once."""
        return self._held.fingerprint()

    def stamp(self) -> str:
        """Sizes and modification times of the files."""
        files = sorted({str(name) for leaf in jax.tree.leaves(self.arrays) if (name := _file(leaf))})
        return repr([(name, (status := os.stat(name)).st_size, status.st_mtime_ns) for name in files])


def _file(leaf: Any) -> Any:
    """The file of a memory map, or of a view of one."""
    while isinstance(leaf, np.ndarray):
        if isinstance(leaf, np.memmap) and leaf.filename is not None:
            return leaf.filename
        leaf = leaf.base
    return None


def worth_streaming(data: Data) -> bool:
    """Whether all arrays are memory maps, and too large to be copied: more than a quarter of the free memory."""
    leaves = jax.tree.leaves(data)
    if not leaves or not all(isinstance(leaf, np.memmap) for leaf in leaves):
        return False
    return _tree.nbytes(data) > READING.share_of_memory * available_memory()


def check_memory(num_bytes: int, what: str, advice: str) -> None:
    """Raise an error if `num_bytes` for `what` are more than the memory that is available."""
    room = available_memory()
    if num_bytes > room:
        raise InvalidValueError(
            f"{what} would take at least {num_bytes / 2**30:,.1f} GiB of memory; {room / 2**30:,.1f} GiB are "
            f"available. {advice}"
        )


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that are available for the page cache, within the limits of a container."""
    room = 8 << 30 if sys.platform == "win32" else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path, name in (("proc/meminfo", "MemAvailable:"), ("sys/fs/cgroup/memory.max", "")):
        try:
            text = (root / path).read_text()
        except OSError:
            continue
        words = text.partition(name)[2].split() if name else text.split()
        if words and words[0].isdigit():
            room = min(room, int(words[0]) * (1024 if name else 1))
    return room
