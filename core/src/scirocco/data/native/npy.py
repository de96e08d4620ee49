"""One array in one `.npy` file: read by position, gathered through a map, written in a stream."""

from __future__ import annotations

import itertools
import math
import mmap
import os
import sys
import threading
import weakref
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from scirocco import _checks
from scirocco.errors import DataChangedError, InvalidTypeError, InvalidValueError

MAP_LIMIT = 1 << 30
"""Maximum number of bytes of a folder that are mapped into memory."""
HAS_PREADV = hasattr(os, "preadv")  # Windows reads with a handle of its own
_PIECES = 512  # the system takes at most 1,024
_GROUP = 8192  # rows gathered before they are copied
_ALIGNMENT = 64  # bytes of a header, as NumPy writes it


def encode_header(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """A `.npy` header whose length does not depend on the number of rows, so that it can be rewritten at the end."""

    def text(rows: int) -> str:
        return f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': {(rows, *shape[1:])!r}, }}"

    longest = 10 + len(text(10**19)) + 1
    total = -(-longest // _ALIGNMENT) * _ALIGNMENT
    body = text(shape[0]).ljust(total - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body.encode("ascii")


def decode_header(file: IO[bytes]) -> tuple[np.dtype, tuple[int, ...], bool]:
    """Dtype, shape and Fortran order; leaves the file at the first byte of the data."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        raise ValueError(f"unknown .npy version {version}")
    return dtype, shape, fortran


def as_bytes(array: np.ndarray) -> memoryview:
    """The memory of a C-contiguous array."""
    return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def run_entries(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The row numbers of several ranges, one after the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


class ArrayFile:
    """Rows of a C-contiguous `.npy` file; several threads may use it at once.

    Ranges are read with `preadv` directly into the output: mapped pages would count as this process's memory, and
    a file that is truncated under a map kills the process. Scattered rows are read through a map if `mapped` (ten times
    faster once its pages are in place), else by one `pread` each. A large file is not mapped, because touching one
    row can make a whole large page (2 MiB) of the system's cache resident: a few thousand rows take gigabytes, and
    releasing them and faulting them in again costs more than the system calls.
    """

    def __init__(self, path: Path, dtype: np.dtype, rows: int, row_shape: tuple[int, ...], *, mapped: bool = False):
        self.path, self.dtype, self.rows, self.row_shape = path, dtype, rows, row_shape
        self.mapped = mapped or sys.platform == "win32"
        self._row_bytes = dtype.itemsize * math.prod(row_shape)
        self._offset = len(encode_header(dtype, (rows, *row_shape)))
        self.size = self._offset + rows * self._row_bytes
        _checks.readable(path)
        self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        weakref.finalize(self, os.close, self._fd)
        self._check_content()
        self._lock = threading.Lock()
        self._mapping: np.ndarray | None = None

    def _check_content(self) -> None:
        """Check that the file on disk is the one that the folder's header describes."""
        size = os.fstat(self._fd).st_size
        if size != self.size:
            raise InvalidValueError(
                f"`{self.path.name}` has {size:,} bytes instead of {self.size:,}: {self.path.parent} is "
                "damaged. Restore the file, or convert the data again with overwrite=True."
            )
        with open(self.path, "rb") as file:
            head = file.read(self._offset)
        if head != encode_header(self.dtype, (self.rows, *self.row_shape)):
            raise InvalidValueError(
                f"the .npy header of `{self.path.name}` does not specify {self.dtype} {(self.rows, *self.row_shape)}, "
                f"as the folder's header does: {self.path.parent} is damaged. Convert the data again with "
                "overwrite=True."
            )

    @property
    def nbytes(self) -> int:
        """Size of all rows in bytes."""
        return self.rows * self._row_bytes

    def empty(self, count: int) -> np.ndarray:
        """A new buffer for that many rows."""
        return np.empty((count, *self.row_shape), self.dtype)

    def read(self, start: int, stop: int, out: np.ndarray | None = None) -> np.ndarray:
        """Rows start..stop-1; the caller has checked the bounds."""
        out = self.empty(stop - start) if out is None else out
        view = as_bytes(out)
        position = self._offset + start * self._row_bytes
        while view:
            got = self._read_at(view, position)
            if not got:
                raise self._shrunk()
            view, position = view[got:], position + got
        return out

    def places(self, out: np.ndarray, run: int) -> list[memoryview]:
        """The slots of `run` rows in `out`, for `scatter`; keep them, because making them takes as long as reading."""
        size, view = run * self._row_bytes, as_bytes(out)
        return [view[begin : begin + size] for begin in range(0, len(view), size)]

    def scatter(self, starts: list[int], slots: list[list[int]], places: list[memoryview]) -> None:
        """Read windows of neighbouring rows, a run of them to each slot, without any further copy."""
        size = len(places[0])
        for start, window in zip(starts, slots, strict=True):
            position = self._offset + start * self._row_bytes
            for first in range(0, len(window), _PIECES):
                pieces = [places[slot] for slot in window[first : first + _PIECES]]
                expected = len(pieces) * size
                if self._read_pieces(pieces, position) != expected:
                    raise self._shrunk()
                position += expected

    def _read_pieces(self, pieces: list[memoryview], position: int) -> int:
        if HAS_PREADV:
            got = os.preadv(self._fd, pieces, position)
            if got == len(pieces) * len(pieces[0]):
                return got
        done = 0  # no `preadv`, or an incomplete call: read one after the other
        for piece in pieces:
            while piece and (got := self._read_at(piece, position + done)):
                piece, done = piece[got:], done + got
        return done

    def _read_at(self, view: memoryview, position: int) -> int:
        if HAS_PREADV:
            return os.preadv(self._fd, [view], position)
        with open(self.path, "rb", buffering=0) as file:  # Windows: a separate handle keeps threads independent
            file.seek(position)
            return file.readinto(view) or 0

    def take(self, indices: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """The rows with these numbers; the caller has checked that they exist."""
        out = self.empty(len(indices)) if out is None else out
        if self.mapped:
            return np.take(self._view(), indices, axis=0, out=out, mode="clip")
        for start in range(0, len(indices), _GROUP):
            part = indices[start : start + _GROUP]
            out[start : start + _GROUP] = self._gather(part, itertools.repeat(self._row_bytes), len(part))
        return out

    def take_runs(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Several ranges of rows, one after the other; the caller has checked that they exist."""
        total = int(lengths.sum())
        if not self.mapped:
            return self._gather(starts, (lengths * self._row_bytes).tolist(), total)
        return np.take(self._view(), run_entries(starts, lengths), axis=0, mode="clip")

    def _gather(self, starts: np.ndarray, sizes: Iterable[int], total: int) -> np.ndarray:
        """One system call for each range, all called from C."""
        positions = (self._offset + starts.astype(np.int64) * self._row_bytes).tolist()
        content = b"".join(map(os.pread, itertools.repeat(self._fd), sizes, positions))
        if len(content) != total * self._row_bytes:
            raise self._shrunk()
        return np.frombuffer(content, self.dtype).reshape(total, *self.row_shape)

    def _view(self) -> np.ndarray:
        """The whole file as an array."""
        if os.fstat(self._fd).st_size < self.size:  # touching a page beyond the end would kill the process
            raise self._shrunk()
        with self._lock:
            if self._mapping is None:
                content = mmap.mmap(self._fd, self.size, access=mmap.ACCESS_READ)
                flat = np.frombuffer(content, np.uint8, self.nbytes, self._offset)
                self._mapping = flat.view(self.dtype).reshape(self.rows, *self.row_shape)
            return self._mapping

    def checksum(self) -> str:
        """CRC-32 of all rows, as written in the folder's header."""
        crc, step = 0, max(1, (16 << 20) // self._row_bytes)
        buffer = self.empty(min(step, self.rows))
        for start in range(0, self.rows, step):
            stop = min(start + step, self.rows)
            crc = zlib.crc32(as_bytes(self.read(start, stop, buffer[: stop - start])), crc)
        return f"{crc:08x}"

    def _shrunk(self) -> DataChangedError:
        return DataChangedError(
            f"`{self.path.name}` has shrunk since {self.path.parent} was opened ({os.fstat(self._fd).st_size:,} bytes "
            f"instead of {self.size:,}). Nothing may write to a data folder during a run: restore it and resume."
        )


class ArrayFileWriter:
    """Appends rows to a `.npy` file; the header is completed at the end, when the number of rows is known."""

    def __init__(self, path: Path, dtype: np.dtype, row_shape: tuple[int, ...]):
        self.dtype, self.row_shape, self.rows = dtype.newbyteorder("<"), row_shape, 0
        self._crc = 0
        self._file = open(path, "wb")
        self._file.write(encode_header(self.dtype, (0, *row_shape)))

    def append(self, rows: np.ndarray) -> None:
        """Add rows at the end."""
        data = as_bytes(np.ascontiguousarray(rows, self.dtype))
        self._crc = zlib.crc32(data, self._crc)
        self._file.write(data)
        self.rows += len(rows)

    def finish(self) -> tuple[int, str]:
        """Complete the header and sync everything to disk; return the file's size and the checksum of its rows."""
        size = self._file.tell()
        self._file.seek(0)
        self._file.write(encode_header(self.dtype, (self.rows, *self.row_shape)))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return size, f"{self._crc:08x}"

    def close(self) -> None:
        """Close the file unchanged."""
        self._file.close()


_FIXES = {
    "U": "text: encode it as numbers (0, 1, 2, ...)",
    "S": "text: encode it as numbers (0, 1, 2, ...)",
    "T": "text: encode it as numbers (0, 1, 2, ...)",
    "O": "Python objects (text, missing values or ragged lists): encode them as numbers",
    "M": "dates: convert them to numbers, e.g. days since the first one",
    "m": "time differences: convert them to numbers, e.g. seconds",
    "c": "complex numbers: store real and imaginary parts as two arrays",
    "V": "records or an unknown kind of number: store each field as a separate array",
}


def check_kind(dtype: np.dtype, name: str) -> None:
    """Raise an error for everything except real numbers and booleans."""
    if dtype.kind not in "fiub":
        fix = _FIXES.get(dtype.kind, "values that are not real numbers: encode it")
        raise InvalidTypeError(f"{name} has dtype {dtype}, which holds {fix} first, or omit it.")


def stored_dtype(dtype: np.dtype, precision: str) -> np.dtype:
    """The dtype on disk: 32-bit floats and integers, unless double precision was requested."""
    double = precision == "float64"
    if dtype.kind == "f":
        return np.dtype("<f8" if double else "<f4")
    if dtype.kind in "iu" and dtype.itemsize == 8:
        return np.dtype("<i8" if double else "<i4")
    return dtype.newbyteorder("<")


def check_precision(dtype: Any) -> str:
    """`float32` (also for None) or `float64`."""
    try:
        name = np.dtype(np.float32 if dtype is None else dtype).name
    except TypeError:
        name = ""
    if name not in ("float32", "float64"):
        raise InvalidValueError(f"`dtype` must be 'float32' (the default) or 'float64' (keeps 64 bits), got {dtype!r}.")
    return name


def to_stored(rows: np.ndarray, dtype: np.dtype, name: str, first_row: int, columns: Sequence[str] = ()) -> np.ndarray:
    """Rows in the dtype on disk, after a check of every value.

    Messages name the array, count rows from `first_row`, and name the columns that were stacked into the array.
    """
    if rows.dtype.kind == "f":
        _check_finite(rows, name, first_row, columns)
    if dtype == rows.dtype:
        return rows
    if dtype.kind in "iu" and rows.dtype.kind in "iu" and rows.size:
        limits = np.iinfo(dtype)
        if rows.max() > limits.max or rows.min() < limits.min:
            wide = (rows > limits.max) | (rows < limits.min)
            raise InvalidValueError(
                f"{_place(wide, name, first_row, columns)} is {rows[wide].flat[0]}, beyond {8 * dtype.itemsize} bits. "
                "Recode it (identifiers as 0, 1, 2, ...), omit it, or keep 64 bits with dtype='float64'."
            )
    with np.errstate(over="ignore"):
        stored = rows.astype(dtype)
    if dtype.kind == "f" and not _all_finite(stored):
        wide = ~np.isfinite(stored)
        raise InvalidValueError(
            f"{_place(wide, name, first_row, columns)} is {rows[wide].flat[0]:.3g}, beyond the range of float32 "
            "(3.4e38). Rescale it, or keep 64 bits with dtype='float64'."
        )
    return stored


def _all_finite(rows: np.ndarray) -> bool:
    with np.errstate(all="ignore"):  # a finite sum proves finite entries in one fast pass
        return bool(np.isfinite(np.sum(rows))) or bool(np.all(np.isfinite(rows)))


def _check_finite(rows: np.ndarray, name: str, first_row: int, columns: Sequence[str]) -> None:
    if _all_finite(rows):
        return
    bad = ~np.isfinite(rows)
    count = int(bad.sum())
    raise InvalidValueError(
        f"{_place(bad, name, first_row, columns)} is NaN or infinite ({count} such value{'s' * (count > 1)} in the "
        f"first {first_row + len(rows):,} rows). Drop these rows or impute the values first."
    )


def _place(bad: np.ndarray, name: str, first_row: int, columns: Sequence[str]) -> str:
    """Describe where the first marked value is."""
    where = [int(i) for i in np.argwhere(bad)[0]]
    row, inside = first_row + where[0], where[1:]
    if len(inside) == 1 and len(columns) == bad.shape[1]:
        return f"{name}, column `{columns[inside[0]]}`, row {row} (counted from 0)"
    index = f", index {tuple(inside)}" if inside else ""
    return f"{name}, row {row} (counted from 0){index}"
