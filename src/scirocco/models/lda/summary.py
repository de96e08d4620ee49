"""Summary of topics: the largest first, words with intervals, and agreement between chains."""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np

from scirocco._extras import require
from scirocco.diagnostics.intervals import widest
from scirocco.errors import InvalidValueError
from scirocco.models import fits
from scirocco.models.lda.alignment import topic_distance
from scirocco.models.lda.estimator import LDA
from scirocco.models.lda.results import TopWords
from scirocco.run.records import Record
from scirocco.store import Stored, open_stored

_SIZES = ("table", "topics.theta")
"""Arrays of a chain's state, (words, topics), whose columns sum to the size of a topic in tokens."""
_NATURAL = ("sgld_natural", "sgld_cv")
"""Samplers whose θ is a logarithm."""


class Word(NamedTuple):
    """A word of a topic: the posterior mean of its weight, and a credible interval."""

    word: str
    weight: float
    low: float
    high: float


class Topic(NamedTuple):
    """A topic: its number (the row of `components_`), its share of the tokens, R-hat, its words."""

    number: int
    share: float | None
    rhat: float | None
    words: tuple[Word, ...]
    name: str | None = None
    """The name of seed words or of a label."""


class Opened(NamedTuple):
    """A stored fit and its progress."""

    model: LDA
    shares: np.ndarray | None
    status: str
    num_chains: int
    num_draws: int

    def level(self, interval: float) -> float:
        """The probability of the intervals that are shown: less than `interval` if there are too few draws."""
        return widest(self.num_chains * self.num_draws, interval)


def open_run(path: str | os.PathLike[str]) -> Opened:
    """Open a stored topic model, finished or not; shares of the topics are those of the last state of all chains."""
    stored = open_stored(path)
    fits.need_draws(stored, "lda", "topics")
    model = LDA.load(path)
    chains, draws = stored.arrays["posterior"]["topics"].shape[:2]
    return Opened(model, _shares(stored, model), str(stored.progress["status"]), chains, draws)


def token_shares(path: str | os.PathLike[str], model: LDA) -> np.ndarray | None:
    """Shares of the topics in the tokens of a stored fit of `model`; None if the store does not have them."""
    return _shares(open_stored(path), model)


def _shares(stored: Stored, model: LDA) -> np.ndarray | None:
    """Shares of the topics in the order of `components_`; None if the state does not have them."""
    configuration = Record.from_json(stored.record).configuration
    state = {} if configuration["sampler"] in _NATURAL else stored.read_state()
    if "sizes" in state:  # of the draws of a model that took in more documents
        sizes = model._aligned(np.asarray(state["sizes"], np.float64)).mean(axis=1)
        return np.mean(sizes / sizes.sum(axis=1, keepdims=True), axis=0)
    found = next((state[name] for name in _SIZES if name in state), None)
    topics = stored.arrays["posterior"]["topics"]
    if found is None or found.shape[:1] + found.shape[2:] != (topics.shape[0], topics.shape[2]):
        return None
    sums = found.sum(axis=1, dtype=np.float64)
    for _, topic, count in (configuration.get("guide") or {}).get(
        "counts", ()
    ):  # of seed words, not of tokens
        sums[:, topic] -= count
    sizes = model._aligned(sums[:, None])[:, 0]
    return np.mean(sizes / sizes.sum(axis=1, keepdims=True), axis=0)


def summarise(
    opened: Opened, num_words: int = 10, interval: float = 0.9, drawn: TopWords | None = None
) -> list[Topic]:
    """All topics, the largest first (in the order of `components_` if sizes are not known).

    R-hat is the largest over the listed words, after matching the topics of all chains; None with one chain or fewer
    than four draws. `drawn`: the result of `model.top_draws(num_words)`, if already computed.
    """
    drawn = opened.model.top_draws(num_words) if drawn is None else drawn
    level = opened.level(interval)
    listed = opened.model.top_words(num_words, interval=level or None, drawn=drawn)
    if not level:  # a single draw
        rows = zip(listed, drawn.draws[0, 0].tolist(), strict=True)
        listed = [[(word, *[weight] * 3) for word, weight in zip(*row, strict=True)] for row in rows]
    known = opened.num_chains > 1 and opened.num_draws > 3
    rhat = opened.model.rhat(num_words, drawn=drawn) if known else None
    shares, names = opened.shares, opened.model.topic_names_
    order = range(len(listed)) if shares is None else np.argsort(-shares, kind="stable").tolist()
    return [
        Topic(
            k,
            None if shares is None else float(shares[k]),
            None if rhat is None else float(rhat[k]),
            tuple(Word(str(word), mean, low, high) for word, mean, low, high in listed[k]),
            names[k] if k < len(names) else None,
        )
        for k in order
    ]


# -- comparison of two fitted models: matching of their topics


class Pair(NamedTuple):
    """Two topics that were matched, and their distance (Hellinger, from 0 to 1)."""

    first: int
    second: int
    distance: float


class Comparison(NamedTuple):
    """Comparison of the topics of two models.

    Attributes
    ----------
    pairs
        Matched topics, the nearest first.
    only_first, only_second
        Unmatched topics: none was left, or the nearest one left is further away than the limit.
    num_words
        Number of words in both vocabularies; topics are compared over these.
    """

    pairs: list[Pair]
    only_first: list[int]
    only_second: list[int]
    num_words: int


def compare(first: LDA, second: LDA, limit: float = 0.5) -> Comparison:
    """Match the topics of two models to minimise the sum of their Hellinger distances (Hungarian algorithm).

    Parameters
    ----------
    first, second
        Fitted models; numbers of topics and vocabularies may differ. Topics are compared over the words in both
        vocabularies, normalised to sum to one there.
    limit
        Pairs further apart than this are no more similar than two topics of one model, and count as unmatched.

    Examples
    --------
    >>> import numpy as np, scirocco as sc
    >>> X = np.random.default_rng(0).poisson(2.0, (50, 6))
    >>> lda = sc.models.LDA(3, batch_size=50).fit(X, num_epochs=20, progress=False)
    >>> found = compare(lda, lda)
    >>> sorted((pair.first, pair.second) for pair in found.pairs), found.only_first
    ([(0, 0), (1, 1), (2, 2)], [])
    """
    optimize = require("scipy.optimize", "matching topics")
    a, b = _common(first, second)
    distances = topic_distance(a, b)
    rows, columns = optimize.linear_sum_assignment(distances)
    pairs = [Pair(int(i), int(j), float(distances[i, j])) for i, j in zip(rows, columns, strict=True)]
    near = sorted((pair for pair in pairs if pair.distance <= limit), key=lambda pair: pair.distance)
    return Comparison(
        near,
        sorted(set(range(len(a))) - {pair.first for pair in near}),
        sorted(set(range(len(b))) - {pair.second for pair in near}),
        a.shape[1],
    )


def same_words(first: LDA, second: LDA) -> bool:
    """Whether column i is the same word in both, as far as known."""
    if first.vocabulary_ is None or second.vocabulary_ is None:
        return bool(first.n_features_in_ == second.n_features_in_)
    return bool(first.vocabulary_ == second.vocabulary_)


def _common(first: LDA, second: LDA) -> tuple[np.ndarray, np.ndarray]:
    """The topics of both over the words in both vocabularies."""
    a, b = first.topics(), second.topics()
    if same_words(first, second):
        return a, b
    if first.vocabulary_ is None or second.vocabulary_ is None:
        raise InvalidValueError(
            f"the models have {a.shape[1]:,} and {b.shape[1]:,} words, and at least one has no vocabulary. "
            "Fit both with a vocabulary."
        )
    place = {word: number for number, word in enumerate(second.vocabulary_)}
    shared = [(number, place[word]) for number, word in enumerate(first.vocabulary_) if word in place]
    if not shared:
        raise InvalidValueError(
            "the vocabularies of the models are disjoint: their topics cannot be compared."
        )
    mine, other = (np.array(numbers) for numbers in zip(*shared, strict=True))
    return a[:, mine], b[:, other]
