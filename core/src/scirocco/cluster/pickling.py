"""Serialisation for workers: functions and models as bytes, rows as a path and a few numbers, never as arrays.

An object that cannot be sent raises an error that names the part at fault.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from scirocco import _tree
from scirocco._extras import require
from scirocco._random import SeedPurpose
from scirocco.data import FolderSource, FolderWriter, fingerprints
from scirocco.data.arrays import ArraySource, RowSource
from scirocco.data.shuffle import shuffled_numbers
from scirocco.data.sources import MappedSource
from scirocco.errors import InvalidTypeError, InvalidValueError, WorkerError
from scirocco.types import PyTree, Rows

_DEEPEST = 12  # levels that are searched for what cannot be pickled


class RowsOf(RowSource):
    """Some rows of another source: the range `start`..`stop - 1`, or as many rows drawn at random.

    Parameters
    ----------
    source
        The source of the rows. A pickle contains its pickle (for a data folder: the path), and numbers.
    start, stop
        The range.
    seed
        None, or the seed of a random order of all rows: this source then has the rows at places `start`..`stop - 1` of
        that order, in the order of the source.

    Examples
    --------
    >>> import numpy as np, scirocco as sc
    >>> from scirocco.cluster.pickling import RowsOf
    >>> RowsOf(sc.data.as_source(np.arange(10.0, dtype=np.float32)), 4, 7).read(0, 3)
    array([4., 5., 6.], dtype=float32)
    """

    fills = True

    def __init__(self, source: RowSource, start: int, stop: int, seed: int | None = None):
        self.source, self.start, self.stop, self.seed = source, start, stop, seed
        self.num_rows = stop - start
        self.checked = source.checked
        self.shuffled = seed is None and source.shuffled
        self.scatters = seed is None and source.scatters  # the fast way of a data folder

    def __reduce__(self) -> tuple[Any, ...]:
        return RowsOf, (self.source, self.start, self.stop, self.seed)

    @property
    def row_spec(self) -> PyTree:
        """Shape and dtype of one row."""
        return self.source.row_spec

    @cached_property
    def _numbers(self) -> np.ndarray | None:
        """The row numbers in the source, in ascending order, because disks read forwards faster."""
        if self.seed is None:
            return None
        return np.sort(order(self.source.num_rows, self.seed)[self.start : self.stop])

    def take(self, indices: np.ndarray, out: Rows | None = None) -> Rows:
        """The rows with these numbers (within this source), in this order."""
        indices = np.asarray(indices)
        if indices.size and (indices.min() < 0 or indices.max() >= self.num_rows):
            raise InvalidValueError(f"`indices` must be in 0..{self.num_rows - 1}, got {indices}.")
        where = indices + self.start if self._numbers is None else self._numbers[indices]
        return self._ask(self.source.take, (where,), out)

    def read(self, start: int, stop: int, out: Rows | None = None) -> Rows:
        """The rows start..stop-1 (up to the last one)."""
        stop = min(stop, self.num_rows)
        if self._numbers is None:
            return self._ask(self.source.read, (self.start + start, self.start + stop), out)
        return self._ask(self.source.take, (self._numbers[start:stop],), out)

    def _ask(self, call: Callable[..., Rows], arguments: tuple[Any, ...], out: Rows | None) -> Rows:
        if out is None:
            return call(*arguments)
        if self.source.fills:
            return call(*arguments, out=out)
        for to, values in zip(jax.tree.leaves(out), jax.tree.leaves(call(*arguments)), strict=True):
            np.copyto(to, values, casting="same_kind")
        return out

    def places(self, out: Rows, run: int) -> Any:
        """The places of the source."""
        return self.source.places(out, run)

    def scatter(self, starts: list[int], slots: list[list[int]], run: int, places: Any) -> None:
        """Scatter like the source, starting at the first row of this range."""
        self.source.scatter([self.start + start for start in starts], slots, run, places)

    def fingerprint(self) -> str:
        """The fingerprint of the source, and which of its rows these are."""
        return self._marked(self.source.fingerprint())

    def stamp(self) -> str:
        """The value by which the source notices that its files change."""
        return self._marked(self.source.stamp())

    def _marked(self, mark: str) -> str:
        return fingerprints.shortened(f"{mark} {self.start} {self.stop} {self.seed}".encode())

    def verify(self) -> None:
        """Verify the source."""
        self.source.verify()

    def __repr__(self) -> str:
        return f"RowsOf({self.source!r}, {self.start}, {self.stop}, seed={self.seed})"


@lru_cache(maxsize=1)
def order(num_rows: int, seed: int) -> np.ndarray:
    """All row numbers in a uniformly random order; the same seed gives the same order."""
    return shuffled_numbers(num_rows, seed, SeedPurpose.DEALT_ORDER)


def held(source: RowSource) -> RowSource:
    """The source to sample from in this process: rows in memory become separate arrays."""
    if isinstance(source, RowsOf) and isinstance(source.source, ArraySource):
        return ArraySource(source.read(0, source.num_rows))
    return source


class Parcel(NamedTuple):
    """A pickle, and the classes in it that JAX treats as pytrees."""

    pickled: bytes
    nodes: tuple[str, ...]


def packed(thing: object, what: str) -> Parcel:
    """Any object as bytes; functions and classes of `__main__` are sent as code."""
    return Parcel(dumped(thing, what), tuple(sorted(_nodes(jax.tree.structure(_looked_into(thing))))))


def dumped(thing: object, what: str) -> bytes:
    """The pickle, or an error that names the part that cannot be pickled."""
    try:
        return require("cloudpickle", "tasks on a cluster").dumps(thing)
    except Exception as error:
        name, part = _culprit(thing, what)
        raise InvalidTypeError(
            f"{name}, a {type(part).__name__}, cannot be sent to workers ({type(error).__name__}: {error}). Locks, "
            "open files, generators and connections stay in their process: keep them out of what the functions of a "
            "model refer to, or omit `client`."
        ) from error


def unpacked(parcel: Parcel) -> Any:
    """Unpack on a worker."""
    try:
        thing = pickle.loads(parcel.pickled)
    except (ImportError, AttributeError) as error:
        file = f"{(error.name or 'mymodels').partition('.')[0]}.py"
        raise WorkerError(
            f"a worker cannot load the task ({type(error).__name__}: {error}). Modules of your own must be "
            f"there too, in the same version: use client.upload_file({file!r}), or install them on the workers."
        ) from error
    nodes = set(parcel.nodes)
    for leaf in jax.tree.leaves(_looked_into(thing)):
        if _name(type(leaf)) in nodes:
            raise InvalidTypeError(
                f"the class {_name(type(leaf))} is registered with JAX as a pytree in this run's process, but not "
                "on the worker, which received it as code. Put it, with its registration, in a module that workers "
                "can import."
            )
    return thing


def _looked_into(thing: object) -> object:
    return (thing.args, thing.keywords) if isinstance(thing, functools.partial) else thing


def _nodes(tree: jax.tree_util.PyTreeDef) -> set[str]:
    node = tree.node_data()
    if node is None:
        return set()
    own = set() if node[0].__module__ == "builtins" else {_name(node[0])}
    return own.union(*map(_nodes, tree.children()))


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _culprit(thing: object, name: str, depth: int = 0) -> tuple[str, object]:
    """The innermost part that cannot be pickled, and the path to it."""
    for inner, part in _parts(thing) if depth < _DEEPEST else ():
        if not _can_be_pickled(part):
            return _culprit(part, f"{name} → {inner}", depth + 1)
    return name, thing


def _can_be_pickled(part: object) -> bool:
    try:
        require("cloudpickle", "tasks on a cluster").dumps(part)
    except Exception:  # users' classes may raise any exception
        return False
    return True


def _parts(thing: object) -> Iterator[tuple[str, object]]:
    """The parts that a pickle of it would contain, by name, as far as this can be determined."""
    if isinstance(thing, functools.partial):
        yield from thing.keywords.items()
        thing = thing.func
    if inspect.isfunction(thing):
        named = inspect.getclosurevars(thing)
        yield from named.nonlocals.items()
        yield from named.globals.items() if thing.__module__ == "__main__" else ()
        yield from ((p.name, p.default) for p in inspect.signature(thing).parameters.values())
    elif _tree.is_named_tuple(thing):
        yield from thing._asdict().items()
    elif isinstance(thing, dict):
        yield from ((repr(key), value) for key, value in thing.items())
    elif isinstance(thing, (list, tuple)):
        yield from ((f"[{number}]", value) for number, value in enumerate(thing))
    elif dataclasses.is_dataclass(thing):
        yield from _tree.fields_of(thing).items()
    else:
        try:
            attributes = vars(thing)
        except TypeError:  # it has none
            return
        yield from ((name, value) for name, value in attributes.items() if name[0] != "_")


_WRITE_BYTES = 16 << 20  # rows written at a time
_MOST_PICKLED = 16 << 20  # bytes; a larger pickle holds rows


class Written(NamedTuple):
    """Rows that were in the client's memory, written to a data folder of which a worker reads a range."""

    path: str
    tree: PyTree
    """The structure of the data, with the number of an array of the folder instead of each leaf."""
    dtypes: tuple[str, ...]
    start: int
    stop: int

    def open(self) -> ArraySource:
        """Read the rows into the memory of this process."""
        arrays = list(FolderSource(self.path).read(self.start, self.stop).values())
        return ArraySource(jax.tree.map(lambda leaf: arrays[leaf].astype(self.dtypes[leaf], copy=False), self.tree))


class Mapped(NamedTuple):
    """Memory-mapped arrays, identified by their files."""

    tree: PyTree
    files: tuple[tuple[str, str, int, tuple[int, ...]], ...]
    """Path, dtype, offset and shape of each."""

    def open(self) -> MappedSource:
        """Map them in this process."""
        maps = [np.memmap(path, dtype, "r", offset, shape) for path, dtype, offset, shape in self.files]
        return MappedSource(jax.tree.map(lambda leaf: maps[leaf], self.tree))


class PartOfRows(NamedTuple):
    """A range of rows of an object that must be opened first; see `RowsOf`."""

    source: Mapped | PartOfRows
    start: int
    stop: int
    seed: int | None

    def open(self) -> RowsOf:
        """Open it."""
        return RowsOf(self.source.open(), self.start, self.stop, self.seed)


Travelling: TypeAlias = RowSource | Written | Mapped | PartOfRows
"""Rows in a form that can be sent: a source that is little more than a path, or an object that opens to one."""


def opened(rows: Travelling) -> RowSource:
    """The source to sample from, here or on a worker."""
    return rows.open() if isinstance(rows, (Written, Mapped, PartOfRows)) else held(rows)


def for_workers(sources: Sequence[RowSource], folder: str) -> list[Travelling]:
    """The shards in a form that can be sent; arrays in memory are written below `folder`, once."""
    parts_of = {id(source.source) if isinstance(source, RowsOf) else None for source in sources}
    if len(parts_of) == 1 and None not in parts_of and _in_memory(sources[0]):
        return _write(sources, folder)
    return [
        _write([source], os.path.join(folder, f"{number:03d}"))[0]
        if _in_memory(source)
        else _portable(source, "`data`" if len(sources) == 1 else f"shard {number}")
        for number, source in enumerate(sources)
    ]


def _in_memory(source: RowSource) -> bool:
    return isinstance(source.source if isinstance(source, RowsOf) else source, ArraySource)


def _write(sources: Sequence[RowSource], folder: str) -> list[Travelling]:
    """Write sources of the same form, one after the other, to one new data folder."""
    spec, tree = jax.tree.flatten(sources[0].row_spec)
    names = [f"array{number:03d}" for number in range(len(spec))]
    double = any(leaf.dtype.itemsize == 8 for leaf in spec)
    step = max(1, _WRITE_BYTES // max(1, sum(leaf.size * leaf.dtype.itemsize for leaf in spec)))
    precision = "float64" if double else None
    with FolderWriter(folder, shuffle=False, dtype=precision, source="subposteriors") as writer:
        for source in sources:
            for start in range(0, source.num_rows, step):
                rows = jax.tree.leaves(source.read(start, min(source.num_rows, start + step)))
                writer.append(dict(zip(names, rows, strict=True)))
    numbered = jax.tree.unflatten(tree, range(len(spec)))
    dtypes = tuple(leaf.dtype.str for leaf in spec)
    ends = np.cumsum([source.num_rows for source in sources]).tolist()
    return [
        Written(folder, numbered, dtypes, end - source.num_rows, end) for source, end in zip(sources, ends, strict=True)
    ]


def _portable(source: RowSource, title: str) -> Travelling:
    if isinstance(source, RowsOf):
        inner = _portable(source.source, title)
        if isinstance(inner, (Mapped, PartOfRows)):
            return PartOfRows(inner, source.start, source.stop, source.seed)
        return source
    if isinstance(source, MappedSource):
        return _by_files(source)
    _refuse_large(source, title)
    return source


def _by_files(source: MappedSource) -> Mapped:
    leaves, tree = jax.tree.flatten(source.arrays)
    files = []
    for leaf in leaves:
        base = leaf
        while isinstance(base.base, np.ndarray):  # a view of a view of the map
            base = base.base
        if not isinstance(base, np.memmap) or base.filename is None or not leaf.flags.c_contiguous:
            raise InvalidTypeError(
                "memory-mapped arrays can be read by workers only if they are contiguous parts of their files; "
                "write a data folder first: sc.data.write(path, data)."
            )
        offset = base.offset + leaf.ctypes.data - base.ctypes.data
        files.append((os.path.abspath(base.filename), leaf.dtype.str, int(offset), leaf.shape))
    return Mapped(jax.tree.unflatten(tree, range(len(leaves))), tuple(files))


def _refuse_large(source: RowSource, title: str) -> None:
    """Raise an error for a source whose pickle contains its rows: they would be sent through the scheduler."""
    pickled = dumped(source.given, title)
    if len(pickled) > _MOST_PICKLED:
        raise InvalidTypeError(
            f"{title} is a {type(source.given).__name__} whose pickle has {len(pickled) / 2**20:.0f} MB: it contains "
            "rows. Workers read rows from disk: write a data folder (sc.data.write, sc.data.write_corpus) and "
            "pass its path."
        )
