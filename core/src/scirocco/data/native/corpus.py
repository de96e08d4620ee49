"""Documents as sparse rows of word counts: in memory, or in a data folder larger than memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from scirocco import _checks
from scirocco._extras import require
from scirocco._random import SeedPurpose
from scirocco.data import fingerprints
from scirocco.data.arrays import RowSource
from scirocco.data.native.folder import check_buffers, check_indices, check_stretch
from scirocco.data.native.header import (
    FILE_NAME,
    ArrayEntry,
    Header,
    PartialFolder,
    check_unchanged,
    damaged,
    open_arrays,
    read_header,
    stamp,
    verify_arrays,
)
from scirocco.data.native.npy import (
    MAP_LIMIT,
    ArrayFile,
    ArrayFileWriter,
    check_kind,
    run_entries,
    stored_dtype,
    to_stored,
)
from scirocco.data.shuffle import shuffled_numbers
from scirocco.data.values import as_csr
from scirocco.errors import DataChangedError, InvalidTypeError, InvalidValueError
from scirocco.types import PyTree, Rows


class _Held:
    """An array in memory with the reading methods of an `ArrayFile`."""

    def __init__(self, array: np.ndarray):
        self.array, self.dtype, self.nbytes, self.rows = array, array.dtype, array.nbytes, len(array)

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.array[start:stop]

    def take(self, indices: np.ndarray) -> np.ndarray:
        return self.array[indices]

    def take_runs(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        return self.array[run_entries(starts, lengths)]


class CorpusSource(RowSource):
    """Rows of a sparse matrix of counts: documents × vocabulary.

    A row is padded to the length of the longest document: `index` has the numbers of its distinct words, and `count`
    their frequencies; padding has index 0 and count 0, so that sums over words need no mask. `take_csr` returns the
    rows without padding.

    Parameters
    ----------
    matrix_or_folder
        A SciPy sparse matrix or array, or a folder made by `write_corpus` or `sc.data.convert`.
    map_limit
        As for `FolderSource`: maximum number of bytes of a folder that are mapped.

    Examples
    --------
    >>> import scipy.sparse as sp, scirocco as sc
    >>> corpus = sc.data.CorpusSource(sp.csr_array([[0, 2, 1], [0, 0, 4]]))
    >>> corpus.num_rows, corpus.vocabulary_size
    (2, 3)
    >>> corpus.take([1, 0])
    {'index': array([[2, 0],
           [1, 2]], dtype=int32), 'count': array([[4, 0],
           [2, 1]], dtype=int32)}
    """

    checked = True
    """Every count is known to be finite."""
    fills = True

    def __init__(self, matrix_or_folder: Any, *, map_limit: int = MAP_LIMIT):
        self.map_limit = map_limit
        if isinstance(matrix_or_folder, (str, os.PathLike)):
            self._open(_checks.path(matrix_or_folder, "path"))
        else:
            self._hold(matrix_or_folder)

    def _open(self, path: Path) -> None:
        self.path: Path | None = path
        self.header: Header | None = read_header(path)
        if self.header.kind != "corpus":
            raise InvalidValueError(f"{path} holds plain {self.header.kind}, not a corpus. Use sc.data.open(path).")
        wanted = {"vocabulary_size", "longest_row", "indptr", "indices", "counts"}
        if lacking := sorted(wanted - {*self.header.extra, *self.header.arrays}):
            raise damaged(path / FILE_NAME, f"it lacks {' and '.join(lacking)}")
        self.num_rows = self.header.num_rows
        self.vocabulary_size: int = self.header.extra["vocabulary_size"]
        self.longest_row: int = self.header.extra["longest_row"]
        self.shuffled = self.header.shuffled
        self._digest = self.header.digest
        self._files: dict[str, ArrayFile] = open_arrays(path, self.header, self.map_limit)
        self._parts: dict[str, Any] = dict(self._files)
        indptr = self._parts["indptr"].read(0, self.num_rows + 1)
        lengths = np.diff(indptr)
        fits = indptr[0] == 0 and indptr[-1] == self._parts["indices"].rows
        if not fits or lengths.min() < 0 or lengths.max() != self.longest_row:
            raise InvalidValueError(
                f"`indptr.npy` in {path} does not fit `indices.npy`. Convert the corpus again with overwrite=True."
            )

    def _hold(self, matrix: Any) -> None:
        indptr, indices, counts, self.vocabulary_size = _checked(matrix)
        self.path, self.header, self.shuffled = None, None, False
        self.num_rows = len(indptr) - 1
        self.longest_row = int(np.diff(indptr).max())
        self._files = {}
        self._parts = {"indptr": _Held(indptr), "indices": _Held(indices), "counts": _Held(counts)}
        self._digest = ""

    @property
    def row_spec(self) -> PyTree:
        """Shape and dtype of one padded row."""
        return {name: jax.ShapeDtypeStruct((self.longest_row,), dtype) for name, (_, dtype) in self._wanted.items()}

    @property
    def _wanted(self) -> Mapping[str, tuple[tuple[int, ...], np.dtype]]:
        shape = (self.longest_row,)
        return {"index": (shape, self._parts["indices"].dtype), "count": (shape, self._parts["counts"].dtype)}

    @property
    def nbytes(self) -> int:
        """Size in bytes, in memory or on disk (without padding)."""
        return sum(part.nbytes for part in self._parts.values())

    @property
    def num_entries(self) -> int:
        """The number of pairs of a document and a word in it."""
        return int(self._parts["indices"].rows)

    def take(self, indices: Any, out: Rows | None = None) -> Rows:
        """The padded rows with these numbers, in this order, optionally into the arrays `out`."""
        indptr, words, counts = self.take_csr(indices)
        return self._padded(indptr, words, counts, out)

    def read(self, start: int, stop: int, out: Rows | None = None) -> Rows:
        """The padded rows start..stop-1 (up to the last one), optionally into the arrays `out`."""
        start, stop = check_stretch(start, stop, self.num_rows)
        indptr = self._parts["indptr"].read(start, stop + 1)
        first, last = int(indptr[0]), int(indptr[-1])
        words, counts = (self._parts[name].read(first, last) for name in ("indices", "counts"))
        return self._padded(indptr - first, words, counts, out)

    def take_csr(self, indices: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The rows with these numbers without padding: `indptr`, `indices` and `counts` of a CSR matrix."""
        indices = check_indices(indices, self.num_rows)
        if len(indices) and indices[-1] - indices[0] + 1 == len(indices) and np.all(np.diff(indices) == 1):
            offsets = self._parts["indptr"].read(int(indices[0]), int(indices[-1]) + 2)
            first, last = int(offsets[0]), int(offsets[-1])
            words, counts = (np.array(self._parts[name].read(first, last)) for name in ("indices", "counts"))
            return (offsets - first).astype(np.int64), words, counts
        starts = self._parts["indptr"].take(indices)
        lengths = self._parts["indptr"].take(indices + 1) - starts
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        words, counts = (self._parts[name].take_runs(starts, lengths) for name in ("indices", "counts"))
        return indptr, words, counts

    def _padded(self, indptr: np.ndarray, words: np.ndarray, counts: np.ndarray, out: Rows | None) -> Rows:
        num = len(indptr) - 1
        if len(words) and not 0 <= words.min() <= words.max() < self.vocabulary_size:
            raise InvalidValueError(
                f"`indices.npy` in {self.path} has a word index outside 0..{self.vocabulary_size - 1}: the folder is "
                "damaged. Convert the corpus again with overwrite=True."
            )
        if out is None:
            rows = {name: np.zeros((num, *shape), dtype) for name, (shape, dtype) in self._wanted.items()}
        else:
            rows = dict(check_buffers(out, self._wanted, num))
            for array in rows.values():
                array.fill(0)
        filled = np.arange(self.longest_row) < np.diff(indptr)[:, None]
        rows["index"][filled] = words
        rows["count"][filled] = counts
        return rows

    def fingerprint(self) -> str:
        """A short hash of all documents: copies of a corpus have the same one."""
        if self.header is None:
            return _hash(self)
        check_unchanged(self._files, self.header)
        return self._digest[:16]

    def stamp(self) -> str:
        """The fingerprint with the current sizes and modification times of the files, to detect changes."""
        return stamp(self._files, self._digest) if self._files else ""

    def verify(self) -> None:
        """Read everything once and compare the checksums (a corpus in memory has none)."""
        if self.header is not None:
            verify_arrays(self._files, self.header)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is not None:
            return _reopen, (str(self.path), self._digest, self.map_limit)
        return _rebuild, (*(part.array for part in self._parts.values()), self.vocabulary_size)

    def __repr__(self) -> str:
        where = f"{str(self.path)!r}, " if self.path else ""
        return f"CorpusSource({where}num_rows={self.num_rows:,}, vocabulary_size={self.vocabulary_size:,})"


def _reopen(path: str, digest: str, map_limit: int) -> CorpusSource:
    source = CorpusSource(path, map_limit=map_limit)
    if source._digest != digest:
        raise DataChangedError(f"{path} holds another corpus than when this source was pickled.")
    return source


def _rebuild(indptr: np.ndarray, indices: np.ndarray, counts: np.ndarray, vocabulary: int) -> CorpusSource:
    sparse = require("scipy.sparse", "a corpus in memory")
    return CorpusSource(sparse.csr_array((counts, indices, indptr), shape=(len(indptr) - 1, vocabulary)))


def _hash(source: CorpusSource) -> str:
    described = ((f"{name}{part.rows}{part.dtype}", part.array) for name, part in source._parts.items())
    return fingerprints.of_arrays(f"{source.num_rows} {source.vocabulary_size}", described)


def _checked(matrix: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """The three arrays of a CSR matrix, each word once per row, without zeros; and the size of the vocabulary."""
    sparse = require("scipy.sparse", "a corpus in memory")
    if not sparse.issparse(matrix):
        raise InvalidTypeError(
            f"a corpus is a SciPy sparse matrix of counts (documents × words) or a data folder, got "
            f"{type(matrix).__name__}. Wrap dense counts with scipy.sparse.csr_array(counts)."
        )
    check_kind(matrix.dtype, "the corpus")
    rows = as_csr(matrix, "the corpus (documents × words)")
    num_rows, vocabulary = rows.shape
    if not num_rows or not rows.nnz:
        raise InvalidValueError(f"the corpus is empty: {num_rows} documents with {rows.nnz} entries.")
    if rows.dtype.kind == "f" and not np.isfinite(rows.data).all():
        raise InvalidValueError(f"{_document(rows, ~np.isfinite(rows.data))} has a NaN or infinite count.")
    if rows.dtype.kind in "fi" and (rows.data < 0).any():
        raise InvalidValueError(f"{_document(rows, rows.data < 0)} has a negative count. Counts are >= 0.")
    if rows.dtype.kind == "b":
        rows = rows.astype(np.int32)
    if not rows.data.all():
        rows = rows.copy()  # the caller's matrix is not changed
        rows.eliminate_zeros()
        if not rows.nnz:
            raise InvalidValueError("the corpus is empty: all counts are 0.")
    counts = to_stored(rows.data, stored_dtype(rows.dtype, "float32"), "the counts", 0)
    indices = to_stored(rows.indices, np.dtype(np.int32), "the word indices", 0)
    return rows.indptr.astype(np.int64), indices, counts, int(vocabulary)


def _document(rows: Any, bad: np.ndarray) -> str:
    return f"document {int(np.searchsorted(rows.indptr, np.argmax(bad), side='right')) - 1} (counted from 0)"


_WRITE_ROWS = 1 << 16  # documents written at a time


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
        The folder to create.
    matrix
        A SciPy sparse matrix or array. Duplicates in a row are summed and zeros removed.
    shuffle, seed
        Whether to store the documents in a uniformly random order, and its seed.
    overwrite
        Replace an existing data folder.
    source
        The origin of the matrix, for the header.
    """
    seed = _checks.positive_int(seed, "seed", minimum=0)
    corpus = CorpusSource(matrix)
    order = shuffled_numbers(corpus.num_rows, seed, SeedPurpose.CORPUS_ORDER) if shuffle else np.arange(corpus.num_rows)
    partial = PartialFolder(path, overwrite=overwrite)
    try:
        entries = _write_arrays(partial.path, corpus, order)
        extra = {"vocabulary_size": corpus.vocabulary_size, "longest_row": corpus.longest_row}
        header = Header(
            *("corpus", corpus.num_rows, bool(shuffle), seed if shuffle else None, entries), source=source, extra=extra
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
