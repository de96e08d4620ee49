"""Chains without memory: a batch estimates the counts of the corpus, and a sampler of topics follows the estimates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from scirocco.models.lda import langevin
from scirocco.models.lda.counting import Here
from scirocco.models.lda.langevin_natural import CentredTopics
from scirocco.models.lda.settings import Settings
from scirocco.models.lda.steps import Steps
from scirocco.models.lda.supply import Supply
from scirocco.models.lda.topics import Arrays, ControlledTopics, LazyTopics, Topics

SeedWords = Callable[[int], tuple[int, int]]
_READ, _UPDATE, _LOCAL, _REFERENCE, _DRAW = 1, 2, 3, 4, 5  # purposes of random numbers


class Estimated:
    """The topics of one chain, moved by what batches say; `counting` makes the local step (see `counting.Here`)."""

    def __init__(self, num_words: int, settings: Settings, seed: int, counting: Any = None):
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

    def step(self, supply: Supply, number: int, seed: SeedWords) -> None:
        """Renew the reference if it is time, then one batch."""
        settings, topics, counts = self.settings, self.topics, self.counting.counts
        if self._refers(number):
            self._refer(supply, number, seed)
        delivery = supply.next(settings.batch_size)
        batch = self.counting.prepare(delivery)
        if not len(batch.distinct):
            return
        found = counts(batch, topics.read(batch.distinct, seed(_READ)), seed(_LOCAL))
        if isinstance(topics, CentredTopics) and topics.centred:
            # the same random numbers at the centre, so that most of the noise is common to both
            topics.control(batch.distinct, counts(batch, topics.read_centre(batch.distinct), seed(_LOCAL)))
        num_documents = len(delivery.documents)
        time = self.steps.time(number, found, num_documents, supply.total)
        topics.update(batch.distinct, found, supply.total / num_documents, time, seed(_UPDATE))

    def _refers(self, number: int) -> bool:
        if isinstance(self.topics, CentredTopics):
            return self.topics.due(self.settings.refresh_every)
        return isinstance(self.topics, ControlledTopics) and number % self.settings.refresh_every == 0

    def _refer(self, supply: Supply, number: int, seed: SeedWords) -> None:
        """A reference from a larger batch."""
        topics = self.topics
        assert isinstance(topics, (ControlledTopics, CentredTopics))
        delivery = supply.reference(self.settings.refresh_size, number)
        batch = self.counting.prepare(delivery)
        weights = topics.read(batch.distinct, seed(_READ))
        found = self.counting.counts(batch, weights, seed(_REFERENCE))
        topics.refer(batch.distinct, found, supply.total / len(delivery.documents))

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
