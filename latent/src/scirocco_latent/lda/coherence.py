"""Coherence of topics: how often their top words occur in the same documents."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from scirocco._checks import choice
from scirocco._extras import require
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco_latent.lda.corpus import Corpus, Documents, as_corpus
from scirocco_latent.lda.readers import Vocabulary, read_vocabulary
from scirocco_latent.lda.sizes import FITTING

Array = np.ndarray

MEASURES = ("npmi", "umass")


def coherence(top_words: ArrayLike, corpus: Documents, measure: str = "npmi") -> Array:
    """Coherence of each topic: the mean over pairs of its top words of a co-occurrence measure.

    With D nonempty documents, D(v) of them with the word v and D(v, w) with both words, p(·) = D(·) / D:

    - npmi: log[p(v, w) / (p(v) p(w))] / −log p(v, w), from −1 to 1. Pairs that never share a document have −1, pairs in
      every document 1: the limits.
    - umass: log[(D(v, w) + 1) / D(v)], v the word with the higher rank (Mimno et al. 2011, who sum over pairs
      instead). Pairs whose v is in no document are ignored; a topic without other pairs is NaN.

    `top_words` are word ids (topics, n), most probable first. One pass over the corpus in chunks; memory grows with the
    square of the number of distinct top words.

    Examples
    --------
    >>> import numpy as np
    >>> counts = np.array([[3, 1, 0, 0], [1, 2, 0, 0], [0, 0, 1, 1], [0, 0, 5, 1]])
    >>> coherence([[0, 1], [2, 3], [0, 2]], counts)
    array([ 1.,  1., -1.])
    """
    choice(measure, "measure", MEASURES)
    held = corpus if isinstance(corpus, Corpus) else as_corpus(corpus)
    words = _checked(top_words, held.vocabulary_size)
    distinct, places = np.unique(words, return_inverse=True)
    together, num_documents = shared_documents(distinct, held)
    places = places.reshape(words.shape)
    above, below = np.triu_indices(words.shape[1], 1)
    v, w = places[:, above], places[:, below]
    alone = np.diagonal(together)
    if measure == "npmi":
        return np.mean(_npmi(together[v, w], alone[v], alone[w], num_documents), axis=1)
    return _umass(together[v, w], alone[v])


def _npmi(both: Array, one: Array, other: Array, num_documents: int) -> Array:
    score = np.where(both == num_documents, 1.0, -1.0)
    inside = (both > 0) & (both < num_documents)
    p = both[inside] / num_documents
    # products of counts in floating point: integers of a large corpus would overflow
    lift = np.log(p) - np.log(one[inside] / num_documents) - np.log(other[inside] / num_documents)
    score[inside] = lift / -np.log(p)
    return score


def _umass(both: Array, one: Array) -> Array:
    known = one > 0
    terms = np.log((both + 1.0) / np.where(known, one, 1.0)) * known
    used = known.sum(axis=1)
    return np.where(used > 0, terms.sum(axis=1) / np.maximum(used, 1), np.nan)


def shared_documents(words: Array, corpus: Corpus) -> tuple[Array, int]:
    """Number of documents with both of two words, for all pairs of `words`, and number of nonempty documents.

    The first is (W, W); its diagonal has the number of documents with a single word.
    """
    sparse = require("scipy.sparse", "counting shared documents")
    column = np.full(corpus.vocabulary_size, -1, np.int64)
    column[words] = np.arange(len(words))
    together = np.zeros((len(words), len(words)), np.int64)
    for start in range(0, corpus.num_documents, FITTING.counted_documents):
        numbers = np.arange(start, min(start + FITTING.counted_documents, corpus.num_documents))
        indptr, ids, counts = corpus.take_csr(numbers)
        document = np.repeat(np.arange(len(numbers)), np.diff(indptr))
        wanted = (column[ids] >= 0) & (counts > 0)
        entries = (np.ones(int(wanted.sum()), np.int64), (document[wanted], column[ids[wanted]]))
        present = sparse.csr_array(entries, shape=(len(numbers), len(words)))
        pairs = (present.T @ present).tocoo()
        np.add.at(together, (pairs.row, pairs.col), pairs.data)
    return together, corpus.num_documents - corpus.num_empty


def _checked(top_words: ArrayLike, num_words: int) -> Array:
    words = np.asarray(top_words)
    if words.dtype.kind not in "iu":
        raise InvalidTypeError(
            f"`top_words` must be word ids (integers, topics × words), got dtype {words.dtype}. The id of a word is "
            "its position in the vocabulary."
        )
    if words.ndim != 2 or words.shape[1] < 2 or not len(words):
        raise InvalidValueError(
            f"`top_words` must be topics × words with at least two words per topic, got shape {words.shape}."
        )
    bad = (words < 0) | (words >= num_words)
    if bad.any():
        topic = int(np.argwhere(bad)[0, 0])
        raise InvalidValueError(
            f"topic {topic} has the word id {words[bad][0]}; with {num_words:,} words, ids must be 0..{num_words - 1}."
        )
    for topic, row in enumerate(words):
        if len(np.unique(row)) < len(row):
            raise InvalidValueError(f"topic {topic} of `top_words` contains a word twice: {row.tolist()}.")
    return words.astype(np.int64)


# -- Export to pyLDAvis


def to_pyldavis(
    components: ArrayLike,
    doc_topic: ArrayLike,
    doc_lengths: ArrayLike,
    vocabulary: Vocabulary,
    term_frequency: ArrayLike,
) -> dict[str, Any]:
    """The keyword arguments of `pyLDAvis.prepare`: topics and documents as rows that sum to 1.

    pyLDAvis divides by the lengths of documents and the frequencies of words, so documents without tokens and words
    that never occur are removed here.

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
            f"`components` has {len(topics)} topics (rows), but `doc_topic` has {documents.shape[1]} (columns)."
        )
    lengths = _vector(doc_lengths, "doc_lengths", len(documents), "documents in `doc_topic`")
    frequency = _vector(term_frequency, "term_frequency", topics.shape[1], "words in `components`")
    words, size = read_vocabulary(vocabulary)
    if words is None or size != topics.shape[1]:
        raise InvalidValueError(
            f"`vocabulary` must contain the {topics.shape[1]:,} words of `components`, got "
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


def _matrix(values: ArrayLike, name: str) -> Array:
    array = np.asarray(values, np.float64)
    if array.ndim != 2 or not array.size:
        raise InvalidValueError(f"`{name}` must be a matrix, got shape {array.shape}.")
    _check_weights(array, name)
    return array


def _vector(values: ArrayLike, name: str, length: int, of: str) -> Array:
    array = np.asarray(values)
    if array.shape != (length,):
        raise InvalidValueError(f"`{name}` must have one number for each of the {length:,} {of}, got {array.shape}.")
    _check_weights(array, name)
    if not array.any():
        raise InvalidValueError(f"`{name}` must not be all zeros.")
    return array


def _check_weights(array: Array, name: str) -> None:
    bad = ~(np.isfinite(array) & (array >= 0))
    if bad.any():
        raise InvalidValueError(
            f"`{name}` must be finite and >= 0; entry {tuple(map(int, np.argwhere(bad)[0]))} is {array[bad][0]}."
        )


def _normalised(rows: Array, name: str) -> Array:
    total = rows.sum(axis=1, keepdims=True)
    if not total.all():
        raise InvalidValueError(
            f"row {int(np.argmin(total))} of `{name}` has only zero weights and cannot be normalised."
        )
    return rows / total
