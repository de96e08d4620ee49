"""Rows that arrive chunk by chunk, written as a data folder."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from scirocco import _checks
from scirocco._random import SeedPurpose
from scirocco.data.arrays import check_lengths
from scirocco.data.native.header import ArrayEntry, Header, PartialFolder
from scirocco.data.native.npy import ArrayFileWriter, check_kind, check_precision, stored_dtype, to_stored
from scirocco.data.shuffle import RowShuffle
from scirocco.data.values import as_numpy
from scirocco.errors import InvalidValueError

DEFAULT_MEMORY = 1 << 30  # bytes
_MOST_ARRAYS = 200  # each is an open file


class FolderWriter:
    """Write a data folder from a stream of chunks of rows, in one pass and bounded memory.

    Use it in a `with` statement: the folder gets its name when the block ends, and is removed if it fails.

    Parameters
    ----------
    path
        The folder to create.
    shuffle, seed
        Whether to store the rows in a uniformly random order (see `RowShuffle`), and its seed.
    dtype
        'float32' (default) or 'float64'. 64-bit floats and integers are stored in 32 bits unless it is 'float64'.
    memory
        The budget in bytes. The order of the rows depends on it if they do not all fit.
    overwrite
        Replace an existing data folder. Other files are never deleted.
    single
        The data are one bare array, not a dict of arrays.
    source
        The origin of the rows, for the header.
    columns
        The columns that were stacked into each array, for the messages and the header.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from scirocco.data import FolderSource, FolderWriter
    >>> path = tempfile.mkdtemp() + "/rows"
    >>> with FolderWriter(path, shuffle=False) as writer:
    ...     for start in (0, 3):
    ...         writer.append({"y": np.arange(start, start + 3)})
    >>> FolderSource(path).read(0, 6)
    {'y': array([0, 1, 2, 3, 4, 5], dtype=int32)}
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        shuffle: bool = True,
        seed: int = 0,
        dtype: Any = None,
        memory: int = DEFAULT_MEMORY,
        overwrite: bool = False,
        single: bool = False,
        source: str = "",
        columns: Mapping[str, Sequence[str]] | None = None,
    ):
        self.shuffle, self.single, self.source = bool(shuffle), single, source
        self.seed = _checks.positive_int(seed, "seed", minimum=0)
        self.memory = _checks.positive_int(memory, "memory")
        self.precision = check_precision(dtype)
        self.columns = dict(columns or {})
        self.num_rows = 0
        self._files: dict[str, ArrayFileWriter] = {}
        self._names: dict[str, str] = {}
        self._shuffler: RowShuffle | None = None
        self._partial = PartialFolder(path, overwrite=overwrite)

    def append(self, chunk: Mapping[str, np.ndarray]) -> None:
        """Add rows: arrays with equal first axes, the same names, row shapes and kinds in every chunk."""
        chunk = {name: as_numpy(rows, self._label(name)) for name, rows in chunk.items()}
        if not self._files:
            self._begin(chunk)
        self._check_chunk(chunk)
        rows = {name: self._stored(name, chunk[name]) for name in self._files}
        if self._shuffler is not None:
            self._shuffler.add({f"f{i}": array for i, array in enumerate(rows.values())})
        else:
            self._write(rows)
        self.num_rows += len(next(iter(rows.values())))

    def finish(self) -> Path:
        """Write the remaining rows, complete the files, and give the folder its name."""
        if not self.num_rows:
            raise InvalidValueError(f"{self.source or 'the data'}: there are no rows, so there is nothing to write.")
        if self._shuffler is not None:
            for records in self._shuffler.drain():
                self._write({name: records[f"f{i}"] for i, name in enumerate(self._files)})
        entries = {}
        for name, file in self._files.items():
            size, crc = file.finish()
            columns = tuple(self.columns.get(name, ()))
            entries[name] = ArrayEntry(self._names[name], file.dtype.str, file.rows, file.row_shape, size, crc, columns)
        seed = self.seed if self.shuffle else None
        self._partial.finish(Header("rows", self.num_rows, self.shuffle, seed, entries, self.single, self.source))
        return self._partial.target

    def abandon(self) -> None:
        """Remove everything written so far."""
        for file in self._files.values():
            file.close()
        self._partial.abandon()

    def __enter__(self) -> FolderWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abandon()
            return
        try:
            self.finish()
        except BaseException:
            self.abandon()
            raise

    def _begin(self, chunk: Mapping[str, np.ndarray]) -> None:
        """Get names, dtypes and row shapes from the first chunk, and create the files."""
        if not chunk:
            raise InvalidValueError("there are no arrays to write.")
        if len(chunk) > _MOST_ARRAYS:
            raise InvalidValueError(
                f"the data have {len(chunk)} arrays; a folder can have at most {_MOST_ARRAYS}. Stack columns into a "
                "matrix, e.g. columns={'x': ['feature_*'], 'y': 'label'}."
            )
        for name, array in chunk.items():
            check_kind(array.dtype, self._label(name))
            if array.ndim == 0:
                raise InvalidValueError(f"{self._label(name)} is a single number, not one row per datum.")
            if not math.prod(array.shape[1:]):
                raise InvalidValueError(f"{self._label(name)} has rows of shape {array.shape[1:]}, with no values.")
        self._names = file_names(list(chunk))
        fields = []
        for i, (name, array) in enumerate(chunk.items()):
            dtype = stored_dtype(array.dtype, self.precision)
            path = self._partial.path / self._names[name]
            self._files[name] = ArrayFileWriter(path, dtype, array.shape[1:])
            fields.append((f"f{i}", dtype, array.shape[1:]))
        if self.shuffle:
            rng = np.random.default_rng([self.seed, int(SeedPurpose.FOLDER_ORDER)])
            self._shuffler = RowShuffle(np.dtype(fields), self._partial.path, rng, self.memory)

    def _check_chunk(self, chunk: Mapping[str, np.ndarray]) -> None:
        if set(chunk) != set(self._files):
            raise InvalidValueError(
                f"the arrays change from {sorted(self._files)} to {sorted(chunk)} at row {self.num_rows}."
            )
        check_lengths({f"`{name}`": array for name, array in chunk.items()})

    def _stored(self, name: str, rows: np.ndarray) -> np.ndarray:
        file, label = self._files[name], self._label(name)
        check_kind(rows.dtype, label)
        if rows.shape[1:] != file.row_shape:
            raise InvalidValueError(
                f"the rows of {label} change shape from {file.row_shape} to {rows.shape[1:]} at row {self.num_rows}."
            )
        if stored_dtype(rows.dtype, self.precision) != file.dtype:
            raise InvalidValueError(
                f"{label} changes from {file.dtype} to {rows.dtype} at row {self.num_rows}. Cast it to one type."
            )
        return to_stored(rows, file.dtype, label, self.num_rows, self.columns.get(name, ()))

    def _write(self, rows: Mapping[str, np.ndarray]) -> None:
        for name, file in self._files.items():
            file.append(rows[name])

    def _label(self, name: str) -> str:
        return "the array" if self.single else f"array `{name}`"


def file_names(names: Sequence[str]) -> dict[str, str]:
    """A plain file name for each array, unique even if upper and lower case are not distinguished."""
    chosen: dict[str, str] = {}
    for i, name in enumerate(names):
        if not isinstance(name, str) or not name:
            raise InvalidValueError(f"the name of an array must be a non-empty string, got {name!r}.")
        plain = re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}", name) is not None
        taken = {file.casefold() for file in chosen.values()}
        free = plain and f"{name}.npy".casefold() not in taken
        chosen[name] = f"{name}.npy" if free else f"array.{i}.npy"
    return chosen
