"""One chain of a topic model: source of its documents, the sampler of its topics, and progress."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from scirocco.models import fits
from scirocco.models.fits.chains import TopicPurpose
from scirocco.models.lda.array_chain import ArrayChain
from scirocco.models.lda.blocks import BlockPasses, Blocks
from scirocco.models.lda.collapsed_chain import CollapsedChain
from scirocco.models.lda.continuing import Reached, Start
from scirocco.models.lda.corpus import Corpus
from scirocco.models.lda.document_batches import (
    START_GROWTH,
    START_PASSES,
    Batches,
    CorpusBatches,
    Growth,
    StreamBatches,
    growth_steps,
    shortened_growth,
)
from scirocco.models.lda.guiding import Guide
from scirocco.models.lda.settings import HOST, Settings
from scirocco.models.lda.stochastic_chain import Counting, StochasticChain
from scirocco.models.lda.streams import DocumentStream
from scirocco.models.lda.topics import Arrays
from scirocco.run import records
from scirocco.run.encoding import encode
from scirocco.run.result import Run
from scirocco.store import StoredArray, holds_run, open_stored


class TopicChain:
    """State of a chain: batches of documents, an engine, the steps made; random numbers from `seed` and `chain`.

    A `DocumentStream` requires a chain without memory. `counting` makes the local steps of a chain without memory;
    None: they are made in this process. `blocks` are the documents of a chain with memory that runs as array programs.
    `guide` has seed words and labels, for a chain with memory.
    """

    def __init__(
        self,
        corpus: Corpus | DocumentStream,
        settings: Settings,
        seed: int,
        chain: int,
        counting: Counting | None = None,
        blocks: Blocks | None = None,
        guide: Guide | None = None,
    ):
        self.settings = settings
        self.seed = int(np.random.SeedSequence([seed, chain]).generate_state(1, np.uint64)[0] >> 1)
        self.step = 0
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
            self.engine.extend(num_words, new, self._words(TopicPurpose.CONTINUED))
            self.vocabulary_size = num_words

    def advance(self, num_steps: int) -> None:
        """Run `num_steps` steps."""
        if num_steps and not self.step and self.settings.starts > 1:
            self._choose_start()
        for _ in range(num_steps):
            self.engine.step(self.batches, self.step, self._words)
            self.step += 1

    def _choose_start(self) -> None:
        """Make several short runs on all documents, and start from the end of the most probable one."""
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

    def _words(self, purpose: int) -> tuple[int, int]:
        """Seed words of this step, for one purpose."""
        return self.seed, (self.step << 3) + purpose

    @property
    def passes(self) -> float:
        """Number of documents processed, divided by the number of all documents."""
        return self.batches.passes

    def draw(self) -> np.ndarray:
        """A posterior draw of ω, (topics, words)."""
        drawn: np.ndarray = self.engine.draw(self._words(TopicPurpose.DRAW))
        return drawn

    def mean(self) -> np.ndarray:
        """With memory, E[ω | topics of all tokens], (topics, words), less noisy than a draw; without memory, a draw."""
        mean: np.ndarray = self.engine.mean(self._words(TopicPurpose.DRAW))
        return mean

    def hyper(self) -> dict[str, np.ndarray]:
        """Current values of α and β, if they are learned."""
        out = {}
        if self.settings.learn_alpha:
            out["alpha"] = self.engine.alpha.copy()
        if self.settings.learn_beta:
            out["beta"] = np.float64(self.engine.beta)
        return out

    def kept(self) -> tuple[Arrays, dict[str, Any]]:
        """A draw and its statistics (`stat_shapes`)."""
        return {"topics": self.draw()}, {"passes": self.passes, **self.hyper()}

    def state(self) -> Arrays:
        """Arrays from which `restore` resumes the chain exactly; they are not copied and valid until the next step."""
        return {
            **self.engine.state(),
            "supply": self.batches.state(),
            "steps": np.array([self.step], np.int64),
        }

    def restore(self, state: Arrays) -> None:
        """Restore the chain from `state`."""
        self.engine.restore(state)
        self.batches.restore(state["supply"])
        self.step = int(state["steps"][0])


def stat_shapes(settings: Settings) -> dict[str, tuple[int, ...]]:
    """Shapes of the statistics of each draw: passes over the corpus, and learned hyper-parameters."""
    alpha = {"alpha": (settings.num_topics,)} if settings.learn_alpha else {}
    return {"passes": (), **alpha, **({"beta": ()} if settings.learn_beta else {})}


# -- from a corpus and settings to posterior draws of topics


_ARRAY_EPOCHS = 200
"""Default passes of whole-array chains with memory, which need more of them and are much faster."""
_USUAL_TOKENS, _LEAST_EPOCHS, _MOST_EPOCHS = 150_000_000, 20, 400
"""Default length of other chains with memory, in token-samples; and the limits of their passes."""
_DRAWN_NUMBERS, _LEAST_DRAWS, _MOST_DRAWS = 1 << 24, 20, 100
"""Numbers in all draws of a chain, so that making them takes a small part of the time; limits of the draws."""


def usual_draws(num_topics: int, num_words: int) -> int:
    """The default number of draws of a chain: 100, and fewer of large models, but at least 20.

    Examples
    --------
    >>> usual_draws(20, 5_000), usual_draws(50, 7_000), usual_draws(100, 20_000)
    (100, 47, 20)
    """
    return min(max(_DRAWN_NUMBERS // (num_topics * num_words), _LEAST_DRAWS), _MOST_DRAWS)


def check_length(
    num_steps: int | None,
    num_epochs: float | None,
    max_seconds: float | None,
    corpus: Corpus | DocumentStream,
    settings: Settings,
    wanted: tuple[int, float, int | None],
) -> fits.Length:
    """Check that at most one of the three is given; passes are over all documents, after those of the growth.

    `wanted` is `num_samples`, `num_burnin` and `thin`, which determine the length if it is not given.
    """
    batch, num_documents = settings.batch_size, corpus.num_documents
    first = growth_steps(settings.growth, batch)
    before = first + -(-num_documents // batch) if first else 0
    return fits.check_length(
        num_steps,
        num_epochs,
        max_seconds,
        num_rows=num_documents,
        batch_size=batch,
        first_steps=first,
        planned_steps=fits.planned_steps(*wanted, before),
        default_epochs=_usual_epochs(corpus, settings),
    )


def _usual_epochs(corpus: Corpus | DocumentStream, settings: Settings) -> int:
    """The default number of passes: small corpora need more of them, and can afford them."""
    if settings.memory == "none" or isinstance(corpus, DocumentStream):
        return _LEAST_EPOCHS
    if settings.by_arrays:
        return _ARRAY_EPOCHS
    return min(max(round(_USUAL_TOKENS / max(corpus.num_tokens, 1)), _LEAST_EPOCHS), _MOST_EPOCHS)


class Task(NamedTuple):
    """Definition of a fit, without the options of its execution."""

    corpus: Corpus | DocumentStream
    settings: Settings
    num_chains: int
    seed: int
    length: fits.Length
    num_samples: int
    num_burnin: float
    """Steps (int), or a fraction of the run (float)."""
    thin: int | None
    growth_asked: str | Sequence[tuple[int, int]] | None = None
    """The value passed by the user."""
    counting: Counting | None = None
    """Makes the local steps, see `stochastic_chain.Here`; does not affect the draws."""
    start: Start | None = None
    """Where the chains start, if they continue from an earlier fit."""
    guide: Guide | None = None
    """Seed words and labels."""
    chosen: str = ""
    """What was chosen, in one line."""

    def with_growth(self, growth: Growth) -> Task:
        """A copy with other stages."""
        return self._replace(settings=dataclasses.replace(self.settings, growth=growth))


def fit(task: Task, **how: Any) -> tuple[Run, Reached]:
    """Run the chains; `how` are the arguments of `run_fit`. The run, and where the chains ended."""
    begun = task
    if task.start is not None:
        begun = task.with_growth(task.start.growth)
    elif task.length.num_steps is not None:  # at most half of a run of given length is growth
        growth, batch_size = task.settings.growth, task.settings.batch_size
        begun = task.with_growth(shortened_growth(growth, task.length.num_steps / 2, batch_size))
    made: list[TopicChain] = []

    def as_stored(was: dict[str, Any]) -> fits.Fit:
        return _fit(task.with_growth(tuple((size, passes) for size, passes in was["growth"])), made)

    asked = _fit(begun, made)
    run = fits.run_fit(dataclasses.replace(asked, as_stored=as_stored), **how)
    if how.get("store") is not None:
        return run, Reached(run.configuration, None, os.path.abspath(how["store"]))
    return run, Reached(run.configuration, fits.HostChains(made, asked.spec).save())


def reached_online(chains: list[TopicChain], num_documents: int, seed: int) -> Reached:
    """Where the chains of `partial_fit` are, after `num_documents` documents."""
    spec = fits.Spec({}, {})
    run = {"num_chains": len(chains), "num_rows": num_documents, "seed": seed}
    configuration = chains[0].settings.as_json() | run | {"num_words": chains[0].vocabulary_size}
    return Reached(configuration, fits.HostChains(chains, spec).save())


def _fit(task: Task, made: list[TopicChain]) -> fits.Fit:
    """The fit of a task; `made` becomes the list of its chains."""
    settings, corpus = task.settings, task.corpus
    steps_of_a_pass = -(-corpus.num_documents // settings.batch_size)
    growing_steps = growth_steps(settings.growth, settings.batch_size) if task.start is None else 0

    def make_chains() -> list[TopicChain]:
        made[:] = _chains(task)
        return made

    def end_growth(chains: Sequence[TopicChain]) -> int:
        """Switch all chains to all documents."""
        under_way = any(chain.batches.growing for chain in chains)
        for chain in chains:
            chain.batches.finish_growth()
        return steps_of_a_pass if under_way else 0

    return fits.Fit(
        KIND,
        {
            **settings.as_json(),
            "growth_asked": encode(task.growth_asked),
            "num_words": int(corpus.vocabulary_size),
            **({} if task.start is None else {"continued": task.start.name}),
            **({} if task.guide is None else {"guide": task.guide.as_json()}),
        },
        corpus.fingerprint,
        corpus.num_documents,
        fits.Spec.of({"topics": (settings.num_topics, corpus.vocabulary_size)}, stat_shapes(settings)),
        make_chains,
        task.num_chains,
        task.num_samples,
        task.seed,
        task.length,
        task.num_burnin,
        task.thin,
        # After its growth a chain visits all documents once: tokens of discarded topics have none until then.
        first_steps=growing_steps + steps_of_a_pass if growing_steps else 0,
        after_clock=end_growth,
        chosen=task.chosen,
    )


def _chains(task: Task) -> list[TopicChain]:
    corpora: Sequence[Corpus | DocumentStream] = [task.corpus] * task.num_chains
    if isinstance(task.corpus, DocumentStream):
        corpora = task.corpus.copies(task.num_chains)
    blocks = None
    if task.settings.by_arrays and task.settings.memory == "documents":
        assert isinstance(task.corpus, Corpus)
        blocks = Blocks(task.corpus, task.seed, task.settings.growth)  # one copy for all chains
    chains = [
        TopicChain(corpus, task.settings, task.seed, chain, task.counting, blocks, task.guide)
        for chain, corpus in enumerate(corpora)
    ]
    if task.start is not None:
        for number, chain in enumerate(chains):
            task.start.place(chain, number, corpora[number])
    if blocks is not None and task.length.max_seconds is not None:
        chains[0].engine.compile()
    return chains


# -- A fitted topic model on disk


KIND = fits.Kind("LDA", "a topic model", "lda")


def save(
    draws: np.ndarray | StoredArray,
    stats: dict[str, np.ndarray],
    settings: Settings,
    extra: dict[str, Any],
    path: str | os.PathLike[str],
    overwrite: bool,
    reached: Reached | None = None,
) -> None:
    """Save draws from memory as a store for `load` and `sc.load`; with `reached`, the model can continue later."""
    configuration = settings.as_json() | {"num_words": draws.shape[-1]}
    arrays = None
    if reached is not None:
        was, arrays = reached.configuration, reached.state()
        configuration |= {name: was[name] for name in _OF_A_FIT if name in was}
    fits.save(KIND, {"topics": draws}, stats, configuration, extra, path, overwrite, arrays)


_OF_A_FIT = ("growth", "spare_topics", "starts", "device", "data", "seed", "num_rows", "guide")


class Loaded(NamedTuple):
    """A stored fit."""

    draws: Any
    """(chain, draw, topic, word), on disk."""
    stats: dict[str, Any]
    extra: dict[str, Any]
    configuration: dict[str, Any]
    reached: Reached


def load(path: str | os.PathLike[str]) -> Loaded:
    """Load a stored fit."""
    loaded = fits.load(KIND, path)
    reached = Reached(loaded.configuration, None, os.path.abspath(path))
    return Loaded(loaded.draws["topics"], *loaded[1:], reached)


def as_stored(store: str | os.PathLike[str] | None, params: dict[str, Any]) -> dict[str, Any]:
    """Choices that a resumed fit makes again: the sampler, the batch, and the host, even if there is an accelerator."""
    if store is None or not holds_run(store):
        return {}
    record, _ = records.read(open_stored(store))
    found = {}
    if params["device"] == "auto" and record.configuration.get("device", HOST) == HOST:
        found["device"] = HOST
    if params["sampler"] == "auto" and "sampler" in record.configuration:
        found["sampler"] = record.configuration["sampler"]
    if params["batch_size"] is None and "batch_size" in record.configuration:
        found["batch_size"] = record.configuration["batch_size"]
    return found
