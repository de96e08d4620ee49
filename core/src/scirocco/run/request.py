"""A requested run, new or resumed: from the checks of its data to the last draw."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from scirocco import _checks, _programs, _tree
from scirocco.data import Devices
from scirocco.data.arrays import RowSource
from scirocco.errors import DataChangedError, DivergenceError
from scirocco.estimators import Estimator
from scirocco.estimators.base import full_products
from scirocco.model import Model, Posterior
from scirocco.model.base import bare, make_room
from scirocco.model.checks import left_domain
from scirocco.run import encoding, matching, records, run_group, setup
from scirocco.run.certificate import certificate_of, hardly_any
from scirocco.run.chains import make_chains
from scirocco.run.choose import limits, pilot, spread_check
from scirocco.run.choose.settle import prepared
from scirocco.run.keeping import DeviceChains, MemorySink, Sink, StoreSink, new_sink
from scirocco.run.loading import load
from scirocco.run.progress import Bar, Callback, Clock, Stopwatch
from scirocco.run.records import Divergence, Record
from scirocco.run.result import Origin, Run
from scirocco.run.session import Plan, Session
from scirocco.run.setup import Problem, Ready
from scirocco.samplers import Sampler
from scirocco.store import Store, holds_run, open_stored
from scirocco.types import Params


class Request(NamedTuple):
    """The checked arguments of a run."""

    model: Posterior
    source: RowSource
    params: Params
    """None for a resumed run whose store has them."""
    sampler: Sampler
    estimator: Estimator
    """Both None for a resumed run whose store has them."""
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
    """Arguments that the user omitted: chosen here, or taken from the stored run."""
    ready: Ready | None = None
    """The results of a set-up in another process."""
    max_seconds: float | None = None
    """The run ends after so many seconds of steps, with the draws made by then."""
    precision: str | None = None
    """The numbers that JAX computes with; None: as it is set."""

    @property
    def asked(self) -> dict[str, Any]:
        """The requested arguments that affect the chains."""
        return records.asked(self.sampler, self.estimator, self.plan, self.devices)

    @property
    def writes(self) -> bool:
        """Whether this process writes the store and shows progress: the first of the processes of a run."""
        return self.devices is None or not self.devices.many_processes or jax.process_index() == 0


def carry_out(request: Request) -> Run:
    """Start the run, or resume the one in the store."""
    make_room()
    mesh = contextlib.nullcontext() if request.devices is None else request.devices.in_use()
    with mesh, full_products(request.estimator), _programs.in_precision(request.precision):
        if request.store is not None and request.resume and holds_run(request.store):
            return _resume(request)
        clock, path, sink = Clock(), request.store, cast(Sink, MemorySink())
        bar = Bar(request.plan.num_steps, request.progress and request.writes)
        try:
            request, problem, ready = prepared(request, bar.say)
            plan = request.plan
            bar.expect(plan.num_steps, ready.report.get("predicted_seconds"))
            chains = make_chains(problem, ready.start, plan, request.devices)
            setup.check_first(problem, request.params, chains.first_density, chains.first_gradient)
            record = Record(
                configuration=records.configuration(problem, ready, plan, request.devices, stored=path is not None)
            )
            if path is not None:  # all processes check the first state, one of them writes
                spec = records.kept_spec(problem, chains.first_state, plan.keeping)
                if request.writes:
                    record = records.make(problem, ready, request, record.configuration)
                    if request.overwrite:
                        run_group.clear_families(path)
                    sink = new_sink(path, spec, plan.num_chains, record.to_json(), overwrite=request.overwrite)
            session = Session(chains, plan, record, sink, stamp=records.stamp(request.source))
            session.look = _looking(request, problem, chains)
            if path is not None:
                session.commit()  # from here on the run can be resumed
            return _driven(session, request, problem, ready, bar, clock)
        finally:
            bar.close()
            sink.close()


def stored_request(
    path: str | os.PathLike[str],
    model: Posterior,
    source: RowSource,
    num_samples: int | None,
    method: matching.PassedParts,
    **how: Any,
) -> Request:
    """The request of `resume`: arguments that the store knows are those of the stored run."""
    params, sampler, estimator, reducers = method
    plan = matching.check(path, num_samples, method)
    given = {"sampler": sampler, "estimator": estimator}
    known = records.asked(sampler, estimator, plan, how.get("devices")).keys() | records.PLACES
    return Request(
        *(model, source, params, cast(Sampler, sampler), cast(Estimator, estimator), plan, path, True),
        reducers=reducers,
        left_out=frozenset(name for name in known if given.get(name) is None),
        **how,
    )


def _resume(request: Request) -> Run:
    clock, path = Clock(), cast(str, request.store)
    found = open_stored(path)
    done = records.read(found)[1].draws >= request.plan.num_samples  # nothing to write: the disk may be read-only
    with Store.open(path) if request.writes and not done else contextlib.nullcontext(found) as store:
        record, reached = records.read(store)
        request = matching.checked(request, record, reached)
        problem, ready = matching.recomposed(request, record)
        plan = request.plan
        if reached.draws >= plan.num_samples:
            return load(path)
        chains = make_chains(problem, ready.start, plan, request.devices, store.read_state())
        spec = records.kept_spec(problem, chains.first_state, plan.keeping)
        here = jax.tree.map(np.array, chains.first_state.sampler.position)
        matching.check_here(record, reached, problem.model, here, request)
        ready = ready._replace(start=ready.start._replace(position=here))
        sink: Sink = StoreSink(store, spec) if isinstance(store, Store) else MemorySink()
        bar = Bar(plan.num_steps, request.progress and request.writes)
        try:
            session = Session(chains, plan, record, sink, reached, records.stamp(request.source))
            session.look = _looking(request, problem, chains)
            run = _driven(session, request, problem, ready, bar, clock)
            return run if request.writes else load(path)
        finally:
            bar.close()


def _looking(request: Request, problem: Problem, chains: DeviceChains) -> Callable[[], Any] | None:
    """The values of the model where the first chain is, for a store of one process."""
    if request.store is None or request.devices is not None:
        return None
    rows = records.probe_rows(request.source)
    return lambda: encoding.values_at(problem.model, chains.first_state.sampler.position, rows)


def _driven(session: Session, request: Request, problem: Problem, ready: Ready, bar: Bar, clock: Clock) -> Run:
    """Drive the session to its end; return the run, or raise an error that holds the draws so far."""
    parts = problem.parts
    # the start has the memory of before the first step, which other estimators have since updated with the chains
    known = not ready.resumed and parts.estimator.traits.keeps_one_sum
    memory = ready.start.memory if known else None
    origin = Origin(problem.model, problem.source, parts.sampler, parts.estimator, memory)
    watch = None
    if request.max_seconds is not None:
        watch = Stopwatch(request.max_seconds, session.plan.cadence.steps(1))
    try:
        session.drive((*request.callbacks, watch) if watch else request.callbacks, bar, clock)
    except DataChangedError as error:
        session.status = "stopped"
        error.run = session.run(ready.report, origin)
        raise
    run = session.run(ready.report, origin)
    outside = None
    if problem.model.facts.has_density and request.store is None and request.devices is None and run.num_draws:
        outside = left_domain(cast(Model, bare(problem.model)), request.params, run.draws, problem.table)
    if session.bad is not None:
        raise _divergence(session, problem, ready, run, outside) from None
    if outside:
        _checks.warn(outside)
    chosen = problem.model.facts.has_density and "sampler" in ready.report.get("left_out", ())
    if run.status == "interrupted" or run.draws is None:
        return run
    if not chosen and request.devices is None and spread_check.applies(problem.model, parts.sampler):
        _check_spread(session, problem, ready, run)
    ended = run.status == "complete" or (watch is not None and watch.stopped)
    if not chosen:
        if ended and (said := hardly_any(run)):
            _checks.warn(said)
        return run
    if not ended:
        return run
    session.certificate = certificate_of(run, problem.table)
    session.commit()
    if session.certificate.troubles:
        _checks.warn(f"{session.certificate.words}.")
    elif not session.certificate.trustworthy and run.num_draws >= limits.LIMITS.num_samples:
        _checks.warn(f"{session.certificate.words}: more draws (`num_samples`) would make them more certain.")
    else:
        bar.say(session.certificate.words)
    return dataclasses.replace(run, certificate=session.certificate)


def _check_spread(session: Session, problem: Problem, ready: Ready, run: Run) -> None:
    """A warning if the draws spread too widely; an error that holds them if that is hopeless."""
    model, parts, key = cast(Model, problem.model), problem.parts, session.plan.key
    found = spread_check.too_wide(run, model, problem.table, float(parts.sampler.temperature), session.plan.seed)
    if found is None:
        return
    words = spread_check.in_words(found, model, parts, problem.table, ready.start.position, session.plan.num_steps, key)
    if found.sure < limits.LIMITS.hopeless:
        _checks.warn(f"{words[0].upper()}{words[1:]}")
        return
    session.status, session.bad = "diverged", Divergence(found.chain, session.step, found.leaf)
    session.commit()
    chain = session.plan.first_chain + found.chain
    run = dataclasses.replace(run, status="diverged")
    raise DivergenceError(
        f"chain {chain} diverged: {words} The draws are in `error.run`.", run=run, chain=chain, step=session.step
    )


def _divergence(session: Session, problem: Problem, ready: Ready, run: Run, outside: str | None) -> DivergenceError:
    """Where the chain diverged, the likely reason, and a step size that should work."""
    chain, step, leaf = session.bad or (0, 0, 0)
    chain += session.plan.first_chain
    position, sampler = ready.start.position, problem.parts.sampler
    name = _tree.leaf_names(position)[leaf]
    where = f"chain {chain} diverged at step {step}: parameter `{name}` is NaN or infinite. "
    kept = run if run.num_draws else None
    if not problem.model.facts.has_density:
        return DivergenceError(where + sampler.known.divergence, run=kept, chain=chain, step=step)
    before = f"The {run.num_draws} draws before it are in `error.run`." if kept else "There is no draw before it."
    if sampler.needs.expansion:
        words = f"{where}{sampler.known.divergence} {before}"
        return DivergenceError(words, run=kept, chain=chain, step=step)
    model, factor = cast(Model, problem.model), sampler.known.factor
    limit = pilot.curvature_limit(model, problem.table, position, jax.random.key(0), factor)
    order = sampler.known.step_order / 2  # with a momentum the step is in units of θ, not of θ²
    within = " inside sc.Preconditioned(...)" if factor is not None else ""
    advice = (
        f"try step_size={0.1 / limit**order:.2g}{within} (a tenth of the scale that the curvature at the start allows)"
        if np.isfinite(limit) and limit > 0
        else "try a smaller step size"
    )
    reason = outside or (
        f"The step size ({_show(sampler.step_size)}) is probably too large: {advice}, standardise the data, or use a "
        "prior that keeps the parameters finite."
    )
    message = f"{where}{reason} {before}"
    return DivergenceError(message, run=kept, chain=chain, step=step)


def _show(step_size: Any) -> str:
    leaves = [f"{float(leaf):.3g}" for leaf in jax.tree.leaves(step_size) if np.ndim(leaf) == 0]
    return ", ".join(leaves[:4])
