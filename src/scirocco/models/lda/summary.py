"""Topics as a reader wants them: the largest first, words with intervals, and whether chains agree."""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np

from scirocco._extras import require
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


class Opened(NamedTuple):
    """A stored fit, and how far it is."""

    model: LDA
    shares: np.ndarray | None
    status: str
    num_chains: int
    num_draws: int


def open_run(path: str | os.PathLike[str]) -> Opened:
    """A topic model in a store, finished or not; shares of the topics are those of the last state, over all chains."""
    stored = open_stored(path)
    fits.need_draws(stored, "lda", "topics")
    model = LDA.load(path)
    chains, draws = stored.arrays["posterior"]["topics"].shape[:2]
    return Opened(model, _shares(stored, model), str(stored.progress["status"]), chains, draws)


def token_shares(path: str | os.PathLike[str], model: LDA) -> np.ndarray | None:
    """Shares of the topics in the tokens of a stored fit whose model is at hand; None where the store does not say."""
    return _shares(open_stored(path), model)


def _shares(stored: Stored, model: LDA) -> np.ndarray | None:
    """Shares of the topics in the order of `components_`; None where the state does not say."""
    state = (
        {} if Record.from_json(stored.record).configuration["sampler"] in _NATURAL else stored.read_state()
    )
    found = next((state[name] for name in _SIZES if name in state), None)
    topics = stored.arrays["posterior"]["topics"]
    if found is None or found.shape[:1] + found.shape[2:] != (topics.shape[0], topics.shape[2]):
        return None
    sizes = model._aligned(found.sum(axis=1, dtype=np.float64)[:, None])[:, 0]
    return np.mean(sizes / sizes.sum(axis=1, keepdims=True), axis=0)


def summarise(
    opened: Opened, num_words: int = 10, interval: float = 0.9, drawn: TopWords | None = None
) -> list[Topic]:
    """All topics, the largest first (in the order of `components_` where sizes are not known).

    R-hat is the largest over the words that are listed, after the topics of all chains have been matched; None with one
    chain or fewer than four draws. `drawn`: what `model.top_draws(num_words)` gave, where that is known already.
    """
    drawn = opened.model.top_draws(num_words) if drawn is None else drawn
    listed = opened.model.top_words(num_words, interval=interval, drawn=drawn)
    known = opened.num_chains > 1 and opened.num_draws > 3
    rhat = opened.model.rhat(num_words, drawn=drawn) if known else None
    shares = opened.shares
    order = range(len(listed)) if shares is None else np.argsort(-shares, kind="stable").tolist()
    return [
        Topic(
            k,
            None if shares is None else float(shares[k]),
            None if rhat is None else float(rhat[k]),
            tuple(Word(str(word), mean, low, high) for word, mean, low, high in listed[k]),
        )
        for k in order
    ]


# -- two fitted models side by side: which topic of one is which of the other


class Pair(NamedTuple):
    """Two topics that were matched, and their distance (Hellinger, from 0 to 1)."""

    first: int
    second: int
    distance: float


class Comparison(NamedTuple):
    """What two models have in common.

    Attributes
    ----------
    pairs
        Matched topics, the nearest first.
    only_first, only_second
        Topics without a partner: none was left, or the nearest that was left is further away than the limit.
    num_words
        Words that both models know; topics are compared over these.
    """

    pairs: list[Pair]
    only_first: list[int]
    only_second: list[int]
    num_words: int


def compare(first: LDA, second: LDA, limit: float = 0.5) -> Comparison:
    """Match the topics of two models so that the sum of their Hellinger distances is least (Hungarian algorithm).

    Parameters
    ----------
    first, second
        Fitted models; numbers of topics and vocabularies may differ. Topics are compared over the words that both know,
        each divided by its sum there.
    limit
        Pairs further apart than this have no more in common than two topics of one model, and count as unmatched.

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
    """Whether column i is the same word in both, as far as is known."""
    if first.vocabulary_ is None or second.vocabulary_ is None:
        return bool(first.n_features_in_ == second.n_features_in_)
    return bool(first.vocabulary_ == second.vocabulary_)


def _common(first: LDA, second: LDA) -> tuple[np.ndarray, np.ndarray]:
    """The topics of both over the words that both know."""
    a, b = first.topics(), second.topics()
    if same_words(first, second):
        return a, b
    if first.vocabulary_ is None or second.vocabulary_ is None:
        raise InvalidValueError(
            f"the models have {a.shape[1]:,} and {b.shape[1]:,} words, and at least one does not know what they are. "
            "Fit both with a vocabulary."
        )
    place = {word: number for number, word in enumerate(second.vocabulary_)}
    shared = [(number, place[word]) for number, word in enumerate(first.vocabulary_) if word in place]
    if not shared:
        raise InvalidValueError("the models have no word in common, so their topics cannot be compared.")
    mine, other = (np.array(numbers) for numbers in zip(*shared, strict=True))
    return a[:, mine], b[:, other]
