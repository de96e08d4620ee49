"""Word counts in the usual formats, converted to a checked corpus."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from scirocco import _checks
from scirocco._extras import require
from scirocco.data.native.corpus import CorpusSource
from scirocco.data.values import AsArray, Frame, Sparse, as_csr, as_numpy, missing
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models.inputs.tables import numbers
from scirocco_latent.lda.readers import Vocabulary, check_counts, check_words, read_matrix, read_vocabulary
from scirocco_latent.lda.streams import DocumentReader, DocumentStream, Rows, stack

if TYPE_CHECKING:
    from scirocco_latent.lda.tokeniser import Tokeniser

Array = np.ndarray

log = logging.getLogger("scirocco")
_CHUNK_DOCUMENTS = 1 << 14  # documents that are checked together
_MOST_TOKENS = 10_000_000
"""Of a document: all of Wikipedia's have fewer, and each token is drawn one by one."""
_FORMS = (
    "a SciPy sparse matrix or a 2-D array of counts (documents × words), a CorpusSource, the path of a corpus, or an "
    "iterable of documents (lists of words, or of (word id, count) pairs)"
)


@dataclass(frozen=True)
class Corpus:
    """Documents as checked word counts.

    Attributes
    ----------
    source
        Where the rows are: in memory, or in a data folder.
    vocabulary
        The words in the order of their ids, if known.
    num_tokens
        The sum of all counts.
    num_empty
        Number of empty documents. They are kept and contribute nothing.
    notes
        Sentences that say what was left out or assumed.
    tokeniser
        How texts were split into words; None if they were not.
    """

    source: CorpusSource | NoWords
    vocabulary: tuple[str, ...] | None
    num_tokens: int
    num_empty: int = 0
    notes: tuple[str, ...] = ()
    tokeniser: Tokeniser | None = None

    @property
    def num_documents(self) -> int:
        """Number of documents, including empty ones."""
        return self.source.num_rows

    @property
    def vocabulary_size(self) -> int:
        """Number of words V; ids are 0..V-1."""
        return self.source.vocabulary_size

    def fingerprint(self) -> str:
        """A short hash of the counts."""
        return self.source.fingerprint()

    def take_csr(self, indices: Array) -> Rows:
        """The documents with these numbers: `indptr` (int64), `words` (int32), `counts` (int32)."""
        indptr, words, counts = self.source.take_csr(indices)
        return indptr, words.astype(np.int32, copy=False), counts.astype(np.int32, copy=False)

    def __repr__(self) -> str:
        return (
            f"Corpus({self.num_documents:,} documents, {self.vocabulary_size:,} words, {self.num_tokens:,} tokens, "
            f"{self.num_empty:,} empty)"
        )


Documents = ArrayLike | Sparse | Corpus | CorpusSource | str | os.PathLike[str] | Iterable[object]
"""Word counts in any format of `as_corpus`."""


def as_corpus(X: object, vocabulary: Vocabulary = None, *, may_be_empty: bool = False) -> Corpus:
    """Convert word counts in any usual format to a checked `Corpus`.

    Counts must be integers >= 0 and ids must be in 0..V-1. Anything else raises an error that names the document;
    nothing is rounded or clamped. Empty documents are allowed if at least one document has a word.

    Parameters
    ----------
    X
        One of

        - a SciPy sparse matrix or array, or a dense 2-D array, documents × words;
        - a `CorpusSource` or the path of a data folder, which is read in place;
        - the path of a UCI bag-of-words file, a Matrix Market file (both also `.gz`) or a sparse `.npz`;
        - an iterable of documents: gensim's lists of (word id, count) pairs, lists of words, dicts {word: count}.
    vocabulary
        The words in the order of their ids: a sequence, a dict {word: id}, a gensim `Dictionary`, or the path of a
        text file with one word per line; or just their number. In lists of words, words outside it are left out and
        counted in `notes`. Without a vocabulary, words are learned from a list of documents (most frequent first), and
        for pairs the number of words is the largest id plus one.
    may_be_empty
        Whether a corpus without words is allowed, for example when scoring single documents.

    Examples
    --------
    >>> corpus = as_corpus([["sun", "moon", "sun"], [], ["moon", "sun"]])
    >>> corpus
    Corpus(3 documents, 2 words, 5 tokens, 1 empty)
    >>> corpus.vocabulary, corpus.notes
    (('sun', 'moon'), ('1 of 3 documents is empty: kept, contributes nothing.',))
    >>> as_corpus([[(0, 2)], [(5, 1)]], vocabulary=["sun", "moon"])
    Traceback (most recent call last):
        ...
    scirocco.errors.InvalidValueError: document 1 (counted from 0) has the word id 5; with 2 words the ids are 0..1. ...
    """
    words, size = read_vocabulary(vocabulary)
    if isinstance(X, Corpus):
        _check_size(size, X.vocabulary_size)
        if words is not None and X.vocabulary is not None and words != X.vocabulary:
            raise InvalidValueError(
                "the vocabulary of the corpus differs, in its words or their order: "
                f"{_first_other(X.vocabulary, words)}. Build the corpus with as_corpus(X, vocabulary)."
            )
        return X if words is None else replace(X, vocabulary=words)
    if isinstance(X, DocumentStream):
        raise InvalidTypeError("a DocumentStream is read in batches: use its take() or batches().")
    if isinstance(X, (str, os.PathLike)):
        X = _open(_checks.path(X, "X"))
    notes: tuple[str, ...] = ()
    if isinstance(X, Frame) and _is_table(X):
        X, words, notes = _with_names(X, words, size)
        size = None if words is None and size is None else size if words is None else len(words)
    if isinstance(X, CorpusSource):
        source: CorpusSource | NoWords = X
    elif require("scipy.sparse", "a corpus in memory").issparse(X) or _is_table(X):
        source = _from_matrix(X, size, may_be_empty)
    elif isinstance(X, Frame):
        name = next(iter(X.columns), "text")
        raise InvalidTypeError(
            f"`X` is a data frame, and not all of its columns are counts. Pass the column of texts: "
            f"fit(frame, column={name!r})."
        )
    elif isinstance(X, Iterable):
        source, words, notes = _from_documents(X, words, size, may_be_empty)
    else:
        raise InvalidTypeError(f"`X` must be {_FORMS}; got {type(X).__name__}.")
    _check_size(size, source.vocabulary_size)
    return _measured(source, words, notes, may_be_empty)


def _with_names(
    frame: Frame, words: tuple[str, ...] | None, size: int | None
) -> tuple[Any, tuple[str, ...] | None, tuple[str, ...]]:
    """Counts of a data frame, whose column names are words: in the order of `words`, if they are among them."""
    names, table = tuple(frame.columns), as_numpy(frame, "the matrix of counts")
    table = numbers(table, None) if table.dtype == object else table
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        return table, words, ()
    if words is None:
        return table, names if size is None else None, ()
    places = {name: place for place, name in enumerate(names)}
    if names == words or not any(word in places for word in words):
        return table, words, ()
    found = np.zeros((len(table), len(words)), table.dtype)
    for place, word in enumerate(words):
        if word in places:
            found[:, place] = table[:, places[word]]
    left = len(names) - sum(word in places for word in words)
    note = f"{left:,} of {len(names):,} columns are not in the vocabulary and were left out."
    return found, words, (note,) if left else ()


def _first_other(here: tuple[str, ...], wanted: tuple[str, ...]) -> str:
    place = next(i for i, pair in enumerate(zip(here, wanted, strict=True)) if pair[0] != pair[1])
    return f"word {place} is {here[place]!r}, expected {wanted[place]!r}"


def _open(path: Path) -> Any:
    if path.is_dir():
        return CorpusSource(path)
    if not path.is_file():
        raise InvalidValueError(f"`X` names {str(path)!r}, which does not exist. To pass a text use [text.split()].")
    return read_matrix(path)


def _check_size(given: int | None, found: int) -> None:
    if given is not None and given != found:
        raise InvalidValueError(
            f"`vocabulary` has {given:,} words, but the corpus has {found:,} columns. Word i must belong to "
            "column i. Is the matrix documents × words?"
        )


def _is_table(X: object) -> bool:
    """Whether X is an array or data frame of numbers; arrays of words or objects are read as documents."""
    if not isinstance(X, AsArray):
        return False
    array = as_numpy(X, "the matrix of counts")
    if array.dtype == object and isinstance(X, Frame):  # pandas' nullable numbers
        return all(_checks.is_number(value) or missing(value) for value in array.flat)
    return array.dtype.kind in "fiubc" or array.ndim == 0


def _from_matrix(X: object, num_words: int | None, may_be_empty: bool) -> CorpusSource | NoWords:
    sparse = require("scipy.sparse", "a corpus in memory")
    held: Any = X if sparse.issparse(X) else as_numpy(X, "the matrix of counts")
    if held.ndim != 2:
        raise InvalidValueError(
            f"a matrix of counts must be documents × words, got shape {held.shape}. Reshape your data: a single "
            "document is X.reshape(1, -1)."
        )
    if held.dtype == object and not sparse.issparse(X):
        held = numbers(held, None)
    if held.dtype.kind not in "fiub":
        raise InvalidTypeError(f"word counts must be numbers, got dtype {held.dtype}.")
    if held.dtype == np.float16:  # SciPy has no sparse matrices of it
        held = held.astype(np.float32)
    _check_size(num_words, held.shape[1])
    matrix = as_csr(held if sparse.issparse(held) else sparse.csr_array(held), "the matrix of counts")
    counts = check_counts(matrix.data, lambda i: f"{_document(matrix.indptr, i)}, word id {matrix.indices[i]},")
    rows, (height, width) = (matrix.indptr, matrix.indices, counts.astype(np.int32)), matrix.shape
    return _held(rows, height, width, may_be_empty)


def _held(rows: tuple[Any, Any, Any], num_documents: int, num_words: int, may_be_empty: bool) -> CorpusSource | NoWords:
    sparse = require("scipy.sparse", "a corpus in memory")
    indptr, words, counts = rows
    if not num_documents or not (may_be_empty or np.any(counts)):
        raise InvalidValueError(
            f"the corpus is empty: {num_documents:,} documents, none of which has a word. Check the tokeniser or the "
            "vocabulary."
        )
    if not np.any(counts):
        return NoWords(num_documents, num_words)
    return CorpusSource(sparse.csr_array((counts, words, indptr), shape=(num_documents, num_words)))


@dataclass(frozen=True)
class NoWords:
    """A corpus of empty documents."""

    num_rows: int
    vocabulary_size: int

    def take_csr(self, indices: Array) -> Rows:
        """Empty rows."""
        return np.zeros(len(indices) + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.int32)

    def fingerprint(self) -> str:
        """The number of documents."""
        return f"{self.num_rows} empty documents"


def _document(indptr: Array, entry: int) -> str:
    return f"document {int(np.searchsorted(indptr, entry, side='right')) - 1} (counted from 0)"


def _from_documents(
    X: Iterable[Any], words: tuple[str, ...] | None, size: int | None, may_be_empty: bool
) -> tuple[CorpusSource | NoWords, tuple[str, ...] | None, tuple[str, ...]]:
    reader = DocumentReader(words, size, learn=size is None)
    documents = []
    for document in X:
        documents.append(reader.read(document))
        if reader.learn and reader.lookup and not isinstance(X, Sized):
            raise InvalidValueError(
                "words can only be learned from a list of documents, because an iterator may be infinite. Pass a "
                "`vocabulary`, or list(X)."
            )
    notes = []
    if reader.num_unknown:
        total = reader.num_tokens + reader.num_unknown
        notes.append(f"{reader.num_unknown:,} of {total:,} tokens are not in the vocabulary and were left out.")
        if not reader.num_tokens and not may_be_empty:
            raise InvalidValueError(f"the corpus is empty: {notes[0]} Was the text preprocessed, e.g. to lower case?")
    indptr, ids, counts = stack(documents)
    if reader.lookup and words is None:
        words, ids = _by_frequency(reader.lookup, ids, counts)
        size = len(words)
    elif size is None and len(ids):
        size = int(ids.max()) + 1
        notes.append(f"No vocabulary was given: {size:,} words, because the largest id is {size - 1}.")
    return _held((indptr, ids, counts), len(documents), size or 1, may_be_empty), words, tuple(notes)


def _by_frequency(lookup: dict[str, int], ids: Array, counts: Array) -> tuple[tuple[str, ...], Array]:
    """Learned words, most frequent first and ties in alphabetical order; and the renumbered ids."""
    frequency = np.bincount(ids, counts, len(lookup)).astype(np.int64)
    words = sorted(lookup, key=lambda word: (-frequency[lookup[word]], word))
    renumber = np.empty(len(words), np.int32)
    renumber[[lookup[word] for word in words]] = np.arange(len(words), dtype=np.int32)
    return tuple(words), renumber[ids]


def _measured(
    source: CorpusSource | NoWords, words: tuple[str, ...] | None, notes: tuple[str, ...], may_be_empty: bool
) -> Corpus:
    """Check ids and counts, and count tokens and empty documents, in one pass over the rows."""
    num_tokens = num_empty = 0
    for start in range(0, source.num_rows, _CHUNK_DOCUMENTS):
        numbers = np.arange(start, min(start + _CHUNK_DOCUMENTS, source.num_rows))
        indptr, ids, counts = source.take_csr(numbers)
        shifted = _Shifted(indptr, start)
        check_words(ids, source.vocabulary_size, shifted)
        whole = check_counts(counts, shifted)
        lengths = np.diff(np.concatenate([[0], np.cumsum(whole)])[indptr])
        if lengths.max(initial=0) > _MOST_TOKENS:
            longest = int(np.argmax(lengths))
            raise InvalidValueError(
                f"document {start + longest} (counted from 0) has {int(lengths[longest]):,} tokens; at most "
                f"{_MOST_TOKENS:,} are possible. Are these counts of words? Split the document, or remove it."
            )
        num_tokens += int(whole.sum())
        # a folder may contain zeros, so a document with entries can still be empty
        num_empty += int(np.sum(lengths == 0))
    if not num_tokens and not may_be_empty:
        raise InvalidValueError(f"the corpus is empty: {source.num_rows:,} documents, none of which has a word.")
    if num_empty:
        verb = "is empty: kept, contributes" if num_empty == 1 else "are empty: kept, contribute"
        notes = (*notes, f"{num_empty:,} of {source.num_rows:,} documents {verb} nothing.")
    for note in notes:
        log.info("corpus: %s", note)
    return Corpus(source, words, num_tokens, num_empty, notes)


@dataclass(frozen=True)
class _Shifted:
    """Name the document of an entry in a chunk that starts at document `start`."""

    indptr: Array
    start: int

    def __call__(self, entry: int) -> str:
        document = int(np.searchsorted(self.indptr, entry, side="right")) - 1 + self.start
        return f"document {document} (counted from 0)"
