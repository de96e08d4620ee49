"""Two fitted models side by side: which topic of one is which of the other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scirocco._extras import require
from scirocco.errors import InvalidValueError
from scirocco.models.lda.alignment import topic_distance
from scirocco.models.lda.estimator import LDA


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
