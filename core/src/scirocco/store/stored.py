"""Reading stored runs: the arrays stay on disk, and reading part of one costs only that part."""

from __future__ import annotations

import abc
import json
import math
import operator
import os
from collections.abc import Iterator, Sequence
from types import EllipsisType
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from scirocco import _checks
from scirocco.errors import InvalidTypeError, StoreError
from scirocco.store import files, folder, layout, zarr_format
from scirocco.store.layout import Column, Group


class LazyArray(abc.ABC):
    """An array with axes (chain, draw, ...) that is read when it is indexed."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes if all of it were read into memory."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a stored array cannot be used without a copy: it is on disk.")
        values = self[...]
        return values if dtype is None else values.astype(dtype, copy=False)

    @abc.abstractmethod
    def __getitem__(self, index: Index) -> Any: ...

    def blocks(self, num_draws: int) -> Iterator[np.ndarray]:
        """Iterate over all draws in order, `num_draws` at a time (fewer in the last), without holding all in memory."""
        num_draws = _checks.positive_int(num_draws, "num_draws")
        for start in range(0, self.shape[1], num_draws):
            yield self[:, start : start + num_draws]


_ATTEMPTS = 20  # commits that may come while the state is read

Index: TypeAlias = int | slice | EllipsisType | tuple[int | slice | EllipsisType, ...]
"""Valid indices of a stored array."""


class StoredArray(LazyArray):
    """The draws of one variable, axes (chain, draw, ...), read from disk when they are indexed.

    Integers, slices and `...` give NumPy arrays; `numpy.asarray(x)` reads everything.
    """

    def __init__(self, root: str, group: Group, column: Column, num_draws: int, checksums: str):
        self._root = root
        self._group = group
        self._column = column
        self._checksums = checksums
        self._intact: set[int] = set()
        self.shape = (group.num_chains, num_draws, *column.shape)
        self.dtype = column.dtype.newbyteorder("=")

    @property
    def root(self) -> str:
        """The folder of the run."""
        return self._root

    @property
    def name(self) -> str:
        """The name of the variable."""
        return self._column.name

    @property
    def given_dtype(self) -> str:
        """The dtype of the draws before they were stored (bfloat16 is stored as float32)."""
        return self._column.given_dtype

    def __repr__(self) -> str:
        return f"StoredArray({self.name!r}, shape={self.shape}, dtype={self.dtype}, in {self._root!r})"

    def __getitem__(self, index: Index) -> Any:
        chain, draw, *rest = full_index(index, self.shape)
        if not isinstance(draw, slice):
            number, within = divmod(draw, self._group.chunk_draws)
            chunk = self._chunk(number)
            part = chunk[(chain, within, *rest)]
            return self._native(part if part.size == chunk.size else part.copy())
        start, stop, step = draw.indices(self.shape[1])
        wanted = range(start, stop, step)
        ascending = wanted if step > 0 else wanted[::-1]
        empty = np.empty((self.shape[0], 0, *self.shape[2:]), self._column.dtype)[(chain, slice(None), *rest)]
        axis = 0 if not isinstance(chain, slice) else 1
        out = np.empty((*empty.shape[:axis], len(wanted), *empty.shape[axis + 1 :]), self.dtype)
        for within_out, number, within in self._pieces(ascending):
            out[(slice(None),) * axis + (within_out,)] = self._chunk(number)[(chain, within, *rest)]
        return out if step > 0 else np.flip(out, axis)

    def _pieces(self, wanted: range) -> Iterator[tuple[slice, int, slice]]:
        """For an ascending range of draws: the place in the result, the chunk, the place in the chunk."""
        length, done = self._group.chunk_draws, 0
        while done < len(wanted):
            number, first = divmod(wanted[done], length)
            count = min(len(wanted) - done, -(-(length - first) // wanted.step))
            within = slice(first, first + (count - 1) * wanted.step + 1, wanted.step)
            yield slice(done, done + count), number, within
            done += count

    def _chunk(self, number: int) -> np.ndarray:
        path = self._group.chunk_path(self._root, self._column, number)
        before = number * self._group.chunk_draws
        rescue = f"The other chunks of {self.name!r} can still be read" + (
            f": the draws before it are [:, :{before}]." if before else "."
        )
        values = zarr_format.read_chunk(path, self._group.chunk_shape(self._column), self._column.dtype, rescue)
        if number not in self._intact:
            wrong = self._group.check_content(self._column, number, self.shape[1], values, self._checksums)
            if wrong:
                raise StoreError(f"{path}: {wrong} {rescue}")
            self._intact.add(number)
        return values

    def verify(self) -> list[str]:
        """Read every chunk, and say what is wrong with those that are damaged."""
        problems = []
        for number in range(self._group.num_chunks(self.shape[1]) if self.size else 0):
            self._intact.discard(number)
            try:
                self._chunk(number)
            except (StoreError, OSError) as error:
                problems.append(str(error))
        return problems

    def _native(self, values: np.ndarray) -> Any:
        return values.astype(self.dtype, copy=False)


def full_index(index: Index, shape: tuple[int, ...]) -> list[Any]:
    """One integer (>= 0) or slice for every axis."""
    parts: list[Any] = list(index) if isinstance(index, tuple) else [index]
    dots = [place for place, part in enumerate(parts) if part is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can only have a single ellipsis ('...').")
    missing = len(shape) - (len(parts) - len(dots))
    if missing < 0:
        raise IndexError(f"too many indices: the array has {len(shape)} axes, got {len(parts) - len(dots)}.")
    place = dots[0] if dots else len(parts)
    parts[place : place + len(dots)] = [slice(None)] * missing
    return [_axis_index(part, axis, shape[axis]) for axis, part in enumerate(parts)]


def _axis_index(part: SupportsIndex | slice, axis: int, length: int) -> int | slice:
    if isinstance(part, slice):
        return part
    try:
        if isinstance(part, (bool, np.bool_)):
            raise TypeError
        number = operator.index(part)
    except TypeError:
        raise InvalidTypeError(
            f"a stored array can be indexed by integers, slices and `...`, got {part!r}. "
            f"Read it first: numpy.asarray(x)[...], or a part of it: x[:, 1000:2000][...]."
        ) from None
    if not -length <= number < length:
        raise IndexError(f"index {number} is out of bounds for axis {axis} with size {length}.")
    return number % length


class Stored:
    """A run on disk at the time of its last commit; open it again to see later draws.

    Attributes
    ----------
    path
        The folder.
    record, progress
        The values stored when the run was created, and at its last commit.
    arrays
        For each group its variables by name.
    """

    def __init__(self, path: str, header: folder.RunHeader, commit: folder.Commit):
        self.path = path
        self.record = header.record
        self.progress = commit.progress
        self.version = header.version
        self.created_at = header.created_at
        self.arrays = {
            name: {
                column.name: StoredArray(path, group, column, commit.draws[name], commit.checksums[name][column.node])
                for column in group.columns
            }
            for name, group in header.groups.items()
        }
        self._draws = commit.draws
        self._header, self._commit = header, commit
        self.groups = header.groups

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Stored:
        """Open a run for reading; no lock is taken, and another process may continue to write."""
        _checks.path(path, "path")
        root = os.path.abspath(os.fspath(path))
        header = folder.read_header(root)
        return cls(root, header, folder.read_commit(root, header))

    def draws(self, group: str) -> int:
        """The number of draws per chain of a group."""
        return self._draws[group]

    def read_state(self) -> dict[str, np.ndarray]:
        """The arrays of the last commit; while another process writes, those of its latest commit."""
        commit = self._commit
        for _ in range(_ATTEMPTS):
            try:
                folder_path = os.path.join(self.path, folder.INNER)
                return folder.read_state(folder_path, commit.state, folder.rescue(self.path))
            except StoreError:  # a newer commit may have replaced it
                newer = folder.read_commit(self.path, self._header)
                if newer.number == commit.number:
                    raise
                commit = newer
        raise StoreError(f"the state of the run in {self.path} changes faster than it can be read.")

    def verify(self) -> list[str]:
        """Read everything that belongs to the run once, and say what is wrong; empty if nothing is.

        The documents for Zarr readers may be behind the last commit; another process may write meanwhile.
        """
        problems = []
        for arrays in self.arrays.values():
            for array in arrays.values():
                problems += array.verify()
        try:
            self.read_state()
        except (StoreError, OSError) as error:
            problems.append(str(error))
        return problems + list(self._wrong_documents())

    def _wrong_documents(self) -> Iterator[str]:
        """What Zarr readers need in addition: the coordinates, and the descriptions of arrays and groups."""
        again = "The draws are intact, but other programs may not find them; resuming the run writes it again."
        groups = self.groups
        for name, group in groups.items():
            for path, values in group.coordinates(self.path, self._draws[name]):
                if not os.path.isfile(path) or np.fromfile(path, values.dtype).tolist() != values.tolist():
                    yield f"{path} is missing or damaged. {again}"
        committed = layout.documents(groups, self._draws, folder.attributes(self._header, self.progress))
        found = {node: _read_json(os.path.join(self.path, node, zarr_format.DOCUMENT)) for node in committed}
        earlier = self._published_earlier(found[""])
        for node, document in found.items():
            expected = [json.loads(documents[node]) for documents in (committed, earlier) if documents]
            if document not in expected:
                yield f"{os.path.join(self.path, node, zarr_format.DOCUMENT)} is missing or damaged. {again}"

    def _published_earlier(self, root: Any) -> dict[str, str]:
        """The documents of an earlier commit, which a process that was killed did not replace; else empty."""
        try:
            members = root["consolidated_metadata"]["metadata"]
            draws = {name: int(members[f"{name}/draw"]["shape"][0]) for name in self.groups}
            attributes = dict(root["attributes"])
        except (KeyError, TypeError, ValueError, IndexError):
            return {}
        fixed = folder.attributes(self._header, {}).items()
        if any(count > self._draws[name] for name, count in draws.items()) or not fixed <= attributes.items():
            return {}
        return layout.documents(self.groups, draws, attributes)

    @property
    def running(self) -> bool:
        """True while a process has the run open for writing."""
        return files.is_locked(folder.inner(self.path, folder.LOCK))

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}: {count:,} draws" for name, count in self._draws.items())
        return f"Stored({self.path!r}, {counts})"


def _read_json(path: str) -> Any:
    """The content of a JSON file; None if it cannot be read."""
    try:
        _checks.readable(path)
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError, RecursionError):
        return None


def open_stored(path: str | os.PathLike[str]) -> Stored:
    """Open a run for reading: `Stored.open`."""
    return Stored.open(path)


class JoinedArray(LazyArray):
    """The draws of one variable in several runs, axes (chain, draw, ...), read when they are indexed.

    If the runs have different numbers of draws, it has the smallest of them. Indexed like `StoredArray`.
    """

    def __init__(self, parts: Sequence[StoredArray]):
        if len({part.shape[2:] for part in parts}) != 1:
            raise StoreError(f"{parts[0].name!r} has different shapes in the runs to join.")
        self._parts = tuple(parts)
        chains, draws = sum(part.shape[0] for part in parts), min(part.shape[1] for part in parts)
        self.shape = (chains, draws, *parts[0].shape[2:])
        self.dtype = parts[0].dtype

    def __repr__(self) -> str:
        return f"JoinedArray(shape={self.shape}, dtype={self.dtype}, of {len(self._parts)} runs)"

    def __getitem__(self, index: Index) -> Any:
        chain, draw, *rest = full_index(index, self.shape)
        if isinstance(draw, slice):
            draw = _within(draw, self.shape[1])
        if not isinstance(chain, slice):
            part, number = self._places()[chain]
            return part[(number, draw, *rest)]
        chosen = self._places()[chain]
        if not chosen:
            return self._parts[0][(slice(0, 0), draw, *rest)]
        return np.stack([part[(number, draw, *rest)] for part, number in chosen])

    def _places(self) -> list[tuple[StoredArray, int]]:
        """The array of each chain, and the number of the chain in it."""
        return [(part, number) for part in self._parts for number in range(part.shape[0])]


def _within(part: slice, length: int) -> slice:
    """The same draws of an array that may have more than `length` draws."""
    chosen = range(length)[part]
    if not chosen:
        return slice(0, 0)
    return slice(chosen.start, chosen.stop if chosen.stop >= 0 else None, chosen.step)
