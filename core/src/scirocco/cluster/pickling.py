"""Serialisation for workers: functions and models as bytes, rows as a path and a few numbers, never as arrays.

An object that cannot be sent raises an error that names the part at fault.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import pickle
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from scirocco import _tree
from scirocco._extras import require
from scirocco.cluster.rows import RowsOf, held
from scirocco.data import ArraySource, FolderSource, FolderWriter
from scirocco.data.arrays import RowSource
from scirocco.data.sources import MappedSource
from scirocco.errors import InvalidTypeError, WorkerError
from scirocco.types import PyTree

_DEEPEST = 12


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
        yield from ((name, value) for name, value in getattr(thing, "__dict__", {}).items() if name[0] != "_")


_WRITE_BYTES = 16 << 20
_MOST_PICKLED = 16 << 20


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
        return ArraySource(
            jax.tree.map(lambda leaf: arrays[leaf].astype(self.dtypes[leaf], copy=False), self.tree)
        )


class Mapped(NamedTuple):
    """Memory-mapped arrays, identified by their files."""

    tree: PyTree
    files: tuple[tuple[str, str, int, tuple[int, ...]], ...]
    """Path, dtype, offset and shape of each."""

    def open(self) -> MappedSource:
        """Map them in this process."""
        maps = [np.memmap(path, dtype, "r", offset, shape) for path, dtype, offset, shape in self.files]
        return MappedSource(jax.tree.map(lambda leaf: maps[leaf], self.tree))


class Part(NamedTuple):
    """A range of rows of an object that must be opened first; see `RowsOf`."""

    source: Mapped | Part
    start: int
    stop: int
    seed: int | None

    def open(self) -> RowsOf:
        """Open it."""
        return RowsOf(self.source.open(), self.start, self.stop, self.seed)


Travelling: TypeAlias = RowSource | Written | Mapped | Part
"""Rows in a form that can be sent: a source that is little more than a path, or an object that opens to one."""


def opened(rows: Travelling) -> RowSource:
    """The source to sample from, here or on a worker."""
    return rows.open() if isinstance(rows, (Written, Mapped, Part)) else held(rows)


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
        Written(folder, numbered, dtypes, end - source.num_rows, end)
        for source, end in zip(sources, ends, strict=True)
    ]


def _portable(source: RowSource, title: str) -> Travelling:
    if isinstance(source, RowsOf):
        inner = _portable(source.source, title)
        if isinstance(inner, (Mapped, Part)):
            return Part(inner, source.start, source.stop, source.seed)
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
