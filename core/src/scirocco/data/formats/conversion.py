"""From common file formats to a native data folder, in one streaming pass."""

from __future__ import annotations

import difflib
import fnmatch
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scirocco import _checks
from scirocco._extras import require
from scirocco.data.formats.arrow_reader import ARROW, PARQUET, ArrowTable
from scirocco.data.formats.readers import FolderTable, NpyTable, NpzTable, SourceTable, ZarrTable, is_sparse, reading
from scirocco.data.formats.text import DELIMITERS, delimiter_of
from scirocco.data.formats.text_table import TextTable, WiderColumnError
from scirocco.data.native.corpus import CorpusSource, write_corpus
from scirocco.data.native.folder import FolderSource
from scirocco.data.native.header import FILE_NAME
from scirocco.data.native.writer import DEFAULT_MEMORY, FolderWriter
from scirocco.data.values import EXACT
from scirocco.errors import InvalidTypeError, InvalidValueError

Columns = Mapping[str, str | Sequence[str]]
TABLES = (".csv", ".tsv", *PARQUET, *ARROW)
"""Endings of files that are tables and nothing else, text also with .gz; a .txt file may have documents."""


class ColumnPlan:
    """The columns of each array; a single column is unchanged, several are stacked."""

    def __init__(self, columns: Columns | None, names: Sequence[str], where: str):
        self.where = where
        self.stacked: dict[str, bool] = {}
        self.columns: dict[str, list[str]] = {}
        if columns is None:
            self.columns = {name: [name] for name in names}
            self.stacked = dict.fromkeys(names, False)
        else:
            self._choose(columns, list(names))

    @property
    def wanted(self) -> list[str]:
        """All columns to be read."""
        return [name for group in self.columns.values() for name in group]

    def arrays(self, chunk: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The arrays from a chunk of columns."""
        made = {}
        for array, group in self.columns.items():
            made[array] = self._stack(array, group, chunk) if self.stacked[array] else chunk[group[0]]
        return made

    def _stack(self, array: str, group: list[str], chunk: Mapping[str, np.ndarray]) -> np.ndarray:
        parts = [chunk[name] for name in group]
        deep = [name for name, part in zip(group, parts, strict=True) if part.ndim > 2]
        if deep:
            raise InvalidValueError(
                f"column `{deep[0]}` of {self.where} has {chunk[deep[0]].ndim - 1} axes in a row and cannot be "
                f"stacked into `{array}`. Make it a separate array."
            )
        widths = [1 if part.ndim == 1 else part.shape[1] for part in parts]
        matrix = np.empty((len(parts[0]), sum(widths)), np.result_type(*(part.dtype for part in parts)))
        start = 0
        for part, width in zip(parts, widths, strict=True):
            matrix[:, start : start + width] = part[:, None] if part.ndim == 1 else part
            start += width
        return matrix

    def _choose(self, columns: Columns, names: list[str]) -> None:
        if not isinstance(columns, Mapping) or not columns:
            raise InvalidTypeError(
                f"`columns` maps array names to columns, e.g. {{'x': ['feature_*'], 'y': 'label'}}; got {columns!r}."
            )
        entries = [
            (array, entry)
            for array, listed in columns.items()
            for entry in ([listed] if isinstance(listed, str) else listed)
        ]
        named = {entry for _, entry in entries if entry in names}
        owner: dict[str, str] = {}
        for array, entry in entries:
            group = self.columns.setdefault(array, [])
            for name in self._matches(entry, names, named):
                if name in owner:
                    raise InvalidValueError(
                        f"column `{name}` of {self.where} is used twice: in `{owner[name]}` and in `{array}`."
                    )
                owner[name] = array
                group.append(name)
            plain = isinstance(columns[array], str) and entry in names
            self.stacked[array] = not plain
        empty = [array for array in columns if not self.columns.get(array)]
        if empty:
            raise InvalidValueError(f"`columns` lists no column for the array `{empty[0]}`.")

    def _matches(self, entry: str, names: list[str], named: set[str]) -> list[str]:
        """One column by its name, or all columns that match a pattern and are not named elsewhere."""
        if entry in names:
            return [entry]
        if any(sign in entry for sign in "*?["):
            found = [name for name in names if fnmatch.fnmatchcase(name, entry) and name not in named]
            if not found:
                raise InvalidValueError(f"the pattern {entry!r} matches no column of {self.where}. {_listed(names)}")
            return found
        close = difflib.get_close_matches(entry, names, n=1)
        hint = f"Did you mean `{close[0]}`? " if close else ""
        raise InvalidValueError(f"{self.where} has no column `{entry}`. {hint}{_listed(names)}")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:20]) + (f", ... ({len(names)} in all)" if len(names) > 20 else "")
    return f"The columns are: {shown}."


_KNOWN = (
    f"Parquet ({', '.join(PARQUET)}) and Arrow ({', '.join(ARROW)}) files or folders of them, Zarr folders, text "
    f"({', '.join(DELIMITERS)}, also with .gz), NumPy .npy and .npz, and matrices saved by scipy.sparse.save_npz"
)


def convert(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    columns: Columns | None = None,
    shuffle: bool = True,
    seed: int = 0,
    dtype: Any = None,
    memory: int = DEFAULT_MEMORY,
    overwrite: bool = False,
) -> FolderSource | CorpusSource:
    """Convert a file, or a folder of files, to a native data folder, in one pass and bounded memory.

    Reads Parquet and Arrow files (or folders of them), Zarr, CSV and other text, `.npy`, `.npz`, and SciPy's sparse
    `.npz`, which becomes a corpus (it is loaded into memory).

    Parameters
    ----------
    source
        The file or folder to read.
    folder
        The data folder to create.
    columns
        The columns of each array: a column, a list of columns, or shell patterns, e.g.
        ``{"x": ["feature_*"], "y": "label"}``. A list, or a pattern, is stacked into one matrix, in the order
        listed; the matches of a pattern are in the order of the file. A pattern skips columns that are named
        elsewhere, so ``{"y": "label", "x": "*"}`` takes all others. By default each column is an array.
    shuffle, seed
        Whether to store the rows in a uniformly random order (see `RowShuffle`), and its seed.
    dtype
        'float32' (default) or 'float64', which keeps 64-bit floats and integers.
    memory
        The budget in bytes. Data that exceed it go through temporary files next to the folder.
    overwrite
        Replace an existing data folder.

    Examples
    --------
    >>> import numpy as np, scirocco as sc, tempfile
    >>> place = tempfile.mkdtemp()
    >>> np.savez(place + "/data.npz", x=np.ones((5, 2)), y=np.arange(5))
    >>> sc.data.convert(place + "/data.npz", place + "/rows").num_rows
    5
    """
    path = _checks.path(source, "source")
    if path.suffix == ".npz" and path.is_file() and is_sparse(path):
        if columns is not None:
            raise InvalidValueError(f"{path.name} is a sparse matrix: it has no columns to choose from.")
        sparse = require("scipy.sparse", "reading sparse matrices")
        with reading(path):
            matrix = sparse.load_npz(path)
        return write_corpus(folder, matrix, shuffle=shuffle, seed=seed, overwrite=overwrite, source=str(path))
    table = open_table(path, _plain_names(columns))
    plan = ColumnPlan(columns, table.names, table.label)
    options: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "dtype": dtype, "memory": memory}
    options |= {"overwrite": overwrite, "source": str(path), "single": table.single and columns is None}
    options["columns"] = {name: group for name, group in plan.columns.items() if plan.stacked[name]}
    try:
        _write(folder, options, _arrays(table, plan))
    except WiderColumnError:
        _write(folder, options, _arrays(table, plan))
    return FolderSource(folder)


def _plain_names(columns: Any) -> list[str]:
    """The names in `columns` that are no patterns."""
    groups = columns.values() if isinstance(columns, Mapping) else []
    listed = [name for group in groups for name in ([group] if isinstance(group, str) else group)]
    return [name for name in listed if not any(sign in name for sign in "*?[")]


def is_table(path: Path) -> bool:
    """Whether a file is a table by its name."""
    return path.name.lower().removesuffix(".gz").endswith(TABLES)


def open_table(path: Path, wanted: Sequence[str] = (), encoding: str = "utf-8") -> SourceTable:
    """The reader for this file or folder; `wanted` are names that the first line of a text file may have."""
    if not path.exists():
        raise InvalidValueError(f"there is no file or folder {path}.")
    _checks.readable(path)
    if path.is_dir():
        if (path / FILE_NAME).exists():
            return FolderTable(path)
        if any((path / name).exists() for name in ("zarr.json", ".zarray", ".zgroup")):
            return ZarrTable(path)
        return ArrowTable(path, _files_inside(path))
    name = path.name.lower()
    if path.suffix.lower() in (*PARQUET, *ARROW):
        return ArrowTable(path, [path])
    if delimiter_of(path) is not None:
        return TextTable(path, wanted, encoding)
    if name.endswith(".npy"):
        return NpyTable(path)
    if name.endswith(".npz"):
        return NpzTable(path)
    raise InvalidValueError(f"{path.name}: files of this kind cannot be read as a table. Supported are {_KNOWN}.")


def _files_inside(path: Path) -> list[Path]:
    """The Parquet or Arrow files of a folder, in the order of their names, without hidden ones."""
    for kinds in (PARQUET, ARROW):
        found = [
            file
            for file in sorted(path.rglob("*"))
            if file.suffix in kinds
            and file.is_file()
            and not any(part[0] in "._" for part in file.relative_to(path).parts)
        ]
        if found:
            return found
    raise InvalidValueError(f"{path} holds no Parquet, Arrow or Zarr data. Supported are {_KNOWN}.")


def _write(folder: str | os.PathLike[str], options: dict[str, Any], chunks: Iterator[dict[str, np.ndarray]]) -> None:
    with FolderWriter(folder, **options) as writer:
        for chunk in chunks:
            writer.append(chunk)


def _arrays(table: SourceTable, plan: ColumnPlan) -> Iterator[dict[str, np.ndarray]]:
    """Chunks of the arrays."""
    for chunk in table.chunks(plan.wanted):
        yield plan.arrays(chunk)


def read_columns(table: SourceTable, wanted: list[str]) -> dict[str, np.ndarray]:
    """Whole columns of any type, in memory."""
    try:
        chunks = list(table.chunks(wanted, numbers=False))
    except WiderColumnError:
        chunks = list(table.chunks(wanted, numbers=False))
    return {name: _joined([chunk.pop(name) for chunk in chunks]) for name in wanted}


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """A column; whole numbers with gaps are NaN there if double precision holds all of them."""
    column = np.concatenate(parts) if parts else np.empty(0)
    if column.dtype != object:
        return column
    kinds = set(map(type, column.tolist()))
    if kinds != {int, type(None)} or any(value is not None and abs(value) > EXACT for value in column):
        return column
    return np.array([np.nan if value is None else value for value in column], np.float64)
