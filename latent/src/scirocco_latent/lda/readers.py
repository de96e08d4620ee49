"""Validation of counts and vocabularies, and readers of UCI bag of words, Matrix Market and word list files."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from scirocco import _checks
from scirocco._checks import positive_int
from scirocco._extras import require
from scirocco.data.formats.readers import is_sparse, reading
from scirocco.data.formats.text import decoding
from scirocco.errors import InvalidTypeError, InvalidValueError

Array = np.ndarray

Vocabulary = int | Iterable[str] | Mapping[str, int] | Mapping[int, str] | str | os.PathLike[str] | None
"""A vocabulary in any format of `read_vocabulary`; gensim's `Dictionary` is a mapping."""
LARGEST = np.iinfo(np.int32).max
_CHUNK_LINES = 1 << 20
"""Lines of a UCI file that are held at once."""
_FIRST = 80
"""Characters that are enough to tell one format from another."""
_FILES = (
    "a folder made by sc.data.convert, a UCI bag-of-words file (docword.*.txt), a Matrix Market file (.mtx), both "
    "also compressed (.gz), or a matrix saved by scipy.sparse.save_npz"
)


def check_counts(counts: Array, place: Callable[[int], str]) -> Array:
    """Convert counts to 64-bit integers; all must be integers from 0 to 2³¹ − 1, nothing is rounded or clipped.

    `place` describes the position of the entry with a given index.
    """
    if counts.dtype.kind not in "fiub":
        raise InvalidTypeError(f"word counts must be numbers, got dtype {counts.dtype}.")
    if counts.dtype.kind == "f":
        _refuse(
            ~np.isfinite(counts),
            counts,
            place,
            "which is not a count (NaN or inf). Remove or fix these documents first.",
        )
    _refuse(counts < 0, counts, place, "but counts must be >= 0.")
    if counts.dtype.kind == "f":
        fix = (
            "but a topic model requires integer counts, not tf-idf weights or frequencies: use "
            "CountVectorizer instead of TfidfVectorizer, or undo the weighting."
        )
        _refuse(counts != np.floor(counts), counts, place, fix)
    _refuse(counts > LARGEST, counts, place, f"but counts must be at most {LARGEST:,}.")
    return counts.astype(np.int64)


def _refuse(bad: Array, counts: Array, place: Callable[[int], str], fix: str) -> None:
    if bad.any():
        first = int(np.argmax(bad))
        raise InvalidValueError(f"{place(first)} has the count {counts[first]:g}, {fix}")


def check_words(words: Array, num_words: int | None, document: Callable[[int], str]) -> None:
    """Raise an error for word ids outside 0..num_words-1 (None: outside 32 bits), naming the document and the id."""
    bad = (words < 0) | (words >= (LARGEST if num_words is None else num_words))
    if bad.any():
        first = int(np.argmax(bad))
        known = "ids are >= 0" if num_words is None else f"with {num_words:,} words the ids are 0..{num_words - 1}"
        raise InvalidValueError(
            f"{document(first)} has the word id {words[first]}; {known}. Pass the vocabulary that defines "
            "the ids; ids are counted from 0."
        )


@runtime_checkable
class GensimDictionary(Protocol):
    """The words of a corpus of gensim."""

    @property
    def token2id(self) -> Mapping[str, int]:
        """The number of each word."""


def read_vocabulary(vocabulary: object) -> tuple[tuple[str, ...] | None, int | None]:
    """The words in the order of their ids, and their number; None for what is not known.

    From None; the number of words; a sequence of words; a dict from words to ids or from ids to words; a gensim
    `Dictionary`; or the path of a text file with one word per line (also compressed, `.gz`).

    Examples
    --------
    >>> read_vocabulary({"b": 1, "a": 0})
    (('a', 'b'), 2)
    """
    if vocabulary is None:
        return None, None
    if isinstance(vocabulary, (int, np.integer)) and not isinstance(vocabulary, bool):
        return None, positive_int(vocabulary, "vocabulary")
    if isinstance(vocabulary, (str, os.PathLike)):
        _checks.path(vocabulary, "vocabulary")
        words = _word_list(Path(vocabulary).expanduser())  # as typed, for messages
    elif isinstance(vocabulary, GensimDictionary) and isinstance(vocabulary.token2id, Mapping):
        words = _by_id(vocabulary.token2id)
    elif isinstance(vocabulary, Mapping):
        words = _by_id(vocabulary)
    elif _checks.is_list(vocabulary):
        words = tuple(vocabulary)
    else:
        raise InvalidTypeError(
            f"`vocabulary` must be a sequence of words, a dict {{word: id}}, a gensim Dictionary or the path of a word "
            f"list, got {type(vocabulary).__name__}."
        )
    return _checked_words(words), len(words)


def _checked_words(words: tuple[Any, ...]) -> tuple[str, ...]:
    if not words:
        raise InvalidValueError("`vocabulary` is empty.")
    for number, word in enumerate(words):
        if not isinstance(word, str):
            raise InvalidTypeError(
                f"`vocabulary` must contain words (str); entry {number} is {word!r} ({type(word).__name__})."
            )
    if len(set(words)) < len(words):
        seen: dict[str, int] = {}
        for number, word in enumerate(words):
            if word in seen:
                raise InvalidValueError(
                    f"`vocabulary` has the word {word!r} twice, as ids {seen[word]} and {number}. Merge the two "
                    "columns or rename one of them."
                )
            seen[word] = number
    return tuple(str(word) for word in words)


def _by_id(table: Mapping[Any, Any]) -> tuple[Any, ...]:
    """The words of {word: id} or {id: word}, sorted by id."""
    if table and all(isinstance(key, (int, np.integer)) for key in table):
        pairs = sorted((int(key), word) for key, word in table.items())
    elif all(isinstance(value, (int, np.integer)) for value in table.values()):
        pairs = sorted((int(value), word) for word, value in table.items())
    else:
        raise InvalidTypeError("a dict `vocabulary` must map words to integers, or integers to words.")
    for place, (number, _) in enumerate(pairs):
        if number != place:
            raise InvalidValueError(
                f"the ids of `vocabulary` must be 0..{len(pairs) - 1}, each once; id {place} is "
                f"{'missing' if number > place else 'duplicated, or an id is negative'}. "
                "For a gensim Dictionary, call dictionary.compactify() before building the corpus."
            )
    return tuple(word for _, word in pairs)


def _word_list(path: Path) -> tuple[str, ...]:
    if not path.is_file():
        raise InvalidValueError(
            f"`vocabulary` names the file {str(path)!r}, which does not exist. To pass words use a list."
        )
    with decoding(path) as file:
        words = [line.strip() for line in file]
    while words and not words[-1]:
        words.pop()
    if "" in words:
        raise InvalidValueError(f"line {words.index('') + 1} of {path} is empty: a word list has one word per line.")
    return tuple(words)


def read_matrix(path: Path) -> Any:
    r"""The sparse matrix of counts (documents × words) of a UCI, Matrix Market or SciPy `.npz` file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "docword.tiny.txt"
    >>> _ = path.write_text("2\n3\n3\n1 1 4\n1 3 1\n2 2 5\n")
    >>> read_matrix(path).toarray()
    array([[4, 0, 1],
           [0, 5, 0]])
    """
    if path.suffix == ".npz" and is_sparse(path):
        with reading(path):
            return require("scipy.sparse", "reading sparse matrices").load_npz(path)
    if path.suffix != ".npz":
        with decoding(path) as file:
            first = file.readline(_FIRST).strip()
        if first.startswith("%%MatrixMarket"):
            with reading(path), warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # matrices and arrays are both accepted
                return require("scipy.io", "reading Matrix Market files").mmread(path)
        if first.isdigit():
            return _read_uci(path)
    raise InvalidValueError(f"{path} is not a known corpus format; supported are {_FILES}.")


def _read_uci(path: Path) -> Any:
    """Read three lines D, W, NNZ, then `document word count` per line, both numbers counted from 1."""
    sparse = require("scipy.sparse", "reading bag-of-words files")
    with decoding(path) as file:
        header = [file.readline(_FIRST).strip() for _ in range(3)]
        if not all(line.isdigit() for line in header):
            raise InvalidValueError(
                f"{path} must start with three lines, the numbers of documents, words and entries; got {header}."
            )
        num_documents, num_words, num_entries = map(int, header)
        parts: list[tuple[Array, ...]] = []
        line = 4
        while lines := list(itertools.islice(file, _CHUNK_LINES)):
            rows = np.loadtxt(lines, np.float64, ndmin=2)
            parts.append(_checked_triples(rows, num_documents, num_words, path, line))
            line += len(rows)
    if line - 4 != num_entries:
        raise InvalidValueError(
            f"{path} declares {num_entries:,} entries but has {line - 4:,}. It may be truncated: download it again."
        )
    documents, words, counts = (np.concatenate(part) for part in zip(*parts, strict=True)) if parts else [[]] * 3
    return sparse.coo_array((counts, (documents, words)), shape=(num_documents, num_words)).tocsr()


def _checked_triples(
    rows: Array, num_documents: int, num_words: int, path: Path, line: int
) -> tuple[Array, Array, Array]:
    if rows.shape[1] != 3:
        raise InvalidValueError(
            f"line {line} of {path} has {rows.shape[1]} numbers; expected three: document, word, count."
        )
    for column, (name, most) in enumerate((("document", num_documents), ("word", num_words))):
        numbers = rows[:, column]
        bad = ~((numbers >= 1) & (numbers <= most) & (numbers == np.floor(numbers)))
        if bad.any():
            first = int(np.argmax(bad))
            raise InvalidValueError(
                f"line {line + first} of {path} has the {name} number {numbers[first]:g}; the header declares "
                f"1..{most}."
            )
    counts = check_counts(
        rows[:, 2], lambda i: f"document {rows[i, 0]:.0f} (counted from 1, line {line + i} of {path})"
    )
    return rows[:, 0].astype(np.int64) - 1, rows[:, 1].astype(np.int64) - 1, counts
