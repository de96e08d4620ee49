"""Tables of topics: the largest first, words with intervals, agreement of chains; and comparison of two models."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scirocco._extras import require
from scirocco.errors import InvalidValueError
from scirocco.models.lda.alignment import topic_distance
from scirocco.models.lda.estimator import LDA
from scirocco.models.lda.results import TopWords


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


def summarise(
    model: LDA,
    num_words: int = 10,
    interval: float = 0.9,
    drawn: TopWords | None = None,
    shares: np.ndarray | None = None,
) -> list[Topic]:
    """All topics, the largest first; R-hat is None with one chain or fewer than four draws.

    The intervals have a smaller probability if there are few draws. `drawn`: the result of
    `model.top_draws(num_words)`, if already computed. `shares`: others than those in the tokens of the fit.
    """
    model._check_fitted()
    drawn = model.top_draws(num_words) if drawn is None else drawn
    level = model._level(interval)
    listed = model.top_words(num_words, interval=level or None, drawn=drawn)
    if not level:  # a single draw
        rows = zip(listed, drawn.draws[0, 0].tolist(), strict=True)
        listed = [[(word, *[weight] * 3) for word, weight in zip(*row, strict=True)] for row in rows]
    rhat = model.rhat() if model.run_.num_chains > 1 and model.run_.num_draws > 3 else None
    shares, names = model.shares_ if shares is None else shares, model.topic_names_
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
