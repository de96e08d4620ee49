"""A sparse matrix of counts, written as a data folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from scirocco import _checks
from scirocco._random import SeedPurpose
from scirocco.data.native.corpus import CorpusSource
from scirocco.data.native.header import ArrayEntry, Header
from scirocco.data.native.npy import ArrayFileWriter
from scirocco.data.native.partial import PartialFolder
from scirocco.data.shuffle import shuffled_numbers

_WRITE_ROWS = 1 << 16


def write_corpus(
    path: str | os.PathLike[str],
    matrix: Any,
    *,
    shuffle: bool = True,
    seed: int = 0,
    overwrite: bool = False,
    source: str = "a matrix in memory",
) -> CorpusSource:
    """Write a sparse matrix of counts (documents × vocabulary) as a data folder.

    Parameters
    ----------
    path
        The folder to make.
    matrix
        A SciPy sparse matrix or array. Duplicates in a row are summed and zeros dropped.
    shuffle, seed
        Whether to store the documents in a uniformly random order, and its seed.
    overwrite
        Replace an existing data folder.
    source
        Where the matrix comes from, for the header.
    """
    seed = _checks.positive_int(seed, "seed", minimum=0)
    corpus = CorpusSource(matrix)
    order = (
        shuffled_numbers(corpus.num_rows, seed, SeedPurpose.CORPUS_ORDER)
        if shuffle
        else np.arange(corpus.num_rows)
    )
    partial = PartialFolder(path, overwrite=overwrite)
    try:
        entries = _write_arrays(partial.path, corpus, order)
        extra = {"vocabulary_size": corpus.vocabulary_size, "longest_row": corpus.longest_row}
        header = Header(
            *("corpus", corpus.num_rows, bool(shuffle), seed if shuffle else None, entries),
            source=source,
            extra=extra,
        )
        partial.finish(header)
    except BaseException:
        partial.abandon()
        raise
    return CorpusSource(path)


def _write_arrays(folder: Path, corpus: CorpusSource, order: np.ndarray) -> dict[str, ArrayEntry]:
    parts = corpus._parts
    files = {name: ArrayFileWriter(folder / f"{name}.npy", part.dtype, ()) for name, part in parts.items()}
    files["indptr"].append(np.zeros(1, np.int64))
    for start in range(0, len(order), _WRITE_ROWS):
        indptr, words, counts = corpus.take_csr(order[start : start + _WRITE_ROWS])
        files["indptr"].append(indptr[1:] + files["indices"].rows)
        files["indices"].append(words)
        files["counts"].append(counts)
    entries = {}
    for name, file in files.items():
        size, crc = file.finish()
        entries[name] = ArrayEntry(f"{name}.npy", file.dtype.str, file.rows, (), size, crc)
    return entries
