"""What the commands of mixtures read: tables of real numbers, or counts of a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scirocco.cli._common import names_of
from scirocco.errors import InvalidValueError


class Wanted(NamedTuple):
    """What to read, and how."""

    path: Path
    columns: str | None
    vocabulary: Path | None
    base: str


class TableRows(NamedTuple):
    """A table or a matrix of counts; `names` are the words of the counts."""

    X: Any
    names: tuple[str, ...] | None
    base: str
    notes: tuple[str, ...] = ()


def read(wanted: Wanted, names: Sequence[str] | None = None) -> TableRows:
    """A table (real numbers by default) or a corpus (counts); `names` are the words of an earlier fit."""
    path = wanted.path.expanduser()
    if not path.exists():
        raise InvalidValueError(f"there is no file or folder {path}.")
    if not _has_columns(path):
        if wanted.columns is not None:
            raise InvalidValueError(f"--columns requires a table, but {path} is a corpus.")
        return _corpus(path, wanted, names)
    if wanted.vocabulary is not None:
        raise InvalidValueError(
            "--vocabulary requires a corpus; the columns of a table have their own names."
        )
    from scirocco.models.inputs.files import read_table

    table = read_table(path, names_of(wanted.columns), folders=True)
    return TableRows(table, None, "gaussian" if wanted.base == "auto" else wanted.base)


def _has_columns(path: Path) -> bool:
    from scirocco.data.formats.conversion import is_table
    from scirocco.data.formats.readers import is_sparse
    from scirocco.data.native.header import is_data_folder, read_header

    if is_data_folder(path):
        return read_header(path).kind == "rows"
    if path.suffix == ".npz":
        return not is_sparse(path)
    return is_table(path) or path.suffix in (".zarr", ".npy")


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
