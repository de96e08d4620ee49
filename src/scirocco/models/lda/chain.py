"""One chain of a topic model: where its documents come from, what moves its topics, and how far it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from scirocco.models.lda.estimated import Estimated
from scirocco.models.lda.remembered import Remembered
from scirocco.models.lda.settings import Settings
from scirocco.models.lda.streams import DocumentStream
from scirocco.models.lda.supply import CorpusSupply, StreamSupply, Supply
from scirocco.models.lda.topics import Arrays

_DRAW = 5  # a purpose of random numbers; others are in `estimated` and `remembered`


class TopicChain:
    """All that a chain is: a supply of documents, an engine, the number of steps made.

    Parameters
    ----------
    corpus
        A `Corpus`, or a `DocumentStream` (without memory only).
    settings
        From `settings.resolve`.
    seed, chain
        The chain's random numbers follow from both.
    counting
        What makes the local steps of a chain without memory; None: this process.
    """

    def __init__(self, corpus: Any, settings: Settings, seed: int, chain: int, counting: Any = None):
        self.settings = settings
        self.seed = int(np.random.SeedSequence([seed, chain]).generate_state(1, np.uint64)[0] >> 1)
        self.step = 0
        self.vocabulary_size: int = corpus.vocabulary_size
        self.supply: Supply
        if isinstance(corpus, DocumentStream):
            self.supply = StreamSupply(corpus)
        else:
            self.supply = CorpusSupply(corpus, self.seed, settings.growth)
        self.engine: Any
        if settings.memory == "documents":
            self.engine = Remembered(corpus, settings)
        else:
            self.engine = Estimated(corpus.vocabulary_size, settings, self.seed, counting)

    def take_over(self, corpus: Any, total: int) -> None:
        """Go on with other documents, of a corpus of `total`; only without memory."""
        assert isinstance(self.engine, Estimated) and isinstance(self.supply, CorpusSupply)
        self.supply = CorpusSupply(corpus, self.seed, epoch=self.supply.epoch + 1)
        self.supply.total, self.supply.once = total, True

    def advance(self, num_steps: int) -> None:
        """Make steps."""
        for _ in range(num_steps):
            self.engine.step(self.supply, self.step, self._words)
            self.step += 1

    def _words(self, purpose: int) -> tuple[int, int]:
        """Seed words of this step, for one purpose."""
        return self.seed, (self.step << 3) + purpose

    @property
    def passes(self) -> float:
        """Documents that were handed out, over all documents."""
        return self.supply.passes

    def draw(self) -> np.ndarray:
        """A posterior draw of ω, (topics, words)."""
        drawn: np.ndarray = self.engine.draw(self._words(_DRAW))
        return drawn

    def mean(self) -> np.ndarray:
        """With memory E[ω | topics of all tokens], (topics, words): less noise than a draw. Without memory a draw."""
        mean: np.ndarray = self.engine.mean(self._words(_DRAW))
        return mean

    def hyper(self) -> dict[str, np.ndarray]:
        """α and β as they are, those that are learned."""
        out = {}
        if self.settings.learn_alpha:
            out["alpha"] = self.engine.alpha.copy()
        if self.settings.learn_beta:
            out["beta"] = np.float64(self.engine.beta)
        return out

    def kept(self) -> tuple[Arrays, dict[str, Any]]:
        """A draw, and what is kept with it (`stat_shapes`)."""
        return {"topics": self.draw()}, {"passes": self.passes, **self.hyper()}

    def state(self) -> Arrays:
        """Arrays from which `restore` goes on bit for bit; they are the chain's own, valid until its next step."""
        return {
            **self.engine.state(),
            "supply": self.supply.state(),
            "steps": np.array([self.step], np.int64),
        }

    def restore(self, state: Arrays) -> None:
        """Take up where `state` was taken."""
        self.engine.restore(state)
        self.supply.restore(state["supply"])
        self.step = int(state["steps"][0])


def stat_shapes(settings: Settings) -> dict[str, tuple[int, ...]]:
    """What is kept with every draw: how often the corpus has been seen, and what is learned besides the topics."""
    alpha = {"alpha": (settings.num_topics,)} if settings.learn_alpha else {}
    return {"passes": (), **alpha, **({"beta": ()} if settings.learn_beta else {})}
