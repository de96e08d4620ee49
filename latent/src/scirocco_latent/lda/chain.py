"""One chain of a topic model: source of its documents, the sampler of its topics, and progress; and all of a fit."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from scirocco.models._core.chain import Chain, Spec, TopicPurpose
from scirocco.models._core.program import OwnChains
from scirocco.run.encoding import encode
from scirocco_latent.lda.array_chain import ArrayChain, BlockPasses, DocumentBlocks
from scirocco_latent.lda.collapsed_chain import CollapsedChain
from scirocco_latent.lda.continuing import TopicStart
from scirocco_latent.lda.corpus import Corpus, as_corpus
from scirocco_latent.lda.document_batches import (
    START_GROWTH,
    START_PASSES,
    Batches,
    CorpusBatches,
    Growth,
    StreamBatches,
    growth_steps,
    shortened_growth,
)
from scirocco_latent.lda.guiding import Guide
from scirocco_latent.lda.settings import TopicSettings
from scirocco_latent.lda.sizes import FITTING
from scirocco_latent.lda.stochastic_chain import Counting, StochasticChain
from scirocco_latent.lda.streams import DocumentStream
from scirocco_latent.lda.topics import Arrays

Array = np.ndarray

_ARRAY_EPOCHS = 200
"""Default passes of whole-array chains with memory, which need more of them and are much faster."""
_LEAST_EPOCHS, _MOST_EPOCHS = 20, 400
"""The limits of the default number of passes of other chains with memory."""


class TopicChain(Chain):
    """State of a chain: batches of documents, an engine, the steps made.

    A `DocumentStream` requires a chain without memory. `counting` makes the local steps of a chain without memory;
    None: they are made in this process. `blocks` are the documents of a chain with memory that runs as array programs.
    `guide` has seed words and labels, for a chain with memory.
    """

    PURPOSE_BITS = 3

    def __init__(
        self,
        corpus: Corpus | DocumentStream,
        settings: TopicSettings,
        seed: int,
        number: int,
        counting: Counting | None = None,
        blocks: DocumentBlocks | None = None,
        guide: Guide | None = None,
    ):
        super().__init__(seed, number)
        self.settings = settings
        self.vocabulary_size: int = corpus.vocabulary_size
        self.batches: Batches | BlockPasses
        if blocks is not None:
            self.batches = BlockPasses(blocks, settings.growth)
        elif isinstance(corpus, DocumentStream):
            self.batches = StreamBatches(corpus)
        else:
            self.batches = CorpusBatches(corpus, self.seed, settings.growth)
        self.engine: Any
        if blocks is not None:
            self.engine = ArrayChain(blocks, settings, guide)
        elif settings.memory == "documents":
            assert not isinstance(corpus, DocumentStream)
            self.engine = CollapsedChain(corpus, settings, guide)
        else:
            self.engine = StochasticChain(corpus.vocabulary_size, settings, self.seed, counting)

    def take_over(self, corpus: Corpus, total: int) -> None:
        """Continue with other documents, of a corpus of `total`; only without memory."""
        assert isinstance(self.engine, StochasticChain) and isinstance(self.batches, CorpusBatches)
        self.batches = CorpusBatches(corpus, self.seed, epoch=self.batches.epoch + 1)
        self.batches.total, self.batches.once = total, True

    def continue_from(self, state: Arrays) -> None:
        """Take the topics and the number of steps of another chain without memory; `take_over` gives documents."""
        self.engine.restore(state)
        self.step = int(state["steps"][0])
        self.vocabulary_size = len(state["topics.theta"])
        if isinstance(self.batches, CorpusBatches) and len(state["supply"]) == len(self.batches.state()):
            self.batches.epoch = int(state["supply"][0])

    def extend(self, num_words: int) -> None:
        """Add words to the vocabulary, so that it has `num_words`; only without memory, with SCIR or SCIR-CV."""
        new = num_words - self.vocabulary_size
        if new > 0:
            self.engine.extend(num_words, new, self.words(TopicPurpose.CONTINUED))
            self.vocabulary_size = num_words

    def begin(self) -> None:
        """Make several short runs on all documents, and start from the end of the most probable one."""
        if self.settings.starts == 1:
            return
        assert isinstance(self.batches, CorpusBatches)
        corpus = self.batches.corpus
        size, best, most = corpus.num_documents, None, -math.inf
        short = dataclasses.replace(
            self.settings,
            starts=1,
            growth=((size, START_GROWTH),),
            batch_size=size,
            sampler="gibbs",
            learn_alpha=False,
            learn_beta=False,
        )
        for number in range(self.settings.starts):
            trial = TopicChain(corpus, short, self.seed, number, guide=self.engine.guide)
            trial.advance(START_PASSES)
            if best is None or trial.engine.log_joint() > most:
                best, most = trial.engine, trial.engine.log_joint()
        self.engine.start_from(best)

    def move(self) -> None:
        """Process one batch."""
        self.engine.step(self.batches, self.step, self.words)

    def prepare(self) -> None:
        """Find the start, and compile, by a step of a small chain of the same kind."""
        super().prepare()
        if isinstance(self.engine, ArrayChain):
            self.engine.compile()
            return
        changes: dict[str, Any] = {"starts": 1, "growth": (), "batch_size": 2, "spare_topics": 0}
        small = TopicChain(as_corpus(np.ones((2, 4), int)), dataclasses.replace(self.settings, **changes), 0, 0)
        small.advance(1)
        small.kept()

    @property
    def passes(self) -> float:
        """Number of documents processed, divided by the number of all documents."""
        return self.batches.passes

    def draw(self) -> Array:
        """A posterior draw of ω, (topics, words)."""
        drawn: Array = self.engine.draw(self.words(TopicPurpose.DRAW))
        return drawn

    def mean(self) -> Array:
        """With memory, E[ω | topics of all tokens], (topics, words), less noisy than a draw; without memory, a draw."""
        mean: Array = self.engine.mean(self.words(TopicPurpose.DRAW))
        return mean

    def hyper(self) -> dict[str, Array]:
        """Current values of α and β, if they are learned."""
        out = {}
        if self.settings.learn_alpha:
            out["alpha"] = self.engine.alpha.copy()
        if self.settings.learn_beta:
            out["beta"] = np.float64(self.engine.beta)
        return out

    def kept(self) -> tuple[Arrays, dict[str, Any]]:
        """A draw and its statistics (`stat_shapes`)."""
        sizes = np.maximum(self.engine.sizes(), 0)
        shares = sizes / max(float(sizes.sum()), 1.0)
        return {"topics": self.draw()}, {"passes": self.passes, "shares": shares, **self.hyper()}

    def state(self) -> Arrays:
        """Arrays from which `restore` resumes the chain exactly; they are not copied and valid until the next step."""
        return {**self.engine.state(), "supply": self.batches.state(), **super().state()}

    def restore(self, state: Arrays) -> None:
        """Restore the chain from `state`."""
        self.engine.restore(state)
        self.batches.restore(state["supply"])
        super().restore(state)


def stat_shapes(settings: TopicSettings) -> dict[str, tuple[int, ...]]:
    """Shapes of the statistics of each draw: passes, shares of the topics in the tokens, learned hyper-parameters."""
    size = (settings.num_topics,)
    alpha = {"alpha": size} if settings.learn_alpha else {}
    return {"passes": (), "shares": size, **alpha, **({"beta": ()} if settings.learn_beta else {})}


class Task(NamedTuple):
    """Definition of a fit, without its length and the options of its execution."""

    corpus: Corpus | DocumentStream
    settings: TopicSettings
    seed: int
    num_chains: int
    growth_asked: str | Sequence[tuple[int, int]] | None
    """The value passed by the user."""
    told: dict[str, Any]
    counting: Counting | None = None
    """Makes the local steps, see `stochastic_chain.Here`; does not affect the draws."""
    start: TopicStart | None = None
    """Where the chains start, if they continue from an earlier fit."""
    guide: Guide | None = None
    """Seed words and labels."""

    def growth_for(self, num_steps: float) -> Growth:
        """The growth of a run of this number of steps: at most half of it."""
        if self.start is not None:
            return self.start.growth
        return shortened_growth(self.settings.growth, num_steps / 2, self.settings.batch_size)

    def steps_of(self, num_epochs: float) -> int:
        """The steps in which as many documents are visited as in so many passes; those of the growth are counted."""
        batch, growth = self.settings.batch_size, self.settings.growth
        wanted = num_epochs * self.corpus.num_documents
        while True:
            left = round((wanted - _visits(growth)) / batch, 6)  # whole numbers stay whole
            steps = max(1, growth_steps(growth, batch) + math.ceil(left))
            shorter = self.growth_for(steps) if growth else ()
            if shorter == growth:
                return steps
            growth = shorter

    def usual_epochs(self) -> float:
        """The default number of passes after the growth, and those of the growth.

        Small corpora need more of them, and can afford them.
        """
        corpus, settings = self.corpus, self.settings
        if settings.memory == "none" or isinstance(corpus, DocumentStream):
            return _LEAST_EPOCHS
        grown = _visits(settings.growth) / corpus.num_documents
        if settings.by_arrays:
            return _ARRAY_EPOCHS + grown
        usual = round(FITTING.usual_tokens / max(corpus.num_tokens, 1))
        return min(max(usual, _LEAST_EPOCHS), _MOST_EPOCHS) + grown


def _visits(growth: Growth) -> int:
    return sum(size * passes for size, passes in growth)


def program(task: Task, made: list[TopicChain], growth: Growth | None = None) -> OwnChains:
    """The chains of a task with a growth, that of its settings if None; `made` becomes the list of the chains."""
    growth = task.settings.growth if growth is None else growth
    settings, corpus = dataclasses.replace(task.settings, growth=growth), task.corpus
    steps_of_a_pass = -(-corpus.num_documents // settings.batch_size)
    growing_steps = growth_steps(growth, settings.batch_size) if task.start is None else 0
    words = f"{settings.words[:-1]}. {task.guide.words}" if task.guide and task.guide.words else settings.words
    return OwnChains(
        words,
        {
            **settings.as_json(),
            "growth_asked": encode(task.growth_asked),
            "num_words": int(corpus.vocabulary_size),
            **({} if task.start is None else {"continued": task.start.name}),
            **({} if task.guide is None else {"guide": task.guide.as_json()}),
        },
        corpus.fingerprint,
        corpus.num_documents,
        Spec.of({"topics": (settings.num_topics, corpus.vocabulary_size)}, stat_shapes(settings)),
        _maker(task, settings, made),
        task.told,
        epoch=(corpus.num_documents, settings.batch_size),
        steps_of=task.steps_of if task.settings.growth else None,
        default_epochs=task.usual_epochs(),
        # After its growth a chain visits all documents once: tokens of discarded topics have none until then.
        first_steps=growing_steps + steps_of_a_pass if growing_steps else 0,
        capacity=1,
        after_clock=functools.partial(_end_growth, steps_of_a_pass),
        as_stored=lambda was: program(task, made, tuple((size, passes) for size, passes in was["growth"])),
    )


def _maker(task: Task, settings: TopicSettings, made: list[TopicChain]) -> Any:
    """Makes the chain with a number; array programs share one copy of the documents."""

    @functools.cache
    def shared() -> tuple[Sequence[Corpus | DocumentStream], DocumentBlocks | None]:
        corpus = task.corpus
        if isinstance(corpus, DocumentStream):
            return corpus.copies(task.num_chains), None
        on_device = settings.by_arrays and settings.memory == "documents"
        return [corpus] * task.num_chains, DocumentBlocks(corpus, task.seed, settings.growth) if on_device else None

    def make(number: int) -> TopicChain:
        corpora, blocks = shared()
        chain = TopicChain(corpora[number], settings, task.seed, number, task.counting, blocks, task.guide)
        if task.start is not None:
            task.start.place(chain, number, corpora[number])
        del made[number:]
        made.append(chain)
        return chain

    return make


def _end_growth(steps_of_a_pass: int, chains: Sequence[TopicChain]) -> int:
    """Switch all chains to all documents."""
    under_way = any(chain.batches.growing for chain in chains)
    for chain in chains:
        chain.batches.finish_growth()
    return steps_of_a_pass if under_way else 0
