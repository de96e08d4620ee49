"""A requested run, new or resumed: from the checks of its data to the last draw."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from scirocco import _checks, _tree
from scirocco.data import Devices, fingerprints
from scirocco.data.arrays import RowSource
from scirocco.errors import DataChangedError, DivergenceError
from scirocco.estimators import Estimator, Full
from scirocco.estimators.precision import full_products
from scirocco.model import Model, Posterior
from scirocco.model.base import bare, make_room
from scirocco.model.checks import left_domain
from scirocco.run import adaptation, alarm, defaults, encoding, family, matching, pilot, records, setup
from scirocco.run.certificate import certificate_of
from scirocco.run.chains import make_chains
from scirocco.run.keeping import DeviceChains
from scirocco.run.loading import load
from scirocco.run.progress import Bar, Callback, Clock
from scirocco.run.records import Divergence, Record
from scirocco.run.result import Origin, Run
from scirocco.run.session import Plan, Session
from scirocco.run.setup import Problem, Ready
from scirocco.run.sinks import MemorySink, Sink, StoreSink, new_sink
from scirocco.samplers import NUTS, Sampler
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
    with mesh, full_products(request.estimator):
        if request.store is not None and request.resume and holds_run(request.store):
            return _resume(request)
        return _start(request)


def stored_request(
    path: str | os.PathLike[str],
    model: Posterior,
    source: RowSource,
    num_samples: int | None,
    method: matching.Method,
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


def prepared(
    request: Request, near_mode: bool = False, trajectories: bool = True
) -> tuple[Request, Problem, Ready]:
    """The set-up, unless it was made elsewhere; and the request with what was chosen for it.

    `near_mode`: a search for the mode has ended at the parameters of the request. `trajectories`: they may be chosen.
    """
    plan, ready, left_out = request.plan, request.ready, request.left_out
    parts = (request.sampler, request.estimator) if ready is None else (ready.sampler, ready.estimator)
    problem = setup.compose(request.model, request.source, *parts, plan.seed, request.devices)
    free = {"sampler", "estimator"} <= left_out
    if ready is None:
        problem, ready = setup.prepare(
            problem,
            request.params,
            num_steps=plan.num_steps,
            num_chains=plan.num_chains,
            key=plan.key,
            free=free and request.devices is None,
            near_mode=near_mode,
        )
        roundness = ready.report.get("roundness", 0.0) if free else 0.0
        if trajectories and roundness > defaults.FAR_FROM_GAUSSIAN and _affords_exact(request):
            return prepared(request._replace(sampler=NUTS(), estimator=Full()))
        if request.sampler.needs.trajectory and defaults.is_coarse(ready.report, ready.start.position):
            if free and roundness <= defaults.FAR_FROM_GAUSSIAN:
                return prepared(_without_trajectories(request), trajectories=False)
            defaults.warn_of_coarse(ready.report)
        if roundness > defaults.HAS_NO_SHAPE and defaults.is_large(request.params):
            sampler, estimator = defaults.method_for_many(request.source.num_rows, request.params)
            mode = request.model.constrain(ready.start.position)
            again = request._replace(sampler=sampler, estimator=estimator, params=mode)
            again, problem, own = prepared(again, near_mode=True)
            report = own.report | {"roundness": roundness}
            return again._replace(params=request.params), problem, own._replace(report=report)
        if (
            ready.estimator.traits.is_exact and not request.estimator.traits.is_exact
        ):  # rows in their own order
            method = ready.sampler, ready.estimator
            problem = setup.compose(request.model, request.source, *method, plan.seed, request.devices)
        if request.sampler.needs.trajectory and request.sampler.is_open:
            problem, ready = adaptation.adapt(problem, ready, plan, request.params)
        elif "sampler" in left_out:
            ready = adaptation.spread_out(problem, ready, plan)
    if "num_burnin" in left_out and ("sampler" in left_out or ready.sampler.known.is_exact):
        plan = plan._replace(num_burnin=defaults.default_burnin(ready.sampler, ready.thin))
    if {"sampler", "thin"} <= left_out:
        plan = plan._replace(thin=defaults.default_thin(ready.sampler, ready.thin))
    if "estimator" in left_out:
        request = request._replace(estimator=ready.estimator)
    words = defaults.in_words(
        request.sampler,
        ready.estimator,
        plan.num_burnin,
        plan.thin,
        request.source.num_rows,
        left_out,
        on_mesh=request.devices is not None,
        num_samples=plan.num_samples,
        unit=request.source.unit,
    )
    chosen = {"chosen": words, "left_out": sorted(left_out)} if words else {}
    report = chosen | ready.report
    return request._replace(plan=plan), problem, ready._replace(report=report)


def _affords_exact(request: Request) -> bool:
    return not request.sampler.needs.trajectory and defaults.affords_trajectories(
        request.model, request.source, request.params, request.devices
    )


def _without_trajectories(request: Request) -> Request:
    of = request.model, request.source
    sampler = defaults.scaled_sampler(request.params)
    estimator = defaults.default_estimator(*of, sampler, request.devices, exact_if_few=True)
    return request._replace(sampler=sampler, estimator=estimator)


def _start(request: Request) -> Run:
    clock, path, sink = Clock(), request.store, cast(Sink, MemorySink())
    bar = Bar(request.plan.num_steps, request.progress and request.writes)
    try:
        request, problem, ready = prepared(request)
        plan = request.plan
        bar.say(ready.report.get("chosen", ""))
        bar.expect(plan.num_steps)
        chains = make_chains(problem, ready.start, plan, request.devices)
        setup.check_first(problem, request.params, chains.first_density, chains.first_gradient)
        configured = partial(records.configuration, problem, ready, plan, request.devices)
        # what is not stored is never resumed: a sample of the rows will do
        record = Record(configuration=configured() if path is not None else fingerprints.like("", configured))
        if path is not None:  # all processes check the first state, one of them writes
            spec = records.kept_spec(problem, chains.first_state, plan.keeping)
            if request.writes:
                record = records.make(problem, ready, request, record.configuration)
                if request.overwrite:
                    family.clear_families(path)
                sink = new_sink(path, spec, plan.num_chains, record.to_json(), overwrite=request.overwrite)
        session = Session(chains, plan, record, sink, stamp=records.stamp(request.source))
        session.look = _looking(request, problem, chains)
        if path is not None:
            session.commit()  # from here on the run can be resumed
        return _driven(session, request, problem, ready, bar, clock)
    finally:
        bar.close()
        sink.close()


def _resume(request: Request) -> Run:
    clock, path = Clock(), cast(str, request.store)
    found = open_stored(path)
    done = (
        records.read(found)[1].draws >= request.plan.num_samples
    )  # nothing to write: the disk may be read-only
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


def _driven(
    session: Session, request: Request, problem: Problem, ready: Ready, bar: Bar, clock: Clock
) -> Run:
    """Drive the session to its end; return the run, or raise an error that holds the draws so far."""
    parts = problem.parts
    # the start has the memory of before the first step, which other estimators have since updated with the chains
    known = not ready.resumed and parts.estimator.traits.keeps_one_sum
    memory = ready.start.memory if known else None
    origin = Origin(problem.model, problem.source, parts.sampler, parts.estimator, memory)
    try:
        session.drive(request.callbacks, bar, clock)
    except DataChangedError as error:
        session.status = "stopped"
        error.run = session.run(ready.report, origin)
        raise
    run = session.run(ready.report, origin)
    outside = None
    if (
        problem.model.facts.has_density
        and request.store is None
        and request.devices is None
        and run.num_draws
    ):
        outside = left_domain(cast(Model, bare(problem.model)), request.params, run.draws, problem.table)
    if session.bad is not None:
        raise _divergence(session, problem, ready, run, outside) from None
    if outside:
        _checks.warn(outside)
    chosen = problem.model.facts.has_density and "sampler" in ready.report.get("left_out", ())
    if run.status == "interrupted" or run.draws is None:
        return run
    if not chosen and request.devices is None and alarm.applies(problem.model, parts.sampler):
        _check_spread(session, problem, ready, run)
    if not chosen or run.status != "complete":
        return run
    session.certificate = certificate_of(run, problem.table)
    session.commit()
    if session.certificate.troubles:
        _checks.warn(f"{session.certificate.words}.")
    elif not session.certificate.trustworthy and run.num_draws >= defaults.NUM_SAMPLES:
        _checks.warn(f"{session.certificate.words}: more draws (`num_samples`) would make them more certain.")
    else:
        bar.say(session.certificate.words)
    return dataclasses.replace(run, certificate=session.certificate)


def _check_spread(session: Session, problem: Problem, ready: Ready, run: Run) -> None:
    """A warning if the draws spread too widely; an error that holds them if that is hopeless."""
    model, parts, key = cast(Model, problem.model), problem.parts, session.plan.key
    found = alarm.too_wide(run, model, problem.table, float(parts.sampler.temperature), session.plan.seed)
    if found is None:
        return
    words = alarm.in_words(
        found, model, parts, problem.table, ready.start.position, session.plan.num_steps, key
    )
    if found.sure < alarm.HOPELESS:
        _checks.warn(f"{words[0].upper()}{words[1:]}")
        return
    session.status, session.bad = "diverged", Divergence(found.chain, session.step, found.leaf)
    session.commit()
    chain = session.plan.first_chain + found.chain
    run = dataclasses.replace(run, status="diverged")
    raise DivergenceError(
        f"chain {chain} diverged: {words} The draws are in `error.run`.",
        run=run,
        chain=chain,
        step=session.step,
    )


def _divergence(
    session: Session, problem: Problem, ready: Ready, run: Run, outside: str | None
) -> DivergenceError:
    """Where the chain diverged, the likely reason, and a step size that should work."""
    chain, step, leaf = session.bad or (0, 0, 0)
    chain += session.plan.first_chain
    position, sampler = ready.start.position, problem.parts.sampler
    name = _tree.leaf_names(position)[leaf]
    where = f"chain {chain} diverged at step {step}: parameter `{name}` is NaN or infinite. "
    kept = run if run.num_draws else None
    if not problem.model.facts.has_density:
        return DivergenceError(where + sampler.known.divergence, run=kept, chain=chain, step=step)
    before = (
        f"The {run.num_draws} draws before it are in `error.run`." if kept else "There is no draw before it."
    )
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
