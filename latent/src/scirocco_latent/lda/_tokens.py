"""Documents as tokens: the input format of the local step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scirocco.errors import InvalidValueError

Array = np.ndarray[Any, np.dtype[Any]]


class TokenBatch(NamedTuple):
    """Some documents, token by token; tokens of one word are neighbours within a document.

    Attributes
    ----------
    indptr
        int64, (documents + 1,): tokens `indptr[d]` to `indptr[d + 1]` belong to document d, which may have none.
    tokens
        int32, (tokens,): for each token the position of its word in `distinct`.
    distinct
        int64, (words,): the numbers of the words that occur in the batch, ascending.
    documents
        int64, (documents,): numbers that select the documents' random streams. Equal numbers have equal streams.
    """

    indptr: Array
    tokens: Array
    distinct: Array
    documents: Array

    @property
    def num_documents(self) -> int:
        """Number of documents in the batch, including empty ones."""
        return self.documents.size

    @property
    def num_tokens(self) -> int:
        """Number of tokens in the batch."""
        return self.tokens.size


def from_counts(
    indptr: ArrayLike, words: ArrayLike, counts: ArrayLike, documents: ArrayLike | None = None
) -> TokenBatch:
    """A batch from the rows of a sparse matrix of counts.

    Document d has the words `words[indptr[d]:indptr[d + 1]]`, with the counts at the same positions of `counts`. Takes
    time proportional to the number of tokens, and one byte for each word number up to the largest.

    Parameters
    ----------
    indptr
        (documents + 1,): offsets of the documents, as in `scipy.sparse.csr_array`.
    words
        Word numbers, >= 0.
    counts
        Whole numbers >= 0, of any type. A count of 0 gives no token.
    documents
        Numbers >= 0 of the documents, for their random streams; default 0, 1, 2, ... A document with the same number
        has the same stream in any batch.

    Examples
    --------
    >>> from scirocco_latent.lda.local import from_counts
    >>> batch = from_counts([0, 2, 3], [7, 2, 7], [1, 2, 3])
    >>> batch.distinct, batch.tokens, batch.indptr
    (array([2, 7]), array([1, 0, 0, 1, 1, 1], dtype=int32), array([0, 3, 6]))
    """
    starts = np.asarray(indptr, np.int64)
    numbers = np.asarray(words, np.int64)
    repeats = np.asarray(counts).astype(np.int64)
    _check_rows(starts, numbers, repeats)
    distinct, rows = _distinct(_present(numbers, repeats), numbers)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(repeats)])
    names = np.arange(starts.size - 1) if documents is None else np.array(documents, np.int64)
    if names.shape != (starts.size - 1,) or (names.size and names.min() < 0):
        raise InvalidValueError(
            f"`documents` must contain one number >= 0 for each of the {starts.size - 1} documents, "
            f"got shape {names.shape}{f' and {names.min()}' if names.size else ''}."
        )
    return TokenBatch(ends[starts], np.repeat(rows, repeats), distinct, names)


def distinct_words(words: Array, counts: Array) -> Array:
    """The numbers of the words that have a token, ascending: `from_counts(...).distinct` without the tokens."""
    return _distinct(_present(words, counts), words)[0]


def _present(words: Array, counts: Array) -> Array:
    return words[counts > 0] if counts.size and counts.min() == 0 else words


def _distinct(present: Array, words: Array) -> tuple[Array, Array]:
    """The sorted distinct numbers of `present`, and the position of each of `words` in them; found without sorting."""
    if not present.size:
        return np.empty(0, np.int64), np.zeros(words.size, np.int32)
    marks = np.zeros(int(words.max()) + 1, np.bool_)
    marks[present] = True
    distinct = np.flatnonzero(marks)
    place = np.empty(marks.size, np.int32)  # only pages with words are touched
    place[distinct] = np.arange(distinct.size, dtype=np.int32)
    return distinct, place[words]


def _check_rows(starts: Array, words: Array, repeats: Array) -> None:
    if words.shape != repeats.shape or words.ndim != 1:
        raise InvalidValueError(
            f"`words` and `counts` must be vectors of the same length, got shapes {words.shape} and {repeats.shape}."
        )
    if starts.ndim != 1 or not starts.size or starts[0] != 0 or starts[-1] != words.size:
        raise InvalidValueError(
            f"`indptr` must start with 0 and end with the number of entries, {words.size}. "
            "For some rows of a matrix use `matrix[rows].indptr`, not a part of `matrix.indptr`."
        )
    if np.any(np.diff(starts) < 0):
        raise InvalidValueError("`indptr` must not decrease: document d ends where document d + 1 begins.")
    if words.size and (words.min() < 0 or repeats.min() < 0):
        name, low = ("words", words.min()) if words.min() < 0 else ("counts", repeats.min())
        raise InvalidValueError(f"`{name}` must be >= 0, got {low}.")
