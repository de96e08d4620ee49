"""What the commands of mixtures read: tables of real numbers, or counts of a corpus."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scirocco.errors import InvalidValueError

_TABLES = (".csv", ".parquet", ".arrow", ".feather", ".zarr", ".npy")
"""Endings of files that are tables; others are corpora."""


class Wanted(NamedTuple):
    """What to read, and how."""

    path: Path
    columns: str | None
    vocabulary: Path | None
    base: str


class TableRows(NamedTuple):
    """A table or a matrix of counts; `names` are the names of its columns."""

    X: Any
    names: tuple[str, ...] | None
    base: str
    notes: tuple[str, ...] = ()


def read(wanted: Wanted, names: Sequence[str] | None = None) -> TableRows:
    """A table (real numbers by default) or a corpus (counts); `names` are the words of an earlier fit."""
    path = wanted.path.expanduser()
    if not path.exists():
        raise InvalidValueError(f"there is no file or folder {path}.")
    if _is_table(path):
        if wanted.vocabulary is not None:
            raise InvalidValueError(
                "--vocabulary requires a corpus; the columns of a table have their own names."
            )
        X, found = _table(path, wanted.columns)
        return TableRows(X, found, "gaussian" if wanted.base == "auto" else wanted.base)
    if wanted.columns is not None:
        raise InvalidValueError(f"--columns requires a table, but {path} is a corpus.")
    return _corpus(path, wanted, names)


def _is_table(path: Path) -> bool:
    from scirocco.data.formats.readers import is_sparse
    from scirocco.data.native.header import is_data_folder, read_header

    if is_data_folder(path):
        return read_header(path).kind == "rows"
    if path.suffix == ".npz":
        return not is_sparse(path)
    return path.suffix in _TABLES


def _table(path: Path, columns: str | None) -> tuple[Any, tuple[str, ...] | None]:
    from scirocco import data
    from scirocco.data.native.header import is_data_folder

    if is_data_folder(path):
        return _stacked(data.open(path), columns)
    chosen = None if columns is None else {"x": [name.strip() for name in columns.split(",") if name.strip()]}
    with tempfile.TemporaryDirectory() as folder:
        made = data.convert(path, Path(folder) / "rows", columns=chosen, shuffle=False, dtype="float64")
        return _stacked(made, None)


def _stacked(source: Any, columns: str | None) -> tuple[Any, tuple[str, ...]]:
    """All arrays side by side, in memory."""
    wanted = None if columns is None else [name.strip() for name in columns.split(",")]
    rows = source.read(0, source.num_rows)
    arrays = rows if isinstance(rows, dict) else {"x": rows}
    parts: list[Any] = []
    names: list[str] = []
    for name, values in arrays.items():
        if wanted is not None and name not in wanted:
            continue
        part = np.array(values, np.float64).reshape(len(values), -1)  # a copy, as the file may be deleted
        entry = source.header.arrays[name] if isinstance(rows, dict) else None
        own = entry.columns if entry is not None and entry.columns else None
        numbered = [f"{name}[{k}]" for k in range(part.shape[1])] if part.shape[1] > 1 else [name]
        parts.append(part)
        names += list(own) if own is not None and len(own) == part.shape[1] else numbered
    if not parts:
        raise InvalidValueError(
            f"--columns {columns}: {source.path} contains the arrays {', '.join(arrays)}."
        )
    return np.concatenate(parts, axis=1), tuple(names)


def _corpus(path: Path, wanted: Wanted, names: Sequence[str] | None) -> TableRows:
    from scipy import sparse

    from scirocco_latent.lda.texts import open_corpus

    if wanted.base == "gaussian":
        raise InvalidValueError(f"{path} contains word counts, which require --base multinomial.")
    corpus = open_corpus(path, wanted.vocabulary if wanted.vocabulary is not None else names).corpus
    indptr, indices, counts = corpus.take_csr(np.arange(corpus.num_documents))
    shape = (corpus.num_documents, corpus.vocabulary_size)
    return TableRows(
        sparse.csr_array((counts, indices, indptr), shape=shape),
        corpus.vocabulary,
        "multinomial",
        corpus.notes,
    )
