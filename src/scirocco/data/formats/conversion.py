"""From the files people have to a native data folder, in one streaming pass."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from scirocco._extras import require
from scirocco.data.formats.arrow_reader import ARROW, PARQUET, ArrowTable
from scirocco.data.formats.columns import Columns, Plan
from scirocco.data.formats.csv_reader import CSV, CsvTable
from scirocco.data.formats.readers import NpyTable, NpzTable, SourceTable, ZarrTable, is_sparse, reading
from scirocco.data.native.corpus import CorpusSource
from scirocco.data.native.corpus_writer import write_corpus
from scirocco.data.native.folder import FolderSource
from scirocco.data.native.writer import DEFAULT_MEMORY, FolderWriter
from scirocco.errors import InvalidValueError

_KNOWN = (
    f"Parquet ({', '.join(PARQUET)}) and Arrow ({', '.join(ARROW)}) files or folders of them, Zarr folders, CSV "
    f"({', '.join(CSV)}), NumPy .npy and .npz, and matrices saved by scipy.sparse.save_npz"
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

    Reads Parquet and Arrow files (or folders of them), Zarr, CSV, `.npy`, `.npz`, and SciPy's sparse `.npz`, which
    becomes a corpus (it is loaded whole).

    Parameters
    ----------
    source
        What to read.
    folder
        The data folder to make.
    columns
        Which columns make which array: a column, a list of columns, or shell patterns, e.g.
        ``{"x": ["feature_*"], "y": "label"}``. A list, or a pattern, is stacked into one matrix: in the order
        listed, the matches of a pattern in the order of the file. A pattern passes over columns that are named
        elsewhere, so ``{"y": "label", "x": "*"}`` takes all others. By default each column is an array.
    shuffle, seed
        Whether to store the rows in a uniformly random order (see `RowShuffle`), and its seed.
    dtype
        'float32' (default) or 'float64', which keeps 64-bit floats and integers.
    memory
        The budget in bytes. Data that exceed it go through temporary files beside the folder.
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
    path = Path(source).expanduser().absolute()
    if path.suffix == ".npz" and path.is_file() and is_sparse(path):
        if columns is not None:
            raise InvalidValueError(f"{path.name} is a sparse matrix: it has no columns to choose from.")
        sparse = require("scipy.sparse", "reading sparse matrices")
        with reading(path):
            matrix = sparse.load_npz(path)
        return write_corpus(folder, matrix, shuffle=shuffle, seed=seed, overwrite=overwrite, source=str(path))
    table = open_table(path)
    plan = Plan(columns, table.names, table.label)
    options: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "dtype": dtype, "memory": memory}
    options |= {"overwrite": overwrite, "source": str(path), "single": table.single and columns is None}
    options["columns"] = {name: group for name, group in plan.columns.items() if plan.stacked[name]}
    try:
        _write(folder, options, _arrays(table, plan, {}))
    except (
        _WiderTypeError
    ):  # the types of a CSV file are known only at its end: look at all of it, and begin again
        _write(folder, options, _arrays(table, plan, _scan(table, plan)))
    return FolderSource(folder)


def open_table(path: Path) -> SourceTable:
    """The reader for this file or folder."""
    if not path.exists():
        raise InvalidValueError(f"there is no file or folder {path}.")
    if path.is_dir():
        if any((path / name).exists() for name in ("zarr.json", ".zarray", ".zgroup")):
            return ZarrTable(path)
        return ArrowTable(path, _files_inside(path))
    name = path.name.lower()
    if path.suffix.lower() in (*PARQUET, *ARROW):
        return ArrowTable(path, [path])
    if name.endswith(CSV):
        return CsvTable(path)
    if name.endswith(".npy"):
        return NpyTable(path)
    if name.endswith(".npz"):
        return NpzTable(path)
    raise InvalidValueError(f"{path.name}: files of this kind cannot be converted. Known are {_KNOWN}.")


def _files_inside(path: Path) -> list[Path]:
    """The Parquet or Arrow files of a folder, in the order of their names; hidden ones are passed over."""
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
    raise InvalidValueError(f"{path} holds no Parquet, Arrow or Zarr data. Known are {_KNOWN}.")


class _WiderTypeError(Exception):
    """A column that began with whole numbers goes on with decimals."""


def _write(
    folder: str | os.PathLike[str], options: dict[str, Any], chunks: Iterator[dict[str, np.ndarray]]
) -> None:
    with FolderWriter(folder, **options) as writer:
        for chunk in chunks:
            writer.append(chunk)


def _arrays(table: SourceTable, plan: Plan, known: dict[str, np.dtype]) -> Iterator[dict[str, np.ndarray]]:
    """Chunks of the arrays, each array in one dtype from beginning to end."""
    for chunk in table.chunks(plan.wanted):
        made = plan.arrays(chunk)
        for name, array in made.items():
            dtype = known.setdefault(name, array.dtype)
            if array.dtype != dtype:
                if np.result_type(array.dtype, dtype) != dtype:
                    raise _WiderTypeError
                made[name] = array.astype(dtype)
        yield made


def _scan(table: SourceTable, plan: Plan) -> dict[str, np.dtype]:
    """The widest type of each array."""
    widest: dict[str, np.dtype] = {}
    for chunk in table.chunks(plan.wanted):
        for name, array in plan.arrays(chunk).items():
            widest[name] = np.result_type(array.dtype, widest.get(name, array.dtype))
    return widest
