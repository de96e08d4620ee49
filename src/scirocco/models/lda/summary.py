"""Topics as a reader wants them: the largest first, words with intervals, and whether chains agree."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from scirocco.models import fits
from scirocco.models.lda.estimator import LDA
from scirocco.models.lda.results import TopWords
from scirocco.store import open_stored

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


def _shares(stored: Any, model: LDA) -> np.ndarray | None:
    """Shares of the topics in the order of `components_`; None where the state does not say."""
    state = {} if stored.record["configuration"]["sampler"] in _NATURAL else stored.read_state()
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
