"""From a corpus and settings to posterior draws of topics: what a topic model says about its fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from scirocco.models import fits
from scirocco.models.lda import growth as growing
from scirocco.models.lda.chain import TopicChain, stat_shapes
from scirocco.models.lda.saved import KIND
from scirocco.models.lda.settings import Settings
from scirocco.models.lda.streams import DocumentStream
from scirocco.run.encoding import encode
from scirocco.run.result import Run


def check_length(
    num_steps: int | None,
    num_epochs: float | None,
    max_seconds: float | None,
    num_documents: int,
    settings: Settings,
    wanted: tuple[int, float, int | None],
) -> fits.Length:
    """At most one of the three; passes are over all documents, those of the growth come before them.

    `wanted` is `num_samples`, `num_burnin` and `thin`, which settle the length where it is not given.
    """
    batch = settings.batch_size
    first = growing.steps(settings.growth, batch)
    before = first + -(-num_documents // batch) if first else 0
    return fits.check_length(
        num_steps,
        num_epochs,
        max_seconds,
        num_rows=num_documents,
        batch_size=batch,
        first_steps=first,
        planned_steps=fits.planned_steps(*wanted, before),
    )


class Task(NamedTuple):
    """A fit: everything but what happens while it runs."""

    corpus: Any
    settings: Settings
    num_chains: int
    seed: int
    length: fits.Length
    num_samples: int
    num_burnin: float
    """Steps (int), or the share of the run (float)."""
    thin: int | None
    growth_asked: Any = None
    """As the user gave it."""
    counting: Any = None
    """What makes the local steps, see `counting.Here`; no part of what is drawn."""

    def with_growth(self, growth: growing.Growth) -> Task:
        """With other stages."""
        return self._replace(settings=dataclasses.replace(self.settings, growth=growth))


def fit(task: Task, **how: Any) -> Run:
    """Run the chains; `how` is the arguments of `run_fit`."""
    begun = task
    if task.length.num_steps is not None:  # at most half of a run of given length goes into its growth
        growth, batch_size = task.settings.growth, task.settings.batch_size
        begun = task.with_growth(growing.within(growth, task.length.num_steps / 2, batch_size))

    def as_stored(was: dict[str, Any]) -> fits.Fit:
        return _fit(task.with_growth(tuple((size, passes) for size, passes in was["growth"])))

    return fits.run_fit(dataclasses.replace(_fit(begun), as_stored=as_stored), **how)


def _fit(task: Task) -> fits.Fit:
    settings, corpus = task.settings, task.corpus
    steps_of_a_pass = -(-corpus.num_documents // settings.batch_size)
    growing_steps = growing.steps(settings.growth, settings.batch_size)

    def end_growth(chains: Sequence[TopicChain]) -> int:
        """All documents from now on, in every chain."""
        under_way = any(chain.supply.growing for chain in chains)
        for chain in chains:
            chain.supply.finish_growth()
        return steps_of_a_pass if under_way else 0

    return fits.Fit(
        KIND,
        {
            **settings.as_json(),
            "growth_asked": encode(task.growth_asked),
            "num_words": int(corpus.vocabulary_size),
        },
        corpus.fingerprint,
        corpus.num_documents,
        fits.Spec.of({"topics": (settings.num_topics, corpus.vocabulary_size)}, stat_shapes(settings)),
        lambda: _chains(task),
        task.num_chains,
        task.num_samples,
        task.seed,
        task.length,
        task.num_burnin,
        task.thin,
        # After its growth a chain visits all documents once: tokens of topics that were given up have none until then.
        first_steps=growing_steps + steps_of_a_pass if growing_steps else 0,
        after_clock=end_growth,
    )


def _chains(task: Task) -> list[TopicChain]:
    corpora = [task.corpus] * task.num_chains
    if isinstance(task.corpus, DocumentStream):
        corpora = task.corpus.copies(task.num_chains)
    return [
        TopicChain(corpus, task.settings, task.seed, chain, task.counting)
        for chain, corpus in enumerate(corpora)
    ]
