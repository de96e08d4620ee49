"""How rows get to a worker: as a path and a few numbers, never as arrays in a message."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import jax
import numpy as np

from scirocco.cluster.pickling import dumped
from scirocco.cluster.rows import RowsOf, held
from scirocco.data import ArraySource, FolderSource, FolderWriter
from scirocco.data.sources import MappedSource
from scirocco.errors import InvalidTypeError
from scirocco.types import PyTree

_WRITE_BYTES = 16 << 20
_MOST_PICKLED = 16 << 20


class Written(NamedTuple):
    """Rows that were in the client's memory, written to a data folder of which a worker reads a stretch."""

    path: str
    tree: PyTree
    """The data's structure, with the number of an array of the folder in the place of each leaf."""
    dtypes: tuple[str, ...]
    start: int
    stop: int

    def open(self) -> ArraySource:
        """The rows in this process's memory."""
        arrays = list(FolderSource(self.path).read(self.start, self.stop).values())
        return ArraySource(
            jax.tree.map(lambda leaf: arrays[leaf].astype(self.dtypes[leaf], copy=False), self.tree)
        )


class Mapped(NamedTuple):
    """Memory-mapped arrays by their files."""

    tree: PyTree
    files: tuple[tuple[str, str, int, tuple[int, ...]], ...]
    """Path, dtype, offset and shape of each."""

    def open(self) -> MappedSource:
        """Map them in this process."""
        maps = [np.memmap(path, dtype, "r", offset, shape) for path, dtype, offset, shape in self.files]
        return MappedSource(jax.tree.map(lambda leaf: maps[leaf], self.tree))


class Part(NamedTuple):
    """A stretch of what has to be opened first; see `RowsOf`."""

    source: Any
    start: int
    stop: int
    seed: int | None

    def open(self) -> RowsOf:
        """Open it."""
        return RowsOf(self.source.open(), self.start, self.stop, self.seed)


def opened(rows: Any) -> Any:
    """The source to sample from, here or on a worker."""
    return rows.open() if isinstance(rows, (Written, Mapped, Part)) else held(rows)


def for_workers(sources: list[Any], folder: str) -> list[Any]:
    """The shards in a form that can travel; what is in memory is written below `folder`, once."""
    parts_of = {id(source.source) if isinstance(source, RowsOf) else None for source in sources}
    if len(parts_of) == 1 and None not in parts_of and _in_memory(sources[0]):
        return _write(sources, folder)
    return [
        _write([source], os.path.join(folder, f"{number:03d}"))[0]
        if _in_memory(source)
        else _portable(source, "`data`" if len(sources) == 1 else f"shard {number}")
        for number, source in enumerate(sources)
    ]


def _in_memory(source: Any) -> bool:
    return isinstance(source.source if isinstance(source, RowsOf) else source, ArraySource)


def _write(sources: list[Any], folder: str) -> list[Any]:
    """Sources of one form, one after the other in one new data folder."""
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


def _portable(source: Any, title: str) -> Any:
    if isinstance(source, RowsOf):
        inner = _portable(source.source, title)
        return source if inner is source.source else Part(inner, source.start, source.stop, source.seed)
    if isinstance(source, MappedSource):
        return _by_files(source)
    _refuse_large(source, title)
    return source


def _by_files(source: MappedSource) -> Any:
    leaves, tree = jax.tree.flatten(source.arrays)
    files = []
    for leaf in leaves:
        base = leaf
        while isinstance(base.base, np.ndarray):  # a view of a view of the map
            base = base.base
        if not isinstance(base, np.memmap) or base.filename is None or not leaf.flags.c_contiguous:
            raise InvalidTypeError(
                "memory-mapped arrays can be read by workers only where they are contiguous parts of their files; "
                "write a data folder first: sc.data.write(path, data)."
            )
        offset = base.offset + leaf.ctypes.data - base.ctypes.data
        files.append((os.path.abspath(base.filename), leaf.dtype.str, int(offset), leaf.shape))
    return Mapped(jax.tree.unflatten(tree, range(len(leaves))), tuple(files))


def _refuse_large(source: Any, title: str) -> None:
    """Sources travel as paths; one that takes its rows along would be sent through the scheduler."""
    pickled = dumped(source, title)
    if len(pickled) > _MOST_PICKLED:
        raise InvalidTypeError(
            f"{title} is a {type(source).__name__} whose pickle has {len(pickled) / 2**20:.0f} MB: it takes its "
            "rows along. Workers read rows from a disk: write a data folder (sc.data.write, sc.data.write_corpus) and "
            "pass its path."
        )
