"""A run that was asked for: from the first look at the data to the last draw, new or resumed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from scirocco import _tree
from scirocco.data import Devices
from scirocco.data.arrays import RowSource
from scirocco.errors import DataChangedError, DivergenceError
from scirocco.estimators import Estimator
from scirocco.model import Model, Posterior
from scirocco.run import family, matching, pilot, probe, records, setup
from scirocco.run.chains import make_chains
from scirocco.run.keeping import Chains
from scirocco.run.loading import load
from scirocco.run.progress import Bar, Callback, Clock
from scirocco.run.result import Origin, Run
from scirocco.run.session import Plan, Session
from scirocco.run.setup import Problem, Ready
from scirocco.run.sinks import Kept, MemorySink, Sink, StoreSink, store_groups
from scirocco.samplers import Sampler
from scirocco.store import Store, holds_run, open_stored
from scirocco.types import Params


class Request(NamedTuple):
    """What was asked for, checked."""

    model: Posterior
    source: RowSource
    params: Params
    """None for a run that is resumed, where its store knows them."""
    sampler: Sampler
    estimator: Estimator
    """Both None where the store of a run that is resumed knows them."""
    plan: Plan
    store: str | os.PathLike[str] | None = None
    resume: bool = False
    overwrite: bool = False
    reducers: Mapping[str, Any] | None = None
    notes: Mapping[str, str] = {}
    callbacks: tuple[Callback, ...] = ()
    progress: bool = True
    devices: Devices | None = None
    left_out: frozenset[str] = frozenset()
    """Arguments that were not given by the user: chosen here, or those of the stored run."""
    chosen: str = ""
    """What was chosen, in one line; empty when the user gave sampler and estimator."""
    ready: Ready | None = None
    """What a set-up elsewhere has found."""

    @property
    def asked(self) -> dict[str, Any]:
        """What the user asked for, as far as it shapes the chains."""
        return records.asked(self.sampler, self.estimator, self.plan, self.devices)

    @property
    def writes(self) -> bool:
        """Whether this process writes the store and shows progress: the first of those that share a run."""
        return self.devices is None or not self.devices.many_processes or jax.process_index() == 0


def carry_out(request: Request) -> Run:
    """Start the run, or resume the one that is in the store."""
    with contextlib.nullcontext() if request.devices is None else request.devices.in_use():
        if request.store is not None and request.resume and holds_run(request.store):
            return _resume(request)
        return _start(request)


def resume_here(
    path: str | os.PathLike[str],
    model: Posterior,
    source: RowSource,
    num_samples: int | None,
    method: matching.Method,
    callbacks: tuple[Callback, ...] = (),
    progress: bool = False,
    devices: Devices | None = None,
) -> Run:
    """`resume` in this process: the arguments that the store knows are those of the stored run."""
    params, sampler, estimator, reducers = method
    plan = matching.check(path, num_samples, method)
    given = {"sampler": sampler, "estimator": estimator}
    known = records.asked(sampler, estimator, plan, devices).keys() | records.PLACES
    left_out = frozenset(name for name in known if given.get(name) is None)
    request = Request(
        *(model, source, params, cast(Sampler, sampler), cast(Estimator, estimator), plan, path, True),
        reducers=reducers,
        callbacks=callbacks,
        progress=progress,
        devices=devices,
        left_out=left_out,
    )
    return carry_out(request)


def prepared(request: Request) -> tuple[Problem, Ready]:
    """The set-up, unless it was made elsewhere."""
    plan, ready = request.plan, request.ready
    sampler = request.sampler if ready is None else ready.sampler
    problem = setup.compose(
        request.model, request.source, sampler, request.estimator, plan.seed, request.devices
    )
    if ready is not None:
        return problem, ready
    problem, ready = setup.prepare(
        problem, request.params, num_steps=plan.num_steps, num_chains=plan.num_chains, key=plan.key
    )
    chosen = {"chosen": request.chosen} if request.chosen else {}
    return problem, ready._replace(report=chosen | ready.report)


def _start(request: Request) -> Run:
    clock, plan, store = Clock(), request.plan, request.store
    bar = Bar(plan.num_steps, request.progress and request.writes)
    sink: Sink = MemorySink()
    try:
        bar.say(request.chosen)
        problem, ready = prepared(request)
        chains = make_chains(problem, ready.start, plan, request.devices)
        probe.check_first(problem, request.params, chains.first_density, chains.first_gradient)
        record = {"configuration": records.configuration(problem, ready, plan, request.devices)}
        if store is not None:  # all processes look at the first state, one of them writes
            spec = records.kept_spec(problem, chains.first_state, plan.keeping)
            if request.writes:
                record |= records.make(problem, ready, request)
                sink = StoreSink(_new_store(request, record, spec), spec)
        session = _session(request, chains, sink, bar, clock)
        if store is not None:
            session.commit()  # from here on the run can be resumed
        return _finish(session, problem, ready, record)
    finally:
        bar.close()
        sink.close()


def _resume(request: Request) -> Run:
    clock, path = Clock(), cast(str, request.store)
    with Store.open(path) if request.writes else contextlib.nullcontext(open_stored(path)) as store:
        record, reached = store.record, store.progress
        request = matching.checked(request, record, reached)
        problem, ready = matching.recomposed(request, record)
        plan = request.plan
        if reached["draws"] >= plan.num_samples:
            return load(path)
        chains = make_chains(problem, ready.start, plan, request.devices, store.read_state())
        spec = records.kept_spec(problem, chains.first_state, plan.keeping)
        here = jax.tree.map(np.array, chains.first_state.sampler.position)
        ready = ready._replace(start=ready.start._replace(position=here))
        bar = Bar(plan.num_steps, request.progress and request.writes)
        sink: Sink = StoreSink(store, spec) if isinstance(store, Store) else MemorySink()
        try:
            session = _session(request, chains, sink, bar, clock)
            session.restore(reached)
            run = _finish(session, problem, ready, record)
            return run if request.writes else load(path)
        finally:
            bar.close()


def _new_store(request: Request, record: dict[str, Any], spec: Kept) -> Store:
    path = cast(str, request.store)
    if request.overwrite:
        family.clear_families(path)
    groups = store_groups(spec)
    return Store.create(path, groups, request.plan.num_chains, record, overwrite=request.overwrite)


def _session(request: Request, chains: Chains, sink: Sink, bar: Bar, clock: Clock) -> Session:
    session = Session(chains, request.plan, sink, request.callbacks, bar, records.stamp(request.source))
    session.timing_before = {"setup": clock.read()}
    return session


def _finish(session: Session, problem: Problem, ready: Ready, record: dict[str, Any]) -> Run:
    """Drive the session to its end; the run, or an error that holds what there is of it."""
    try:
        session.drive()
    except DataChangedError as error:
        session.status = "stopped"
        error.run = _gather(session, problem, ready, record)
        raise
    run = _gather(session, problem, ready, record)
    if session.bad is not None:
        raise _divergence(session, problem, ready, run)
    return run


def _gather(session: Session, problem: Problem, ready: Ready, record: dict[str, Any]) -> Run:
    kept, parts = session.sink.collect(), problem.parts
    # the memory of other estimators is of before the first step: it has moved on with the chains
    known = not ready.resumed and parts.estimator.keeps_one_sum
    memory = ready.start.memory if known else None
    return Run(
        kept.draws,
        kept.gradients,
        kept.stats,
        record["configuration"],
        ready.report,
        session.timing_before | session.timing,
        session.status,
        session.scores,
        kept.traces,
        jax.tree.map(np.asarray, session.results()),
        session.sink.path,
        Origin(problem.model, problem.source, parts.sampler, parts.estimator, memory),
    )


def _divergence(session: Session, problem: Problem, ready: Ready, run: Run) -> DivergenceError:
    """Where it happened, why it is likely, and a step size that should work."""
    chain, step, leaf = session.bad or (0, 0, 0)
    chain += session.plan.first_chain
    position, sampler = ready.start.position, problem.parts.sampler
    name = _tree.leaf_names(position)[leaf]
    where = f"chain {chain} left the finite numbers at step {step}: parameter `{name}` is NaN or infinite. "
    kept = run if run.num_draws else None
    if not problem.model.has_density:
        return DivergenceError(where + sampler.divergence_advice, run=kept, chain=chain, step=step)
    model, factor = cast(Model, problem.model), sampler.factor
    limit = pilot.curvature_limit(model, problem.table, position, jax.random.key(0), factor)
    order = sampler.step_order / 2  # with a momentum the step is in units of θ, not of θ²
    within = " inside sc.Preconditioned(...)" if factor is not None else ""
    advice = (
        f"try step_size={0.1 / limit**order:.2g}{within} (a tenth of the scale that the curvature at the start allows)"
        if np.isfinite(limit) and limit > 0
        else "try a smaller step size"
    )
    before = (
        f"The {run.num_draws} draws before it are in `error.run`." if kept else "There is no draw before it."
    )
    message = (
        f"{where}The step size ({_show(sampler.step_size)}) is probably too large: {advice}, standardise the data, or "
        f"use a prior that keeps the parameters finite. {before}"
    )
    return DivergenceError(message, run=kept, chain=chain, step=step)


def _show(step_size: Any) -> str:
    leaves = [f"{float(leaf):.3g}" for leaf in jax.tree.leaves(step_size) if np.ndim(leaf) == 0]
    return ", ".join(leaves[:4])
