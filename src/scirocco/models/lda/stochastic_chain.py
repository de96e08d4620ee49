"""Chains without memory: a batch estimates the counts of the corpus, and a sampler of topics follows the estimates."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from scirocco.models.fits.chains import TopicPurpose
from scirocco.models.lda import langevin, local
from scirocco.models.lda.document_batches import Batches, Delivery
from scirocco.models.lda.langevin import CentredTopics
from scirocco.models.lda.settings import DEFAULT_STEP_SIZE, Settings
from scirocco.models.lda.topics import Arrays, ControlledTopics, LazyTopics, Topics
from scirocco.samplers import schedules

SeedWords = Callable[[int], tuple[int, int]]


class Counting(Protocol):
    """What makes the local step of a batch: `Here`, or workers (`sharded.Shards`)."""

    def prepare(self, delivery: Delivery) -> Any:
        """Documents in the form that `counts` takes; under `distinct` the words that they have."""

    def counts(self, batch: Any, weights: np.ndarray, seed: tuple[int, int]) -> np.ndarray:
        """Counts of these words in the topics, (words, topics), float32."""


class StochasticChain:
    """The topics of one chain, moved by what batches say; `counting` makes the local step (see `Here`)."""

    def __init__(self, num_words: int, settings: Settings, seed: int, counting: Counting | None = None):
        self.settings = settings
        self.counting = Here(settings) if counting is None else counting
        size, threads = (num_words, settings.num_topics), settings.num_threads
        self.topics: Topics
        if settings.sampler == "scir":
            self.topics = LazyTopics.begin(*size, settings.beta, seed, threads)
        elif settings.sampler == "scir_cv":
            self.topics = ControlledTopics.begin(*size, settings.beta, seed, threads)
        else:
            options: dict[str, Any] = dict(settings.options)
            self.topics = langevin.begin(settings.sampler, *size, settings.beta, seed, threads, **options)
        self.steps = Steps(settings.sampler, settings.step_size, *size, settings.steps_per_exchange)

    def step(self, batches: Batches, number: int, seed: SeedWords) -> None:
        """Renew the reference if it is time, then one batch."""
        settings, topics, counts = self.settings, self.topics, self.counting.counts
        if self._refers(number):
            self._refer(batches, number, seed)
        delivery = batches.next(settings.batch_size)
        batch = self.counting.prepare(delivery)
        if not len(batch.distinct):
            return
        found = counts(batch, topics.read(batch.distinct, seed(TopicPurpose.READ)), seed(TopicPurpose.LOCAL))
        if isinstance(topics, CentredTopics) and topics.centred:
            # the same random numbers at the centre, so that most of the noise is common to both
            topics.control(
                batch.distinct, counts(batch, topics.read_centre(batch.distinct), seed(TopicPurpose.LOCAL))
            )
        num_documents = len(delivery.documents)
        time = self.steps.time(number, found, num_documents, batches.total)
        topics.update(batch.distinct, found, batches.total / num_documents, time, seed(TopicPurpose.UPDATE))

    def _refers(self, number: int) -> bool:
        if isinstance(self.topics, CentredTopics):
            return self.topics.due(self.settings.refresh_every)
        return isinstance(self.topics, ControlledTopics) and number % self.settings.refresh_every == 0

    def _refer(self, batches: Batches, number: int, seed: SeedWords) -> None:
        """A reference from a larger batch."""
        topics = self.topics
        assert isinstance(topics, (ControlledTopics, CentredTopics))
        delivery = batches.reference(self.settings.refresh_size, number)
        batch = self.counting.prepare(delivery)
        weights = topics.read(batch.distinct, seed(TopicPurpose.READ))
        found = self.counting.counts(batch, weights, seed(TopicPurpose.REFERENCE))
        topics.refer(batch.distinct, found, batches.total / len(delivery.documents))

    def draw(self, seed: tuple[int, int]) -> np.ndarray:
        """ω at the present time, (topics, words)."""
        return self.topics.draw(seed)

    def mean(self, seed: tuple[int, int]) -> np.ndarray:
        """No better point than a draw is at hand."""
        return self.topics.draw(seed)

    def state(self) -> Arrays:
        """Arrays from which `restore` goes on bit for bit."""
        topics = {f"topics.{name}": value for name, value in self.topics.state().items()}
        return {**topics, **self.steps.state()}

    def restore(self, state: Arrays) -> None:
        """Take up where `state` was taken."""
        self.topics.restore_state(
            {name.partition(".")[2]: value for name, value in state.items() if name.startswith("topics.")}
        )
        self.steps.restore_state(state)


# -- the counts of a batch given the topics, in this process


class Here:
    """The local step of all documents of a batch, shared among threads.

    `prepare` says which words a batch has, under `distinct`; `counts` takes what `prepare` gave and the topics of these
    words. `sharded.Shards` does the same on other processes.
    """

    def __init__(self, settings: Settings):
        self.settings = settings

    def prepare(self, delivery: Delivery) -> local.Batch:
        """Documents as tokens."""
        return local.from_counts(*delivery.rows, delivery.documents)

    def counts(self, batch: local.Batch, weights: np.ndarray, seed: tuple[int, int]) -> np.ndarray:
        """(words, topics), float32."""
        settings = self.settings
        if settings.local == "parallel":
            return _parallel(batch, weights, settings, seed)
        return swept(batch, weights, settings, seed, settings.num_threads).counts


def swept(
    batch: local.Batch,
    weights: np.ndarray,
    settings: Settings,
    seed: tuple[int, int],
    num_threads: int | None,
    whole: bool = False,
) -> local.Local:
    """The compiled local step; `whole`: sums as whole numbers, of which `unit` makes counts."""
    if settings.local == "cvb0":
        return local.cvb0(
            batch, weights, settings.alpha, iterations=settings.sweeps, num_threads=num_threads, whole=whole
        )
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


def unit(settings: Settings) -> float:
    """What one of the whole numbers of `swept` is worth."""
    return local.CVB0_UNIT if settings.local == "cvb0" else 1.0 / (settings.sweeps - settings.burn_in)


def _parallel(
    batch: local.Batch, weights: np.ndarray, settings: Settings, seed: tuple[int, int]
) -> np.ndarray:
    """The local step on an accelerator; shapes are rounded up, so that few are compiled."""
    import jax

    from scirocco.models.lda import local_jax

    index, count = local_jax.padded(batch)
    rows = -(-len(weights) // 1024) * 1024
    table = np.empty((rows, weights.shape[1]), np.float32)
    table[: len(weights)], table[len(weights) :] = weights, 1.0  # the rest are words of no document
    words = jax.numpy.asarray(np.array(seed, np.uint64).astype(np.uint32))
    key = jax.random.wrap_key_data(words, impl="threefry2x32")
    found: Any = local_jax.gibbs_parallel(
        key,
        index,
        count,
        table,
        settings.alpha.astype(np.float32),
        sweeps=settings.sweeps,
        burn_in=settings.burn_in,
    )
    return np.asarray(found.counts)[: len(weights)]


# -- step sizes of chains without memory: as given, or SCIR's schedule carried over to the other samplers
#
# A step of SCIR renews the share 1 - e^{-h} of a topic, whatever the corpus. The others follow a force that grows with
# it. Where θ_kw is about 1, as at the start, a word in the expanded mean is drawn back at the rate 1 + n/V, if n is the
# number of tokens for each topic. SGRLD and SGLD renew about as much as SCIR with the first of these steps, SGRHMC and
# SGHMC, whose ε²/2 is a time, with the second:
#
# .. math:: ε = h / (1 + n/V), \qquad ε = \sqrt{2h / (1 + n/V)}
#
# In the expanded natural parametrisation θ is the logarithm, and a batch moves it by as much as ε n_kw. A leap is
# worse than a slow start (e^θ throws it back, beyond return), so the most frequent word of a topic decides, and with
# few counts the prior: ε = 4h / (10 + max n_kw).
#
# How many tokens there are, in all and of a topic's first word, is the mean over the batches so far: an adaptation that
# dies out, and the same for a corpus, a stream and `partial_fit`.


_LEAP = 4.0  # where h is 1; twice as much is too long for some corpora
_PRIOR = 10.0  # about the largest e^θ among thousands at the start


class Steps:
    """The step sizes of one chain.

    Parameters
    ----------
    sampler
        Its name.
    given
        A schedule in the sampler's own unit. None: by the corpus (for those of `langevin`).
    num_words, num_topics
        V and K.
    together
        Steps of the schedule that one batch drives. Given the counts, steps of the CIR process make one of their
        length, exactly: so it is made as one.
    """

    def __init__(
        self,
        sampler: str,
        given: schedules.Schedule | None,
        num_words: int,
        num_topics: int,
        together: int = 1,
    ):
        self.sampler, self.given, self.together = sampler, given, together
        self._size = num_words, num_topics
        self.seen = np.zeros(3)
        """Batches; sums over them of the tokens a document, and of the largest count n_kw a document."""

    def time(self, number: int, counts: np.ndarray, num_documents: int, total: int) -> float:
        """Of step `number`, given what a batch of so many documents has found, of a corpus of `total`."""
        if self.given is not None:
            first = number * self.together
            return sum(float(self.given(step)) for step in range(first, first + self.together))
        h = float(DEFAULT_STEP_SIZE(number))
        self.seen += 1.0, counts.sum(dtype=np.float64) / num_documents, counts.max() / num_documents
        _, tokens, largest = self.seen * (total / self.seen[0])
        if self.sampler in ("sgld_natural", "sgld_cv"):
            return _LEAP * h / (_PRIOR + largest)
        num_words, num_topics = self._size
        step = h / (1.0 + tokens / (num_topics * num_words))
        return math.sqrt(2.0 * step) if self.sampler in ("sgrhmc", "sghmc") else step

    def state(self) -> Arrays:
        """What batches have shown, if it is used."""
        return {"seen": self.seen.copy()} if self.given is None else {}

    def restore_state(self, arrays: Arrays) -> None:
        """Go on from what `state` gave."""
        if self.given is None:
            self.seen = arrays["seen"].copy()
