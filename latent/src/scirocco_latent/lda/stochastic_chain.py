"""Chains without memory: a batch estimates the counts of the corpus, and a sampler of topics uses the estimates."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from scirocco.diffusions import host
from scirocco.models._core.chain import TopicPurpose
from scirocco.samplers import schedules
from scirocco_latent.lda import langevin, local
from scirocco_latent.lda.document_batches import Batches, Delivery
from scirocco_latent.lda.langevin import CentredTopics
from scirocco_latent.lda.settings import DEFAULT_STEP_SIZE, TopicSettings
from scirocco_latent.lda.topics import Arrays, ControlledTopics, LazyTopics, ReferringTopics, Topics

Array = np.ndarray

SeedWords = Callable[[int], tuple[int, int]]
LOGARITHMIC = ("sgld_natural", "sgld_cv")
"""Samplers whose θ is a logarithm."""


class Counting(Protocol):
    """Interface of the local step of a batch: `Here`, or workers (`sharded.Shards`)."""

    def prepare(self, delivery: Delivery) -> Any:
        """Convert documents to the input of `counts`; attribute `distinct` has their words."""

    def counts(self, batch: Any, weights: Array, seed: tuple[int, int]) -> Array:
        """Counts of the words of the batch in the topics, (words, topics), float32."""


class StochasticChain:
    """The topics of one chain, updated from batches; `counting` makes the local step (see `Here`)."""

    def __init__(self, num_words: int, settings: TopicSettings, seed: int, counting: Counting | None = None):
        self.settings = settings
        self.counting = _counting(num_words, settings) if counting is None else counting
        size, threads = (num_words, settings.num_topics), settings.num_threads
        self.topics: Topics
        if settings.by_arrays:
            from scirocco_latent.lda import array_topics

            kind = array_topics.ArrayTopics if settings.sampler == "scir" else array_topics.ControlledArrayTopics
            self.topics = kind.begin(*size, settings.beta, seed)
        elif settings.sampler == "scir":
            self.topics = LazyTopics.begin(*size, settings.beta, seed, threads)
        elif settings.sampler == "scir_cv":
            self.topics = ControlledTopics.begin(*size, settings.beta, seed, threads)
        else:
            options: dict[str, Any] = dict(settings.options)
            self.topics = langevin.begin(settings.sampler, *size, settings.beta, seed, threads, **options)
        self.steps = StepLengths(settings.sampler, settings.step_size, *size, settings.steps_per_exchange)

    def step(self, batches: Batches, number: int, seed: SeedWords) -> None:
        """Update the reference if one is due, then process one batch."""
        settings, topics, counts = self.settings, self.topics, self.counting.counts
        if self._refers(number):
            self._refer(batches, number, seed)
        delivery = batches.next(settings.batch_size)
        batch = self.counting.prepare(delivery)
        if not len(batch.distinct):
            return
        found = counts(batch, topics.read(batch.distinct, seed(TopicPurpose.READ)), seed(TopicPurpose.LOCAL))
        if isinstance(topics, CentredTopics) and topics.centred:
            # the same random numbers at the centre, so that most of the noise cancels
            topics.control(batch.distinct, counts(batch, topics.read_centre(batch.distinct), seed(TopicPurpose.LOCAL)))
        num_documents = len(delivery.documents)
        time = self.steps.time(number, found, num_documents, batches.total)
        topics.update(batch.distinct, found, batches.total / num_documents, time, seed(TopicPurpose.UPDATE))

    def _refers(self, number: int) -> bool:
        if isinstance(self.topics, CentredTopics):
            return self.topics.due(self.settings.refresh_every)
        return isinstance(self.topics, ReferringTopics) and number % self.settings.refresh_every == 0

    def _refer(self, batches: Batches, number: int, seed: SeedWords) -> None:
        """Compute a reference from a larger batch."""
        topics = self.topics
        assert isinstance(topics, (ReferringTopics, CentredTopics))
        delivery = batches.reference(self.settings.refresh_size, number)
        batch = self.counting.prepare(delivery)
        weights = topics.read(batch.distinct, seed(TopicPurpose.READ))
        found = self.counting.counts(batch, weights, seed(TopicPurpose.REFERENCE))
        topics.refer(batch.distinct, found, batches.total / len(delivery.documents))

    def extend(self, num_words: int, num_new: int, seed: tuple[int, int]) -> None:
        """Add `num_new` words, which makes `num_words`: θ ~ Gamma(1, 1), as for all words at the start."""
        shapes = np.broadcast_to(np.float32(1.0), (num_new, self.settings.num_topics))
        self.topics.extend(host.gamma(seed, shapes, num_threads=1))
        if self.settings.by_arrays:
            self.counting = _counting(num_words, self.settings)

    def draw(self, seed: tuple[int, int]) -> Array:
        """Current ω, (topics, words)."""
        return self.topics.draw(seed)

    def mean(self, seed: tuple[int, int]) -> Array:
        """A draw: no better point estimate is available."""
        return self.topics.draw(seed)

    def sizes(self) -> Array:
        """Sums of θ over the words: given n_k tokens of a topic, about βV + n_k."""
        theta = self.topics.state()["theta"]
        if self.settings.sampler in LOGARITHMIC:
            theta = np.exp(theta)
        return np.asarray(theta.sum(axis=0, dtype=np.float64))

    def state(self) -> Arrays:
        """Arrays from which `restore` resumes exactly."""
        topics = {f"topics.{name}": value for name, value in self.topics.state().items()}
        return {**topics, **self.steps.state()}

    def restore(self, state: Arrays) -> None:
        """Restore the state from `state`."""
        self.topics.restore_state(
            {name.partition(".")[2]: value for name, value in state.items() if name.startswith("topics.")}
        )
        self.steps.restore_state(state)


# -- the counts of a batch given the topics, in this process


def _counting(num_words: int, settings: TopicSettings) -> Counting:
    if not settings.by_arrays:
        return Here(settings)
    from scirocco_latent.lda.array_topics import OnDevice

    return OnDevice(num_words, settings)


class Here:
    """The local step of all documents of a batch in this process, with several threads.

    `prepare` returns a batch with its words in `distinct`; `counts` takes this batch and the topics of these words.
    `sharded.Shards` does the same in other processes.
    """

    def __init__(self, settings: TopicSettings):
        self.settings = settings

    def prepare(self, delivery: Delivery) -> local.TokenBatch:
        """Documents as tokens."""
        return local.from_counts(*delivery.rows, delivery.documents)

    def counts(self, batch: local.TokenBatch, weights: Array, seed: tuple[int, int]) -> Array:
        """Counts (words, topics), float32."""
        return swept(batch, weights, self.settings, seed, self.settings.num_threads).counts


def swept(
    batch: local.TokenBatch,
    weights: Array,
    settings: TopicSettings,
    seed: tuple[int, int],
    num_threads: int | None,
    whole: bool = False,
) -> local.LocalCounts:
    """The compiled local step; `whole`: integer sums, which `unit` converts to counts."""
    return local.gibbs(
        seed,
        batch,
        weights,
        settings.alpha,
        sweeps=settings.sweeps,
        burn_in=settings.burn_in,
        num_threads=num_threads,
        whole=whole,
    )


def unit(settings: TopicSettings) -> float:
    """Factor from the integer sums of `swept` to counts."""
    return 1.0 / (settings.sweeps - settings.burn_in)


# -- step sizes of chains without memory: as given, or SCIR's schedule converted for the other samplers
#
# A step of SCIR renews the fraction 1 - e^{-h} of a topic for any corpus. The forces of the others grow with the size
# of the corpus. Where θ_kw is about 1, as at the start, a word in the expanded mean is pulled back at the rate 1 + n/V,
# if n is the number of tokens per topic. SGRLD and SGLD renew about as much as SCIR with the first of these steps,
# SGRHMC and SGHMC, whose ε²/2 is a time, with the second:
#
# .. math:: ε = h / (1 + n/V), \qquad ε = \sqrt{2h / (1 + n/V)}
#
# In the expanded natural parametrisation θ is the logarithm, and a batch moves it by as much as ε n_kw. Too long a
# step is worse than a slow start (e^θ then throws θ back irrecoverably), so the most frequent word of a topic
# determines the step, and with few counts the prior: ε = 4h / (10 + max n_kw).
#
# The numbers of tokens, in total and of a topic's most frequent word, are means over the batches so far: a diminishing
# adaptation, and the same for a corpus, a stream and `partial_fit`.


_LEAP = 4.0  # for h = 1; twice as much is too large for some corpora
_PRIOR = 10.0  # about the largest e^θ among thousands at the start


class StepLengths:
    """The step sizes of one chain: a schedule in the units of the sampler, or (None) chosen for the corpus.

    `together` is the number of steps of the schedule per batch. Given the counts, steps of the CIR process are exactly
    equivalent to one step of their total length, which is made instead.
    """

    def __init__(
        self, sampler: str, given: schedules.Schedule | None, num_words: int, num_topics: int, together: int = 1
    ):
        self.sampler, self.given, self.together = sampler, given, together
        self._size = num_words, num_topics
        self.seen = np.zeros(3)
        """Number of batches; sums over them of the tokens per document, and of the largest count n_kw per document."""

    def time(self, number: int, counts: Array, num_documents: int, total: int) -> float:
        """Step size of step `number`, given the counts of a batch of `num_documents` from a corpus of `total`."""
        if self.given is not None:
            first = number * self.together
            return sum(float(self.given(step)) for step in range(first, first + self.together))
        h = float(DEFAULT_STEP_SIZE(number))
        self.seen += 1.0, counts.sum(dtype=np.float64) / num_documents, counts.max() / num_documents
        _, tokens, largest = self.seen * (total / self.seen[0])
        if self.sampler in LOGARITHMIC:
            return _LEAP * h / (_PRIOR + largest)
        num_words, num_topics = self._size
        step = h / (1.0 + tokens / (num_topics * num_words))
        return math.sqrt(2.0 * step) if self.sampler in ("sgrhmc", "sghmc") else step

    def state(self) -> Arrays:
        """The sums over batches, if they are used."""
        return {"seen": self.seen.copy()} if self.given is None else {}

    def restore_state(self, arrays: Arrays) -> None:
        """Restore the sums from `state`."""
        if self.given is None:
            self.seen = arrays["seen"].copy()
