"""A run that was asked for, checked and complete: from the first look at the data to the last draw."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from scirocco.data import Devices
from scirocco.estimators import Estimator
from scirocco.model import Posterior
from scirocco.run import chains as _chains
from scirocco.run import family, probe, records, resuming, setup
from scirocco.run.composed import Composed
from scirocco.run.conclusion import conclude
from scirocco.run.loop import Start
from scirocco.run.progress import Bar, Callback, Clock
from scirocco.run.result import Run
from scirocco.run.session import Plan, Session
from scirocco.run.sinks import MemorySink, Sink, StoreSink, store_groups
from scirocco.samplers import Sampler
from scirocco.store import Store, holds_run
from scirocco.types import Params


class Request(NamedTuple):
    """The arguments of `sc.sample`, checked."""

    model: Posterior
    source: Any
    params: Params
    sampler: Sampler
    estimator: Estimator
    plan: Plan
    store: str | os.PathLike[str] | None = None
    resume: bool = False
    overwrite: bool = False
    reducers: Mapping[str, Any] | None = None
    notes: dict[str, str] = {}  # noqa: RUF012
    callbacks: tuple[Callback, ...] = ()
    progress: bool = True
    devices: Devices | None = None
    begun: Begun | None = None
    """What a set-up elsewhere has found."""
    left_out: frozenset[str] = frozenset()
    """Arguments that were chosen here, not by the user."""

    chosen: str = ""
    """What was chosen, in one line; empty when the user gave sampler and estimator."""


class Begun(NamedTuple):
    """What the set-up before the first step yields: it can be made in one place and used in others."""

    sampler: Sampler
    """With every open number filled in."""
    estimator: Estimator
    start: Start
    report: dict[str, Any]


def carry_out(request: Request) -> Run:
    """Start the run, or go on with one that is in the store."""
    if request.devices is None:
        return _carry_out(request)
    with request.devices.in_use():
        return _carry_out(request)


def _carry_out(request: Request) -> Run:
    plan, store = request.plan, request.store
    if store is not None and request.resume and holds_run(store):
        asked = records.asked(request.sampler, request.estimator, plan, request.devices)
        asked = {name: value for name, value in asked.items() if name not in request.left_out}
        sampler = None if "sampler" in request.left_out else request.sampler
        estimator = None if "estimator" in request.left_out else request.estimator
        return resuming.go_on(
            *(store, request.model, request.source, plan.num_samples, request.params, sampler),
            *(
                estimator,
                request.reducers,
                request.callbacks,
                request.progress,
                asked,
                request.devices,
            ),
        )
    clock = Clock()
    writes = resuming.is_writer(request.devices)
    bar = Bar(plan.num_steps, request.progress and writes)
    sink: Sink = MemorySink()
    try:
        bar.say(request.chosen)
        problem, ready = prepared(request)
        key = jax.random.key(plan.seed)
        composed = Composed(
            *(problem.model, ready, plan.num_chains, key, plan.keeping, request.devices, plan.first_chain)
        )
        chains = _chains.make_chains(composed, plan.chain_method)
        probe.check_first(problem, request.params, chains.first_density, chains.first_gradient)
        record = {"configuration": records.configuration(problem, ready, plan, request.devices)}
        spec = (
            None
            if store is None
            else records.kept_spec(problem.model, ready, chains.first_state, plan.keeping)
        )
        if store is not None and spec is not None and writes:
            record |= records.make(problem, ready, request)
            if request.overwrite:
                family.clear_families(store)
            made = Store.create(
                store, store_groups(spec), plan.num_chains, record, overwrite=request.overwrite
            )
            sink = StoreSink(made, spec)
        timing = {"setup": clock.read()}
        session = Session(chains, plan, sink, request.callbacks, bar, records.stamp(request.source))
        if store is not None:
            session.commit()  # from here on the run can be taken up
        return conclude(session, problem, ready, record, timing)
    finally:
        bar.close()
        sink.close()


def prepared(request: Request) -> tuple[setup.Problem, setup.Ready]:
    """The set-up, unless it was made elsewhere."""
    plan, begun = request.plan, request.begun
    sampler = request.sampler if begun is None else begun.sampler
    estimator = request.estimator if begun is None else begun.estimator
    problem = setup.compose(request.model, request.source, sampler, estimator, plan.seed, request.devices)
    if begun is not None:
        return problem, setup.Ready(problem.parts, problem.table, begun.start, begun.report)
    key = jax.random.key(plan.seed)
    ready = setup.prepare(
        problem, request.params, num_steps=plan.num_steps, num_chains=plan.num_chains, key=key
    )
    chosen = {"chosen": request.chosen} if request.chosen else {}
    return problem, ready._replace(report=chosen | ready.report)
