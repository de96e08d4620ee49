"""Predictions of fitted topics: proportions of topics in documents, and perplexity of held-out words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from scirocco._checks import is_number
from scirocco.data import fingerprints
from scirocco.data.native.corpus import CorpusSource
from scirocco.data.shuffle import shuffled_numbers
from scirocco.diagnostics.intervals import central
from scirocco.errors import InvalidValueError
from scirocco.models._core.chain import DocumentPurpose
from scirocco_latent.lda import local
from scirocco_latent.lda.corpus import Corpus, NoWords
from scirocco_latent.lda.streams import Rows

Array = np.ndarray

_PIECE = 4096  # documents at a time
_REPEATS, _APART = 10, 3
"""Draws of η for each draw of ω, and sweeps between two of them if they follow each other."""
_WORDS_AT_ONCE = 1 << 16  # to save memory


class FoldIn(NamedTuple):
    """Settings of the inference of topics in new documents."""

    alpha: Array
    sweeps: int
    burn_in: int
    num_threads: int | None
    seed: int


def proportions(
    rows: tuple[Any, Any, Any],
    omega: Array,
    how: FoldIn,
    draw: int,
    documents: Array | None = None,
    as_counts: bool = False,
    z: Array | None = None,
) -> Array:
    """E[η_d] = (α + n_d) / (Σα + N_d) of each document, with n_d averaged over Gibbs sweeps given one draw of ω.

    `z` are the topics of the tokens where the sweeps start (-1: none); they are updated.
    """
    batch = local.from_counts(*rows, documents)
    length = np.zeros(len(batch.indptr) - 1)
    topics = np.zeros((len(length), len(how.alpha)), np.float64)
    if len(batch.distinct):
        weights = np.ascontiguousarray(omega[:, batch.distinct].T)
        found = local.gibbs(
            (how.seed, draw),
            batch,
            weights,
            how.alpha,
            sweeps=how.sweeps,
            burn_in=how.burn_in,
            keep_documents=True,
            z=z,
            num_threads=how.num_threads,
        )
        assert found.document_topics is not None
        topics += found.document_topics
        length = np.diff(batch.indptr)
    if as_counts:
        return topics
    return (topics + how.alpha) / (length + how.alpha.sum())[:, None]


def drawn_proportions(corpus: Corpus, draws: Iterable[Array], how: FoldIn) -> Iterator[Array]:
    """Posterior draws of η of all documents, (documents, topics), ten for each draw of ω, a few sweeps apart."""
    pieces = range(0, corpus.num_documents, _PIECE)
    for first, omega in enumerate(draws):
        tokens: dict[int, Array] = {}
        for turn in range(_REPEATS):
            out = np.empty((corpus.num_documents, len(how.alpha)), np.float32)
            sweeps = _APART if turn else how.sweeps
            last = how._replace(sweeps=sweeps, burn_in=sweeps - 1)
            number = first * _REPEATS + turn
            for begin in pieces:
                documents = np.arange(begin, min(begin + _PIECE, corpus.num_documents))
                rows = corpus.take_csr(documents)
                z = tokens.setdefault(begin, np.full(int(rows[2].sum()), -1, np.int32))
                counts = proportions(rows, omega, last, number, documents, as_counts=True, z=z)
                rng = np.random.default_rng([how.seed, 0xE7B, begin, number])
                theta = rng.standard_gamma(counts + how.alpha)
                out[documents] = theta / theta.sum(axis=1, keepdims=True)
            yield out


def share_pieces(
    corpus: Corpus, draws: Iterable[Array], how: FoldIn, interval: float | None = None
) -> Iterator[tuple[Array, ...]]:
    """Shares of topics in the documents, some thousand documents at a time: (mean,), or (mean, low, high).

    With an interval, draws of η are from its posterior: for each draw of ω, ten chains of z are run, and η ~
    Dirichlet(α + n_d) given their last states. Otherwise E[η | ω] is averaged over the draws of ω.
    """
    kept = list(draws)
    for begin in range(0, corpus.num_documents, _PIECE):
        numbers = np.arange(begin, min(begin + _PIECE, corpus.num_documents))
        rows = corpus.take_csr(numbers)
        if interval is None:
            total, z = np.zeros((len(numbers), len(how.alpha))), np.full(int(rows[2].sum()), -1, np.int32)
            for number, omega in enumerate(kept):
                total += proportions(rows, omega, _continued(how) if number else how, number, numbers, z=z)
            yield (total / len(kept),)
            continue
        rng = np.random.default_rng([how.seed, 0xE7A, begin])
        drawn = []
        for number in range(_REPEATS * len(kept)):
            last = how._replace(burn_in=how.sweeps - 1)
            omega = kept[number % len(kept)]
            counts = proportions(rows, omega, last, number, numbers, as_counts=True)
            theta = rng.standard_gamma(counts + how.alpha)
            drawn.append((theta / theta.sum(axis=1, keepdims=True)).astype(np.float32))
        yield (np.mean(drawn, axis=0), *central(np.stack(drawn), interval))


def _continued(how: FoldIn) -> FoldIn:
    """Fewer sweeps for another draw of ω: they start from the topics of the tokens given the one before."""
    sweeps = max(1, how.sweeps // 2)
    return how._replace(sweeps=sweeps, burn_in=min(how.burn_in, sweeps // 8))


def all_shares(corpus: Corpus, draws: Iterable[Array], how: FoldIn, interval: float | None = None) -> tuple[Array, ...]:
    """The pieces of `share_pieces` together, each (documents, topics)."""
    parts = zip(*share_pieces(corpus, draws, how, interval), strict=True)
    return tuple(np.concatenate(part) for part in parts)


def split(rows: tuple[Array, Array, Array], every: int = 10) -> tuple[Any, Any]:
    """Split off every tenth token of each document, by position (words in the order of their ids): seen, hidden."""
    indptr, words, counts = rows
    ends = np.cumsum(counts, dtype=np.int64)
    starts = ends - counts
    document = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    offset = np.concatenate([[0], ends])[indptr[:-1]][document]
    first, last = starts - offset, ends - offset
    hidden = last // every - first // every  # positions every-1, 2 every-1, ...
    return _without_zeros(indptr, words, counts - hidden), _without_zeros(indptr, words, hidden)


def _without_zeros(indptr: Array, words: Array, counts: Array) -> tuple[Any, Any, Any]:
    keep = counts > 0
    kept = np.concatenate([[0], np.cumsum(keep)])
    return kept[indptr].astype(np.int64), words[keep], counts[keep].astype(np.int32)


def check_hidden(hidden: Rows) -> None:
    """Raise an error if there is no hidden word to score."""
    if hidden[2].sum() == 0:
        raise InvalidValueError("there is no hidden word to score: documents must have at least 10 tokens.")


def document_counts(rows: Rows) -> Array:
    """Number of tokens of each document."""
    indptr, _, counts = rows
    return np.diff(np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])[indptr])


def perplexity(seen: Rows, hidden: Rows, draws: Iterable[Array], how: FoldIn) -> float:
    """exp(-Σ log p / #words) of the hidden words, with p averaged over the draws of ω; η from the seen words.

    `seen` and `hidden` are CSR triples of the same documents.
    """
    return float(np.exp(-np.sum(document_scores(seen, hidden, draws, how)) / hidden[2].sum()))


def document_scores(seen: Rows, hidden: Rows, draws: Iterable[Array], how: FoldIn) -> Array:
    """Σ log p of the hidden words of each document; see `perplexity`."""
    indptr, words, counts = hidden
    if len(indptr) != len(seen[0]):
        raise InvalidValueError(
            f"the seen and the hidden part must have the same documents; got {len(seen[0]) - 1} and {len(indptr) - 1}."
        )
    check_hidden(hidden)
    document = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    chance, number = np.zeros(len(words)), -1
    for number, omega in enumerate(draws):
        eta = proportions(seen, omega, how, number).astype(np.float32)
        by_word = np.ascontiguousarray(omega.T)
        for begin in range(0, len(words), _WORDS_AT_ONCE):
            part = slice(begin, begin + _WORDS_AT_ONCE)
            chance[part] += np.einsum("ik,ik->i", eta[document[part]], by_word[words[part]])
    with np.errstate(divide="ignore"):
        return np.bincount(document, counts * np.log(chance / (number + 1)), len(indptr) - 1)


# -- held-out documents, scored while the others are fitted


DEFAULT_SHARE = 0.01  # of the documents that are held out


class PartSource:
    """Some rows of a corpus, read in place."""

    def __init__(self, source: CorpusSource | NoWords, rows: Array):
        self._source, self._rows = source, rows
        self.num_rows, self.vocabulary_size = len(rows), source.vocabulary_size

    def take_csr(self, indices: Array) -> Rows:
        """Rows by their indices within the part."""
        found: Rows = self._source.take_csr(self._rows[np.asarray(indices)])
        return found

    def fingerprint(self) -> str:
        """A short hash of the whole corpus and the rows of the part."""
        rows = np.ascontiguousarray(self._rows, np.int64).tobytes()
        return fingerprints.shortened(self._source.fingerprint().encode() + rows)


def part(corpus: Corpus, rows: Array) -> Corpus:
    """The documents with these numbers; nothing is copied."""
    source: Any = PartSource(corpus.source, rows)
    tokens = empty = 0
    for begin in range(0, len(rows), 1 << 14):
        indptr, _, counts = source.take_csr(np.arange(begin, min(begin + (1 << 14), len(rows))))
        ends = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])[indptr]
        tokens, empty = tokens + int(ends[-1]), empty + int(np.sum(np.diff(ends) == 0))
    return replace(corpus, source=source, num_tokens=tokens, num_empty=empty, notes=())


def hold_out(corpus: Corpus, share: float | None, seed: int) -> tuple[Corpus, Corpus | None]:
    """Split into documents to fit and held-out documents: a random fraction, the same for the same seed.

    The fraction is from 0 (none) to below 1. None: 0.01, or 0 if that is too little to be scored.

    Examples
    --------
    >>> import numpy as np
    >>> from scirocco_latent.lda import as_corpus
    >>> corpus = as_corpus(np.full((200, 3), 10))
    >>> fitted, held = hold_out(corpus, 0.1, seed=0)
    >>> fitted.num_documents, held.num_documents
    (180, 20)
    """
    wanted = DEFAULT_SHARE if share is None else share
    if not is_number(wanted) or not 0 <= float(wanted) < 1:
        raise InvalidValueError(f"the held-out fraction must be >= 0 and < 1, got {wanted}.")
    count = round(float(wanted) * corpus.num_documents)
    if float(wanted) == 0 or (share is None and count < 2):
        return corpus, None
    if not 0 < count < corpus.num_documents:
        raise InvalidValueError(
            f"{wanted:g} of {corpus.num_documents:,} documents are {count}: both parts must have documents. "
            "Use another fraction, or 0 to hold out none."
        )
    held, fitted = (part(corpus, numbers) for numbers in _parts(corpus.num_documents, count, seed))
    _, hidden = split(held.take_csr(np.arange(count)))
    if hidden[2].sum() > 0 and fitted.num_tokens > 0:
        return fitted, held
    if share is None:
        return corpus, None
    raise InvalidValueError(
        f"the {count} held-out documents have fewer than 10 words each and cannot be scored. Hold out "
        "more, or 0 for none."
    )


def kept_numbers(num_documents: int, num_held: int, seed: int) -> Array:
    """The numbers of the documents that `hold_out` leaves to be fitted, if it holds out `num_held`."""
    return _parts(num_documents, num_held, seed)[1]


def _parts(num_documents: int, num_held: int, seed: int) -> tuple[Array, Array]:
    order = shuffled_numbers(num_documents, seed, DocumentPurpose.HELD_OUT)
    return np.sort(order[:num_held]), np.sort(order[num_held:])
