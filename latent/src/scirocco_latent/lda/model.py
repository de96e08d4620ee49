"""What all topic models are: words, and draws with the topics of all chains in one order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from scirocco.diagnostics.intervals import widest
from scirocco.models._core.model import FittedModel
from scirocco.run.result import Run
from scirocco.store.stored import Index, LazyArray, full_index
from scirocco_latent.lda.alignment import align
from scirocco_latent.lda.corpus import Corpus
from scirocco_latent.lda.streams import DocumentStream
from scirocco_latent.lda.tokeniser import Tokeniser
from scirocco_latent.lda.topics import normalise

Array = np.ndarray[Any, np.dtype[Any]]

_DRAWN_NUMBERS, _LEAST_DRAWS, _MOST_DRAWS = 1 << 24, 20, 100
"""Numbers in all draws of a chain, so that making them takes a small part of the time; limits of the draws."""


def usual_draws(size: int) -> int:
    """The default number of draws of a chain: 100, and fewer if a draw has many numbers, but at least 20.

    Examples
    --------
    >>> usual_draws(20 * 5_000), usual_draws(50 * 7_000), usual_draws(100 * 20_000)
    (100, 47, 20)
    """
    return min(max(_DRAWN_NUMBERS // size, _LEAST_DRAWS), _MOST_DRAWS)


class InOneOrder(LazyArray):
    """Draws (chain, draw, ...) with the topics of all chains in the order of the first; read when they are indexed.

    `orders` (chain, topic) has for each chain the topic that is topic k of the first; `axes` of a draw are topics.
    """

    def __init__(self, draws: Any, orders: Array, axes: Sequence[int]):
        self.draws, self.orders, self.axes = draws, orders, axes
        self.shape, self.dtype = tuple(draws.shape), draws.dtype

    def __getitem__(self, index: Index) -> Any:
        chain, draw, *rest = full_index(index, self.shape)
        if isinstance(chain, slice):
            chosen = range(*chain.indices(self.shape[0]))
            return np.stack([self[number, draw, *rest] for number in chosen])
        out, before = np.asarray(self.draws[chain, draw]), int(isinstance(draw, slice))
        for axis in self.axes if chain else ():
            out = np.take(out, self.orders[chain], axis + before)
        return out[(slice(None),) * before + tuple(rest)]


class TopicModel(FittedModel):
    """A topic model: topics are numbered as in the first chain, and those of the others are matched with them."""

    ADVICE = "Chains with different topics rarely mix: run them longer (num_epochs), or fit fewer topics (num_topics)."
    TOPICS: ClassVar[Mapping[str, Sequence[int]]] = {"topics": (0,)}
    """The axes of a draw that are topics, by its name."""
    _takes_counts = True
    tokeniser: Any
    tokeniser_: Tokeniser | None
    components_: Array
    vocabulary_: tuple[str, ...] | None
    n_features_in_: int
    _orders: Array
    """For each chain the topic that is topic k of the first, (chain, topic)."""

    def _results(self, run: Run, told: dict[str, Any], arrays: Mapping[str, Array]) -> dict[str, Any]:
        """Words, and the draws in one order."""
        self.vocabulary_ = tuple(told["vocabulary"]) if told["vocabulary"] else None
        self.tokeniser_ = None if told["tokeniser"] is None else Tokeniser.from_json(told["tokeniser"])
        topics = run.draws["topics"]
        self.n_features_in_ = int(topics.shape[-1])
        total, *others = [self._sum(topics, chain) for chain in range(topics.shape[0])]
        self._orders = np.tile(np.arange(len(total)), (len(others) + 1, 1))
        named = len(told.get("topic_names", ()))  # they are the same topics in all chains
        if others and named < len(total):
            free = np.stack([each[named:] for each in others])
            self._orders[1:, named:] = named + align(total[named:], free)
        for each, order in zip(others, self._orders[1:], strict=True):
            total += each[order]
        self.components_ = normalise(total)
        return {name: self._in_order(run.draws[name], axes) for name, axes in self.TOPICS.items()}

    def _settle(self, run: Run, told: dict[str, Any], arrays: Mapping[str, Array]) -> None:
        super()._settle(run, told, arrays)
        self.run_ = run  # without `converted`: a name for each word of each topic may take longer than the fit

    def _sum(self, topics: Any, chain: int) -> Array:
        """The sum of the draws of a chain, (topics, words), one by one because each may be large."""
        total = np.array(self._without_time(np.asarray(topics[chain, 0])), np.float32)
        for number in range(1, topics.shape[1]):
            total += self._without_time(np.asarray(topics[chain, number]))
        return total

    def _without_time(self, topics: Array) -> Array:
        """A draw of the topics as (topics, words), to match those of several chains."""
        return topics

    @staticmethod
    def _words_of(corpus: Corpus | DocumentStream) -> dict[str, Any]:
        """What results need to know of the words, as JSON."""
        split = corpus.tokeniser
        return {
            "vocabulary": None if corpus.vocabulary is None else list(corpus.vocabulary),
            "tokeniser": None if split is None else split.as_json(),
        }

    @property
    def _words(self) -> Sequence[Any]:
        """Words, or their numbers."""
        return self.vocabulary_ or range(self.n_features_in_)

    def _in_order(self, values: Any, axes: Sequence[int] = (0,)) -> InOneOrder:
        """Values of all draws, (chain, draw, ...), in one order of topics along these axes of a draw."""
        return InOneOrder(values, self._orders, axes)

    @property
    def _num_draws(self) -> int:
        return self.run_.num_chains * self.run_.num_draws

    def _level(self, interval: float) -> float:
        """The probability of the intervals that are shown: less than `interval` if there are few draws, 0 for one."""
        return widest(self._num_draws, interval)

    def _draw(self, number: int, name: str = "topics") -> Array:
        """A draw by its number over all chains."""
        self._check_fitted()
        drawn: Array = self.draws_[name][divmod(number, self.run_.num_draws)]
        return drawn

    def _by_chain(self, pooled: Array) -> Array:
        """Values of the draws of all chains together as (chain, draw, ...)."""
        return pooled.reshape(self.run_.num_chains, -1, *pooled.shape[1:])
