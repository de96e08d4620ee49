"""Readers of single documents, as words or counts, and streams of documents that do not fit in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

import numpy as np

from scirocco._checks import positive_int
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco_latent.lda.readers import Vocabulary, check_counts, check_words, read_vocabulary

Array = np.ndarray

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Some documents in compressed sparse rows: `indptr` (int64), `words` (int32) and `counts` (int32)."""

_NO_NUMBERS = np.empty(0, np.int64)  # an empty document
_FORMS = "a list of words, a list of (word id, count) pairs, or a dict {word: count}"


class DocumentReader:
    """Convert documents to sorted word ids and counts, and count the words that are left out.

    Parameters
    ----------
    words
        The vocabulary, in the order of the ids; None if documents contain ids, or to learn the words.
    num_words
        The number of words; None: any id >= 0 is allowed.
    learn
        Whether new words get the next id.
    """

    def __init__(self, words: tuple[str, ...] | None, num_words: int | None, *, learn: bool = False):
        self.lookup: dict[str, int] = {word: number for number, word in enumerate(words or ())}
        self.num_words, self.learn = num_words, learn
        self.num_documents = self.num_empty = self.num_tokens = self.num_unknown = 0

    def read(self, document: object) -> tuple[Array, Array]:
        """Distinct word ids in increasing order and their counts, both int64; zeros are dropped."""
        ids, counts = self._parse(document)
        check_words(ids, self.num_words, lambda _: self._here())
        counts = check_counts(counts, lambda i: f"{self._here()}, word id {ids[i]},")
        distinct, totals = ids, counts
        if not (ids[1:] > ids[:-1]).all():  # skipped for sorted ids (gensim), which saves a third of the time
            distinct, place = np.unique(ids, return_inverse=True)
            totals = np.zeros(len(distinct), np.int64)
            np.add.at(totals, place, counts)
        kept = totals > 0
        self.num_documents += 1
        self.num_tokens += int(totals.sum())
        self.num_empty += not kept.any()
        return distinct[kept], totals[kept]

    def _here(self) -> str:
        return f"document {self.num_documents} (counted from 0)"

    def _parse(self, document: object) -> tuple[Array, Array]:
        if isinstance(document, (str, bytes)):
            start = document[:20]
            raise InvalidTypeError(
                f"{self._here()} is one string, {start!r}...; expected {_FORMS}. Split it into words, e.g. "
                "text.lower().split()."
            )
        if isinstance(document, Mapping):
            items: Any = list(document.items())
            words = bool(items) and isinstance(items[0][0], str)
            return self._words(dict(items)) if words else self._pairs(items)
        if not isinstance(document, Iterable):
            raise InvalidTypeError(f"{self._here()} must be {_FORMS}; got {type(document).__name__}.")
        items = document if isinstance(document, np.ndarray) else list(document)
        if len(items) and isinstance(items[0], str):
            return self._words(Counter(items))
        return self._pairs(items)

    def _words(self, words: Mapping[Any, Any]) -> tuple[Array, Array]:
        if self.num_words is not None and not self.lookup:
            raise InvalidValueError(
                f"{self._here()} contains words, but `vocabulary` is only a number. Pass the words as a list."
            )
        ids, kept = [], []
        for word, count in words.items():
            if not isinstance(word, str):
                raise InvalidTypeError(f"{self._here()} mixes words with {word!r} ({type(word).__name__}).")
            number = self.lookup.get(word)
            if number is None and self.learn:
                number = self.lookup[word] = len(self.lookup)
            if number is None:
                self.num_unknown += int(check_counts(_numbers([count]), lambda _: self._here())[0])
            else:
                ids.append(number)
                kept.append(count)
        try:
            return np.array(ids, np.int64), _numbers(kept)
        except (TypeError, ValueError):
            raise InvalidTypeError(f"{self._here()} has a non-numeric count: {kept}."[:300]) from None

    def _pairs(self, items: Sequence[Any] | Array) -> tuple[Array, Array]:
        if not len(items):
            return _NO_NUMBERS, _NO_NUMBERS
        try:
            pairs = np.asarray(items, np.float64)
        except (TypeError, ValueError):
            pairs = np.empty(0)
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise InvalidTypeError(
                f"{self._here()} must be {_FORMS}; its first entry is {items[0]!r}. Pass a matrix of counts as "
                "an array: np.asarray(X)."
            )
        ids = pairs[:, 0]
        if not np.array_equal(ids, np.floor(ids)):  # also true for NaN
            bad = ids[np.argmax(~(ids == np.floor(ids)))]
            raise InvalidValueError(
                f"{self._here()} has the word id {bad:g}; ids must be integers. Pairs are (word id, count)."
            )
        return np.clip(ids, -1e18, 1e18).astype(np.int64), pairs[:, 1]


def _numbers(values: list[Any]) -> Array:
    array = np.array(values)
    if array.dtype.kind not in "fiub" and len(values):
        raise TypeError
    return array


def stack(documents: list[tuple[Array, Array]]) -> Rows:
    """Documents as the arrays of one sparse matrix."""
    lengths = [len(ids) for ids, _ in documents]
    indptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
    ids = np.concatenate([_NO_NUMBERS, *(ids for ids, _ in documents)])
    counts = np.concatenate([_NO_NUMBERS, *(counts for _, counts in documents)])
    if len(counts) and counts.max() > np.iinfo(np.int32).max:
        document = int(np.searchsorted(indptr, np.argmax(counts), side="right")) - 1
        raise InvalidValueError(f"document {document} has a word more than 2^31 - 1 times.")
    return indptr, ids.astype(np.int32), counts.astype(np.int32)


def _check_documents(documents: object) -> None:
    if isinstance(documents, (str, bytes)) or not (callable(documents) or isinstance(documents, Iterable)):
        raise InvalidTypeError(
            f"`documents` must be an iterable of documents or a function that returns one, got {documents!r:.60}."
        )


class DocumentStream:
    """A stream of documents that do not fit in memory, read as minibatches of sparse rows.

    Parameters
    ----------
    documents
        An iterable of documents, or a function without arguments that returns a new one for each pass. A document
        is a list of words, a list of (word id, count) pairs, or a dict {word: count}. A bare iterator (a
        generator, an open file) can be read only once.
    vocabulary
        As for `as_corpus`, but required: a stream is not read twice to learn it. Words outside it are left out and
        counted in `num_unknown`.
    num_documents
        The number of documents D that minibatches represent (posterior counts are scaled by D / batch size). By
        default the length of `documents`, or the count of the first full pass; an iterator has neither, so you must
        pass it there before `num_documents` is used.

    Examples
    --------
    >>> texts = ["red green", "green blue blue", "red"]
    >>> stream = DocumentStream(lambda: (text.split() for text in texts), ["red", "green", "blue"])
    >>> stream.take(2)
    (array([0, 2, 4]), array([0, 1, 1, 2], dtype=int32), array([1, 1, 1, 2], dtype=int32))
    >>> [len(indptr) - 1 for indptr, words, counts in stream.batches(2, num_batches=3)]
    [2, 2, 2]
    >>> stream.num_documents
    3
    """

    tokeniser = None

    def __init__(
        self,
        documents: Iterable[object] | Callable[[], Iterable[object]],
        vocabulary: Vocabulary,
        *,
        num_documents: int | None = None,
    ):
        _check_documents(documents)
        self.vocabulary, size = read_vocabulary(vocabulary)
        if size is None:
            raise InvalidValueError(
                "a stream requires a `vocabulary`: a list of words, a gensim Dictionary, or the number of words if "
                "documents are (word id, count) pairs."
            )
        self.vocabulary_size = size
        self._documents = documents
        self._once = isinstance(documents, Iterator)
        self._known = None if num_documents is None else positive_int(num_documents, "num_documents")
        held: object = documents
        if self._known is None and isinstance(held, Sized):
            self._known = len(held)
        self._reader = DocumentReader(self.vocabulary, size)
        self._pass: Iterator[Any] | None = None
        self._in_pass = 0
        self.num_passes = 0

    @property
    def num_seen(self) -> int:
        """Number of documents read so far, over all passes."""
        return self._reader.num_documents

    @property
    def num_empty(self) -> int:
        """Number of documents read that have no known word; they are allowed and contribute nothing."""
        return self._reader.num_empty

    @property
    def num_unknown(self) -> int:
        """Number of tokens left out because their word is not in the vocabulary."""
        return self._reader.num_unknown

    @property
    def num_documents(self) -> int:
        """The number of documents D of one pass; counted in a separate pass if not yet known."""
        if self._known is None:
            if self._once:
                raise InvalidValueError(
                    "an iterator does not tell its number of documents before its end. Set num_documents=..., or pass "
                    "a function that returns a new iterator: DocumentStream(lambda: read(path), ...)."
                )
            self._known = sum(1 for _ in self._begin())
        return self._known

    def copies(self, number: int) -> list[DocumentStream]:
        """`number` independent streams, one per chain; the first is this one."""
        if number > 1 and self._once:
            raise InvalidValueError(
                f"{number} chains cannot share one iterator, which can be read only once. Pass a function that returns "
                "a new iterator, DocumentStream(lambda: read(path), ...), or use num_chains=1."
            )
        known, words = self._known, self.vocabulary or self.vocabulary_size
        others = [DocumentStream(self._documents, words, num_documents=known) for _ in range(number - 1)]
        return [self, *others]

    def begin_again(self) -> None:
        """Restart: the next document is the first of a new pass (for an iterator, its next one)."""
        if not self._once:
            self._pass = None

    def fingerprint(self) -> str:
        """The numbers of documents and words; the documents themselves are not available."""
        return f"stream of {self.num_documents} documents, {self.vocabulary_size} words"

    def take(self, num_documents: int) -> Rows:
        """The next documents as `indptr`, `words`, `counts`; a new pass starts at the end of the last one."""
        wanted = positive_int(num_documents, "num_documents")
        documents: list[tuple[Array, Array]] = []
        while len(documents) < wanted:
            document = self._next()
            if document is not None:
                documents.append(document)
            elif self._once:
                raise InvalidValueError(
                    f"the stream is exhausted: {self.num_seen:,} documents in total, {len(documents)} of the {wanted} "
                    "requested now. Run fewer steps, or pass a function that returns a new iterator for "
                    "each pass: DocumentStream(lambda: read(path), ...)."
                )
        return stack(documents)

    def batches(self, batch_size: int, num_batches: int | None = None) -> Iterator[Rows]:
        """Minibatches: `num_batches` full ones over as many passes as needed, or (None) the rest of this pass.

        Only the last batch of a pass may be smaller, and only with None.
        """
        size = positive_int(batch_size, "batch_size")
        if num_batches is not None:
            for _ in range(positive_int(num_batches, "num_batches")):
                yield self.take(size)
            return
        documents: list[tuple[Array, Array]] = []
        while (document := self._next()) is not None:
            documents.append(document)
            if len(documents) == size:
                yield stack(documents)
                documents = []
        if documents:
            yield stack(documents)

    def _next(self) -> tuple[Array, Array] | None:
        """The next document, or None (once) at the end of a pass."""
        if self._pass is None:
            self._pass, self._in_pass = self._begin(), 0
            self.num_passes += 1
        for document in self._pass:
            self._in_pass += 1
            return self._reader.read(document)
        if self._in_pass == 0 and not (self._once and self.num_seen):
            raise InvalidValueError(
                f"pass {self.num_passes} over the stream has no documents. The function must return a new iterator at "
                "every call, not the same one."
            )
        self._pass = None
        if self._known is None and not self._once:
            self._known = self._in_pass
        return None

    def _begin(self) -> Iterator[Any]:
        documents = self._documents() if callable(self._documents) else self._documents
        if isinstance(documents, (str, bytes)) or not isinstance(documents, Iterable):
            raise InvalidTypeError(
                f"the function passed as `documents` must return an iterable of documents, got {documents!r:.60}."
            )
        return iter(documents)
