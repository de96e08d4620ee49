"""The readers for NumPy's own files, Zarr and data folders. A table yields chunks of columns."""

from __future__ import annotations

import contextlib
import math
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from scirocco import _checks
from scirocco._extras import require
from scirocco.data.native.folder import FolderSource
from scirocco.data.native.npy import as_bytes, check_kind, decode_header
from scirocco.data.sizes import READING
from scirocco.errors import InvalidTypeError, InvalidValueError, SciroccoError

_MOST_CHUNK_BYTES = 256 << 20
_SPARSE = {"data", "indices", "indptr", "shape", "format"}


class SourceTable(Protocol):
    """Columns with equal numbers of rows, read chunk by chunk."""

    label: str
    """The name in messages."""
    names: list[str]
    single: bool
    """Whether the data are one bare array."""

    def chunks(self, wanted: list[str], numbers: bool = True) -> Iterator[dict[str, np.ndarray]]:
        """The wanted columns, some rows at a time, from the first row to the last.

        With `numbers` anything but numbers raises an error; without, texts and missing values are objects.
        """


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name the file that cannot be read, for any exception of the reading package."""
    _checks.readable(path)
    try:
        yield
    except (SciroccoError, GeneratorExit, MemoryError):
        raise
    except (OSError, EOFError, ValueError, KeyError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise InvalidValueError(
            f"{path} cannot be read ({reason}). It may be truncated, damaged, or not what its name suggests."
        ) from error


def rows_per_chunk(row_bytes: float) -> int:
    """The number of rows in a chunk of about 16 MB."""
    return max(1, int(READING.chunk_bytes // max(1, row_bytes)))


def check_lengths(lengths: dict[str, int], where: str) -> int:
    """The common number of rows."""
    if not lengths:
        raise InvalidValueError(f"{where} holds no arrays.")
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"`{name}`: {length}" for name, length in lengths.items())
        raise InvalidValueError(
            f"the arrays of {where} have different numbers of rows ({listed}). They must be equal; choose some "
            "with columns={...}."
        )
    return next(iter(lengths.values()))


class NpyTable:
    """One `.npy` file: a bare array."""

    def __init__(self, path: Path):
        self.path, self.label, self.names, self.single = path, path.name, ["data"], True
        with reading(path):
            with open(path, "rb") as file:
                dtype, shape, _ = decode_header(file)
            _check_array(dtype, shape, f"the array of {path.name}")
            self._array = np.load(path, mmap_mode="r", allow_pickle=False)

    def chunks(self, wanted: list[str], numbers: bool = True) -> Iterator[dict[str, np.ndarray]]:
        """Slices of the mapped file."""
        step = rows_per_chunk(self._array[:1].nbytes)
        for start in range(0, len(self._array), step):
            yield {"data": np.asarray(self._array[start : start + step])}


class NpzTable:
    """The arrays of a `.npz` file, unpacked together, chunk by chunk."""

    def __init__(self, path: Path):
        self.path, self.label, self.single = path, path.name, False
        with reading(path), zipfile.ZipFile(path) as archive:
            members = [name for name in archive.namelist() if name.endswith(".npy")]
            self._headers = {}
            for member in members:
                with archive.open(member) as file:
                    self._headers[member.removesuffix(".npy")] = decode_header(file)
        self.names = list(self._headers)

    def chunks(self, wanted: list[str], numbers: bool = True) -> Iterator[dict[str, np.ndarray]]:
        """Rows of every wanted array at once: one open stream each."""
        for name in wanted:
            dtype, shape, _ = self._headers[name]
            _check_array(dtype, shape, f"array `{name}` of {self.label}")
        length = check_lengths({name: self._headers[name][1][0] for name in wanted}, self.label)
        row_bytes = sum(_row_bytes(*self._headers[name][:2]) for name in wanted)
        step = rows_per_chunk(row_bytes)
        with contextlib.ExitStack() as stack:
            with reading(self.path):
                archive = stack.enter_context(zipfile.ZipFile(self.path))
                streams = {name: _Stream(stack.enter_context(archive.open(f"{name}.npy"))) for name in wanted}
            for start in range(0, length, step):
                with reading(self.path):
                    count = min(step, length - start)
                    chunk = {name: stream.next(start, count) for name, stream in streams.items()}
                yield chunk


class _Stream:
    """The rows of one packed array in order."""

    def __init__(self, file: Any):
        self.dtype, self.shape, fortran = decode_header(file)
        self._file = file
        self._columnwise = _unpacked(file, self.dtype, self.shape) if fortran and len(self.shape) > 1 else None

    def next(self, start: int, count: int) -> np.ndarray:
        if self._columnwise is not None:
            return np.ascontiguousarray(self._columnwise[start : start + count])
        rows = np.empty((count, *self.shape[1:]), self.dtype)
        view = as_bytes(rows)
        while view:
            got = self._file.readinto(view)
            if not got:
                raise EOFError("the array ends early")
            view = view[got:]
        return rows


def _unpacked(file: IO[bytes], dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Unpack an array in Fortran order, whose rows cannot be streamed, to a temporary file and map it."""
    spool = tempfile.TemporaryFile()
    shutil.copyfileobj(file, spool, 1 << 20)
    spool.flush()
    return np.memmap(spool, dtype, "r", shape=shape, order="F")


class ZarrTable:
    """A Zarr array, or the arrays of a group (version 2 or 3)."""

    def __init__(self, path: Path):
        zarr = require("zarr", "reading Zarr arrays")
        self.path, self.label = path, path.name
        with reading(path):
            node = zarr.open(str(path), mode="r")
            self.single = isinstance(node, zarr.Array)
            self._arrays: dict[str, Any] = {"data": node} if self.single else dict(sorted(node.arrays()))
        self.names = list(self._arrays)

    def chunks(self, wanted: list[str], numbers: bool = True) -> Iterator[dict[str, np.ndarray]]:
        """Whole chunks of the store at once, unless they are too large."""
        arrays = {name: self._arrays[name] for name in wanted}
        for name, array in arrays.items():
            dtype = getattr(array, "dtype", np.dtype(object))
            _check_array(np.dtype(dtype), array.shape, f"array `{name}` of {self.label}")
        length = check_lengths({name: array.shape[0] for name, array in arrays.items()}, self.label)
        row_bytes = sum(_row_bytes(array.dtype, array.shape) for array in arrays.values())
        stored = max(array.chunks[0] for array in arrays.values())
        step = max(stored, rows_per_chunk(row_bytes) // stored * stored)
        step = max(1, min(step, int(_MOST_CHUNK_BYTES // max(1, row_bytes))))
        for start in range(0, length, step):
            with reading(self.path):
                chunk = {name: np.asarray(array[start : start + step]) for name, array in arrays.items()}
            yield chunk


class FolderTable:
    """The arrays of a data folder; a matrix that was made of columns has those again."""

    def __init__(self, path: Path):
        self.source, self.label, self.single = FolderSource(path), path.name, False
        self._names = {name: entry.columns or (name,) for name, entry in self.source.header.arrays.items()}
        self.names = [column for group in self._names.values() for column in group]
        self.single = self.source.header.single and self.names == ["data"]

    def chunks(self, wanted: list[str], numbers: bool = True) -> Iterator[dict[str, np.ndarray]]:
        """Some rows of all arrays."""
        source = self.source
        step = rows_per_chunk(source.nbytes / max(1, source.num_rows))
        for start in range(0, source.num_rows, step):
            rows = source.read(start, start + step)
            found: dict[str, np.ndarray] = {}
            for name, array in (rows if isinstance(rows, dict) else {"data": rows}).items():
                columns = self._names[name]
                found |= {columns[0]: array} if columns == (name,) else dict(zip(columns, array.T, strict=True))
            yield {name: found[name] for name in wanted}


def _row_bytes(dtype: np.dtype, shape: tuple[int, ...]) -> int:
    return np.dtype(dtype).itemsize * math.prod(shape[1:])


def _check_array(dtype: np.dtype, shape: tuple[int, ...], name: str) -> None:
    if dtype.hasobject:
        raise InvalidTypeError(
            f"{name} holds Python objects, which are never unpickled. Save it again as an array of numbers."
        )
    check_kind(dtype, name)
    if not shape:
        raise InvalidValueError(
            f"{name} is a single number, not one row per datum. Choose others with columns={{...}}."
        )


def is_sparse(path: Path) -> bool:
    """Whether a `.npz` file is a matrix saved by `scipy.sparse.save_npz`."""
    with reading(path), zipfile.ZipFile(path) as archive:
        return {name.removesuffix(".npy") for name in archive.namelist()} >= _SPARSE
