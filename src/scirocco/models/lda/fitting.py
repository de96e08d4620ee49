"""From a corpus and settings to posterior draws of topics: length of the run, store, resume."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from scirocco import _checks
from scirocco._version import __version__
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models.lda.chain import TopicChain
from scirocco.models.lda.chains import TopicChains
from scirocco.models.lda.settings import Settings
from scirocco.run import encoding, records
from scirocco.run.keeping import Keeping
from scirocco.run.progress import Bar, Callback, Clock, Report
from scirocco.run.result import Run
from scirocco.run.session import Plan, Session
from scirocco.run.sinks import Kept, MemorySink, Sink, StoreSink, store_groups
from scirocco.store import Store, holds_run, open_stored, refuse_unless_free

_ENDLESS = 1 << 30


class Size(NamedTuple):
    """Of a corpus that is not at hand."""

    num_documents: int
    vocabulary_size: int


class Length(NamedTuple):
    """How long to run: steps, or seconds."""

    num_steps: int | None
    max_seconds: float | None


def check_length(num_steps: Any, num_epochs: Any, max_seconds: Any, num_documents: int, batch: int) -> Length:
    """Exactly one of the three; ten passes when none is given."""
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
    epochs = 10 if num_epochs is None else num_epochs
    _checks.positive(epochs, "num_epochs")
    return Length(max(1, math.ceil(float(epochs) * num_documents / batch)), None)


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


def fit(
    task: Task,
    *,
    store: str | os.PathLike[str] | None,
    resume: bool,
    overwrite: bool,
    callbacks: Sequence[Callback],
    progress: bool,
    extra: dict[str, Any],
) -> tuple[Run, TopicChains]:
    """Run the chains; `extra` is remembered with a store."""
    clock = Clock()
    chains = TopicChains(
        [TopicChain(task.corpus, task.settings, task.seed, chain) for chain in range(task.num_chains)]
    )
    if store is not None and resume and holds_run(store):
        return _go_on(task, chains, store, callbacks, progress, clock)
    if store is not None:
        refuse_unless_free(store, overwrite)
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


def _plan(task: Task, num_steps: int) -> Plan:
    """Draws spread over the part of the run that is kept, the last at its end."""
    draws = max(1, min(task.num_draws, num_steps))
    thin = max(1, int(num_steps * (1.0 - task.burn_in)) // draws)
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
    long = Plan(1, _ENDLESS, 1, task.num_chains, task.seed, Keeping.checked(False, True, None), "threads")
    bar = Bar(_ENDLESS, progress)
    try:
        session = Session(chains, long, MemorySink(), (*callbacks, stop_after(first)), bar, None)
        session.drive()
    finally:
        bar.close()
    rate = max(session.step / max(first, 1e-9), 1e-9)
    left = max(1, int(rate * (seconds - first)))
    draws = max(1, min(task.num_draws, left))
    plan = Plan(
        draws,
        0,
        max(1, left // draws),
        task.num_chains,
        task.seed,
        Keeping.checked(False, True, None),
        "threads",
    )
    return plan, (*callbacks, stop_after(seconds - first))


def stop_after(seconds: float) -> Callable[[Report], None]:
    """A callback that ends a run after so many seconds."""

    def stop(report: Report) -> None:
        if report.elapsed >= seconds:
            report.stop()

    return stop


def _spec(task: Task) -> Kept:
    shape = (task.settings.num_topics, task.corpus.vocabulary_size)
    topics = {"topics": jax.ShapeDtypeStruct(shape, np.float32)}
    return Kept(topics, None, {"passes": jax.ShapeDtypeStruct((), np.float64)}, {})


def _record(task: Task, plan: Plan, extra: dict[str, Any]) -> dict[str, Any]:
    configuration = {
        "model": "LDA",
        **task.settings.as_json(),
        "num_documents": int(task.corpus.num_documents),
        "num_words": int(task.corpus.vocabulary_size),
        "data": task.corpus.source.fingerprint(),
        "num_samples": plan.num_samples,
        "num_burnin": plan.num_burnin,
        "thin": plan.thin,
        "num_chains": plan.num_chains,
        "seed": plan.seed,
        "versions": {"scirocco": __version__, "numpy": np.__version__},
    }
    return _document(_spec(task).draws, configuration, extra)


def _document(draws: Any, configuration: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """What a store must hold so that `sc.load` opens it, and what only topic models need."""
    return {
        "configuration": configuration,
        "structure": encoding.structure(draws),
        "report": {},
        "traces": {},
        "reducers": [],
        "reduced": encoding.structure({}),
        "lda": extra,
    }


def _drive(
    chains: TopicChains,
    plan: Plan,
    sink: Sink,
    callbacks: Sequence[Callback],
    progress: bool,
    record: dict[str, Any],
    clock: Clock,
    reached: dict[str, Any] | None,
) -> tuple[Run, TopicChains]:
    bar = Bar(plan.num_steps, progress)
    timing: dict[str, Any] = {"setup": clock.read()}
    try:
        session = Session(chains, plan, sink, tuple(callbacks), bar, None)
        if reached is not None:
            session.take_up(reached)
        session.drive()
        kept = sink.collect()
        run = Run(
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
        return run, chains
    finally:
        bar.close()
        sink.close()


def _go_on(
    task: Task,
    chains: TopicChains,
    path: str | os.PathLike[str],
    callbacks: Sequence[Callback],
    progress: bool,
    clock: Clock,
) -> tuple[Run, TopicChains]:
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
        now = _record(task, plan, {})["configuration"]
        given = {name: now.get(name) for name in set(was) - {"versions"}}
        stored = {name: was[name] for name in given}
        records.refuse_differences(stored, given, store.path, "these arguments")
        chains.restore({k: v for k, v in store.read_state().items() if not k.startswith("result:")})
    except BaseException:
        store.close()
        raise
    sink = StoreSink(store, _spec(task))
    return _drive(chains, plan, sink, callbacks, progress, record, clock, reached)


def save(
    draws: np.ndarray,
    settings: Settings,
    extra: dict[str, Any],
    path: str | os.PathLike[str],
    overwrite: bool,
) -> None:
    """Draws that were kept in memory, as a store that `load` and `sc.load` open."""
    chains, num_draws, num_topics, num_words = draws.shape
    topics = {"topics": jax.ShapeDtypeStruct((num_topics, num_words), np.float32)}
    configuration = {"model": "LDA", **settings.as_json(), "num_words": num_words, "num_chains": chains}
    counts = {"num_samples": num_draws, "num_burnin": 0, "thin": 1, "seed": 0}
    record = _document(topics, configuration | counts, extra)
    progress = {
        "step": num_draws,
        "draws": num_draws,
        "num_samples": num_draws,
        "status": "complete",
        "steps_per_second": 0.0,
        "scores": [],
        "timing": {},
        "diverged": None,
    }
    groups = store_groups(Kept(topics, None, {}, {}))
    with Store.create(path, groups, chains, record, overwrite=overwrite) as store:
        for number in range(num_draws):
            store.append("posterior", {"topics": draws[:, number : number + 1]})
        store.commit({}, progress)


def load(path: str | os.PathLike[str]) -> tuple[np.ndarray, dict[str, Any], int]:
    """The draws (chain, draw, topic, word) of a stored fit, what was remembered with it, its number of documents."""
    stored = open_stored(path)
    if "lda" not in stored.record:
        raise InvalidTypeError(f"the run in {path} is not one of a topic model.")
    draws = np.asarray(stored.arrays["posterior"]["topics"])
    return draws, stored.record["lda"], int(stored.record["configuration"].get("num_documents", 1))
