"""From a corpus and settings to posterior draws of topics: length of the run, store, resume."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from scirocco import _checks
from scirocco._version import __version__
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models.lda import growth as growing
from scirocco.models.lda import saved
from scirocco.models.lda.chain import TopicChain
from scirocco.models.lda.chains import TopicChains, stat_shapes
from scirocco.models.lda.settings import Settings
from scirocco.models.lda.streams import DocumentStream
from scirocco.run import records
from scirocco.run.encoding import encode
from scirocco.run.keeping import Keeping
from scirocco.run.progress import Bar, Callback, Clock, Report
from scirocco.run.result import Run
from scirocco.run.session import Plan, Session
from scirocco.run.sinks import Kept, MemorySink, Sink, StoreSink, store_groups
from scirocco.store import Store, holds_run, refuse_unless_free

_ENDLESS = 1 << 30
DEFAULT_EPOCHS = 20


class Length(NamedTuple):
    """How long to run: steps, or seconds."""

    num_steps: int | None
    max_seconds: float | None
    is_default: bool = False
    """Whether nothing was said."""


def check_length(
    num_steps: Any,
    num_epochs: Any,
    max_seconds: Any,
    num_documents: int,
    batch: int,
    growth: growing.Growth = (),
) -> Length:
    """Exactly one of the three; passes are over all documents, those of the growth come before them."""
    given = {"num_steps": num_steps, "num_epochs": num_epochs, "max_seconds": max_seconds}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise InvalidValueError(
            f"give one of num_steps, num_epochs and max_seconds, not {' and '.join(named)}."
        )
    if num_steps is not None:
        return Length(_checks.positive_int(num_steps, "num_steps"), None)
    if max_seconds is not None:
        _checks.positive(max_seconds, "max_seconds")
        return Length(None, float(max_seconds))
    epochs = DEFAULT_EPOCHS if num_epochs is None else num_epochs
    _checks.positive(epochs, "num_epochs")
    steps = growing.steps(growth, batch) + math.ceil(float(epochs) * num_documents / batch)
    return Length(max(1, steps), None, num_epochs is None)


class Task(NamedTuple):
    """A fit: everything but what happens while it runs."""

    corpus: Any
    settings: Settings
    num_chains: int
    num_draws: int
    seed: int
    length: Length
    burn_in: float
    """The share of the run that is thrown away."""
    growth_asked: Any = None
    """As the user gave it."""


def fit(
    task: Task,
    *,
    store: str | os.PathLike[str] | None,
    resume: bool,
    overwrite: bool,
    callbacks: Sequence[Callback],
    progress: bool,
    extra: dict[str, Any],
) -> Run:
    """Run the chains; `extra` is remembered with a store."""
    clock = Clock()
    if store is not None and resume and holds_run(store):
        return _go_on(task, store, callbacks, progress, clock)
    if store is not None:
        refuse_unless_free(store, overwrite)
    if task.length.num_steps is not None:  # at most half of a run of given length goes into its growth
        grown = growing.within(task.settings.growth, task.length.num_steps / 2, task.settings.batch_size)
        task = task._replace(settings=dataclasses.replace(task.settings, growth=grown))
    chains = _chains(task)
    if task.length.max_seconds is not None:
        plan, callbacks = _measured_plan(task, chains, callbacks, progress)
    else:
        plan = _plan(task, task.length.num_steps or 1)
    record = _record(task, plan, extra)
    sink: Sink = MemorySink()
    if store is not None:
        made = Store.create(store, store_groups(_spec(task)), task.num_chains, record, overwrite=overwrite)
        sink = StoreSink(made, _spec(task))
    return _drive(chains, plan, sink, callbacks, progress, record, clock, None)


def _chains(task: Task) -> TopicChains:
    corpora = [task.corpus] * task.num_chains
    if isinstance(task.corpus, DocumentStream):
        corpora = task.corpus.copies(task.num_chains)
    made = [TopicChain(corpus, task.settings, task.seed, chain) for chain, corpus in enumerate(corpora)]
    return TopicChains(made)


def _plan(task: Task, num_steps: int) -> Plan:
    """Draws spread over the part of the run that is kept, the last at its end; none before all documents are used."""
    growing_steps = growing.steps(task.settings.growth, task.settings.batch_size)
    if growing_steps:
        growing_steps += _steps_of_a_pass(task)
    left = max(1, min(int(num_steps * (1.0 - task.burn_in)), num_steps - growing_steps))
    draws = max(1, min(task.num_draws, left))
    thin = left // draws
    burn_in = max(0, num_steps - draws * thin)
    return Plan(
        draws, burn_in, thin, task.num_chains, task.seed, Keeping.checked(False, True, None), "threads"
    )


def _measured_plan(
    task: Task, chains: TopicChains, callbacks: Sequence[Callback], progress: bool
) -> tuple[Plan, Sequence[Callback]]:
    """For a run of given seconds: burn-in by the clock, then as many steps as its speed lets expect."""
    seconds = task.length.max_seconds or 0.0
    first = seconds * task.burn_in
    keeping = Keeping.checked(False, True, None)
    long = Plan(1, _ENDLESS, 1, task.num_chains, task.seed, keeping, "threads")
    bar, watch = Bar(_ENDLESS, progress), Stopwatch(first)
    try:
        session = Session(chains, long, MemorySink(), (*callbacks, watch), bar, None)
        session.drive()
    finally:
        bar.close()
    if not watch.stopped:
        if session.status == "interrupted":
            raise KeyboardInterrupt
        raise InvalidValueError("the run was stopped in its burn-in, before its first draw.")
    rate = session.step / max(watch.elapsed, 1e-9)
    left = max(1, int(rate * (seconds - watch.elapsed)))
    again = _steps_of_a_pass(task) if chains.finish_growth() else 0  # its growth was cut short
    draws = max(1, min(task.num_draws, left - again))
    thin = max(1, (left - again) // draws)
    plan = Plan(draws, again, thin, task.num_chains, task.seed, keeping, "threads")
    return plan, (*callbacks, Stopwatch(seconds - watch.elapsed, again + thin))


def _steps_of_a_pass(task: Task) -> int:
    """After its growth a chain visits all documents once before the first draw.

    Tokens of topics that were given up have none until then.
    """
    return -(-task.corpus.num_documents // task.settings.batch_size)


class Stopwatch:
    """A callback that ends a run after so many seconds, but not before a step."""

    def __init__(self, seconds: float, least_steps: int = 0):
        self.seconds, self.least_steps = seconds, least_steps
        self.elapsed, self.stopped = 0.0, False

    def __call__(self, report: Report) -> None:
        """Look at the clock."""
        self.elapsed = report.elapsed
        if report.elapsed >= self.seconds and report.step >= self.least_steps:
            self.stopped = True
            report.stop()


def _spec(task: Task) -> Kept:
    shape = (task.settings.num_topics, task.corpus.vocabulary_size)
    topics = {"topics": jax.ShapeDtypeStruct(shape, np.float32)}
    shapes = stat_shapes(task.settings)
    stats = {name: jax.ShapeDtypeStruct(shape, np.float64) for name, shape in shapes.items()}
    return Kept(topics, None, stats, {})


def _record(task: Task, plan: Plan, extra: dict[str, Any]) -> dict[str, Any]:
    configuration = {
        "model": "LDA",
        **task.settings.as_json(),
        "growth_asked": encode(task.growth_asked),
        "num_rows": int(task.corpus.num_documents),
        "dimension": int(task.settings.num_topics * task.corpus.vocabulary_size),
        "num_words": int(task.corpus.vocabulary_size),
        "data": task.corpus.fingerprint(),
        "num_samples": plan.num_samples,
        "num_burnin": plan.num_burnin,
        "thin": plan.thin,
        "num_chains": plan.num_chains,
        "seed": plan.seed,
        "versions": {"scirocco": __version__, "numpy": np.__version__},
    }
    return saved.document(_spec(task).draws, configuration, extra)


def _drive(
    chains: TopicChains,
    plan: Plan,
    sink: Sink,
    callbacks: Sequence[Callback],
    progress: bool,
    record: dict[str, Any],
    clock: Clock,
    reached: dict[str, Any] | None,
) -> Run:
    bar = Bar(plan.num_steps, progress)
    timing: dict[str, Any] = {"setup": clock.read()}
    try:
        session = Session(chains, plan, sink, tuple(callbacks), bar, None)
        if reached is not None:
            session.take_up(reached)
        session.drive()
        kept = sink.collect()
        return Run(
            kept.draws,
            None,
            kept.stats,
            record["configuration"],
            {},
            timing | session.timing,
            session.status,
            session.scores,
            {},
            {},
            sink.path,
        )
    finally:
        bar.close()
        sink.close()


def _go_on(
    task: Task,
    path: str | os.PathLike[str],
    callbacks: Sequence[Callback],
    progress: bool,
    clock: Clock,
) -> Run:
    """Take up a stored fit; refuses another corpus or other settings."""
    store = Store.open(path)
    try:
        record, reached = store.record, store.progress
        was = record["configuration"]
        if was.get("model") != "LDA":
            raise InvalidTypeError(f"the run in {path} is not one of a topic model.")
        plan = Plan(
            was["num_samples"],
            was["num_burnin"],
            was["thin"],
            was["num_chains"],
            was["seed"],
            Keeping.checked(False, True, None),
            "threads",
        )
        if task.length.max_seconds is not None:
            callbacks = (*callbacks, Stopwatch(task.length.max_seconds))
        grown = tuple((size, passes) for size, passes in was["growth"])  # as it was cut
        task = task._replace(settings=dataclasses.replace(task.settings, growth=grown))
        asked = plan._replace(num_chains=task.num_chains, seed=task.seed)
        now = _record(task, asked, {})["configuration"]
        given = {name: now.get(name) for name in set(was) - {"versions"}}
        stored = {name: was[name] for name in given}
        records.refuse_differences(stored, given, store.path, "these arguments")
        _refuse_another_length(task, plan, path)
        chains = _chains(task)
        chains.restore({k: v for k, v in store.read_state().items() if not k.startswith("result:")})
    except BaseException:
        store.close()
        raise
    sink = StoreSink(store, _spec(task))
    return _drive(chains, plan, sink, callbacks, progress, record, clock, reached)


def _refuse_another_length(task: Task, plan: Plan, path: str | os.PathLike[str]) -> None:
    if task.length.num_steps is None or task.length.is_default:
        return
    if _plan(task, task.length.num_steps)[:3] != plan[:3]:
        raise InvalidValueError(
            f"the run in {path} was planned as {plan.num_steps} steps for {plan.num_samples} draws, and it is gone on "
            "with as planned: leave num_steps, num_epochs, num_draws and discard as they were, or begin another run."
        )
