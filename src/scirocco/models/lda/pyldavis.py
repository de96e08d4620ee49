"""A fitted model in the form that pyLDAvis draws."""

from __future__ import annotations

from typing import Any

import numpy as np

from scirocco.errors import InvalidValueError
from scirocco.models.lda.readers import read_vocabulary


def to_pyldavis(
    components: Any, doc_topic: Any, doc_lengths: Any, vocabulary: Any, term_frequency: Any
) -> dict[str, Any]:
    """The keyword arguments of `pyLDAvis.prepare`: topics and documents as rows that sum to 1.

    pyLDAvis divides by the lengths of documents and the frequencies of words, so documents without a token and words
    that never come are left out here.

    Parameters
    ----------
    components
        Topics × words, weights >= 0 of any scale, (K, V).
    doc_topic
        Documents × topics, weights >= 0 of any scale, (D, K).
    doc_lengths
        Tokens of each document, (D,).
    vocabulary
        The V words, as for `as_corpus`.
    term_frequency
        Tokens of each word, (V,).

    Examples
    --------
    >>> view = to_pyldavis([[3, 1, 0], [0, 0, 2]], [[1, 1], [0, 4]], [2, 4], ["sun", "moon", "star"], [3, 1, 2])
    >>> view["topic_term_dists"]
    array([[0.75, 0.25, 0.  ],
           [0.  , 0.  , 1.  ]])
    >>> sorted(view)
    ['doc_lengths', 'doc_topic_dists', 'term_frequency', 'topic_term_dists', 'vocab']
    """
    topics, documents = _matrix(components, "components"), _matrix(doc_topic, "doc_topic")
    if documents.shape[1] != len(topics):
        raise InvalidValueError(
            f"`components` has {len(topics)} topics (rows), `doc_topic` {documents.shape[1]} (columns)."
        )
    lengths = _vector(doc_lengths, "doc_lengths", len(documents), "documents in `doc_topic`")
    frequency = _vector(term_frequency, "term_frequency", topics.shape[1], "words in `components`")
    words, size = read_vocabulary(vocabulary)
    if words is None or size != topics.shape[1]:
        raise InvalidValueError(
            f"`vocabulary` must hold the {topics.shape[1]:,} words of `components`, got "
            f"{'none' if words is None else f'{size:,}'}."
        )
    kept, used = lengths > 0, frequency > 0
    return {
        "topic_term_dists": _normalised(topics[:, used], "components"),
        "doc_topic_dists": _normalised(documents[kept], "doc_topic"),
        "doc_lengths": lengths[kept],
        "vocab": [word for word, comes in zip(words, used, strict=True) if comes],
        "term_frequency": frequency[used],
    }


def _matrix(values: Any, name: str) -> np.ndarray:
    array = np.asarray(values, np.float64)
    if array.ndim != 2 or not array.size:
        raise InvalidValueError(f"`{name}` must be a matrix, got shape {array.shape}.")
    _check_weights(array, name)
    return array


def _vector(values: Any, name: str, length: int, of: str) -> np.ndarray:
    array = np.asarray(values)
    if array.shape != (length,):
        raise InvalidValueError(
            f"`{name}` must have one number for each of the {length:,} {of}, got {array.shape}."
        )
    _check_weights(array, name)
    if not array.any():
        raise InvalidValueError(f"`{name}` is 0 everywhere: there is nothing to draw.")
    return array


def _check_weights(array: np.ndarray, name: str) -> None:
    bad = ~(np.isfinite(array) & (array >= 0))
    if bad.any():
        raise InvalidValueError(
            f"`{name}` must be finite and >= 0; entry {tuple(map(int, np.argwhere(bad)[0]))} is {array[bad][0]}."
        )


def _normalised(rows: np.ndarray, name: str) -> np.ndarray:
    total = rows.sum(axis=1, keepdims=True)
    if not total.all():
        raise InvalidValueError(
            f"row {int(np.argmin(total))} of `{name}` has no weight at all, so it is no law."
        )
    return rows / total
