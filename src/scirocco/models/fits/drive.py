"""From a `Fit` to a `Run`: begun or taken up, in memory or with a store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from scirocco.errors import InvalidValueError
from scirocco.models.fits.chains import HostChains
from scirocco.models.fits.fit import BY_THE_CLOCK, Fit
from scirocco.models.fits.timed import Stopwatch, burn_in
from scirocco.run import records
from scirocco.run.progress import Bar, Callback, Clock
from scirocco.run.result import Run
from scirocco.run.session import Plan, Session
from scirocco.run.sinks import MemorySink, Sink, StoreSink, store_groups
from scirocco.store import Store, holds_run, refuse_unless_free

Path = str | os.PathLike[str]


def run_fit(
    fit: Fit,
    *,
    store: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    extra: dict[str, Any] | None = None,
) -> Run:
    """Run the chains of a fit.

    Parameters
    ----------
    fit
        What the model says.
    store, resume, overwrite, callbacks, progress
        As for `sc.sample`.
    extra
        What the model needs to come back from a store, as plain JSON.
    """
    clock = Clock()
    if store is not None and resume and holds_run(store):
        begun = _taken_up(fit, store)
    else:
        begun = _new(fit, store, overwrite, extra or {})
    limit, callbacks = fit.length.max_seconds, tuple(callbacks)
    bar = Bar(begun.plan.num_steps, progress, limit)
    try:
        if begun.plan.num_burnin == BY_THE_CLOCK:
            begun, watch = _burnt_in(begun, callbacks, bar)
            return _drive(begun, (*callbacks, watch), bar, clock)
        watches = () if limit is None else (Stopwatch(limit),)
        return _drive(begun, (*callbacks, *watches), bar, clock)
    finally:
        bar.close()
        begun.sink.close()


class Begun(NamedTuple):
    """A fit that is ready to go on."""

    fit: Fit
    chains: HostChains
    plan: Plan
    sink: Sink
    record: dict[str, Any]
    reached: dict[str, Any] | None = None
    """Where a stored one was."""
    burnt_in: bool = False
    """Whether a burn-in lies behind it that a crash should not cost."""


def _new(fit: Fit, store: Path | None, overwrite: bool, extra: dict[str, Any]) -> Begun:
    if store is not None:
        refuse_unless_free(store, overwrite)
    chains, plan = fit.chains(), fit.plan()
    record = fit.record(plan, extra)
    return Begun(fit, chains, plan, _sink(fit, record, store, overwrite), record)


def _sink(fit: Fit, record: dict[str, Any], store: Path | None, overwrite: bool) -> Sink:
    if store is None:
        return MemorySink()
    made = Store.create(store, store_groups(fit.spec.kept()), fit.num_chains, record, overwrite=overwrite)
    return StoreSink(made, fit.spec.kept())


def _taken_up(fit: Fit, path: Path) -> Begun:
    """A stored fit; refuses other data, other settings or another length."""
    store = Store.open(path)
    try:
        record = store.record
        was = record["configuration"]
        if was.get("model") != fit.kind.name:
            raise fit.kind.refuse(path)
        if fit.as_stored is not None:
            fit = fit.as_stored(was)
        plan = fit.plan_of(was["num_samples"], was["num_burnin"], was["thin"])
        now = fit.record(plan, {})["configuration"]
        given = {name: now.get(name) for name in set(was) - {"versions"}}
        stored = {name: was[name] for name in given}
        records.refuse_differences(stored, given, store.path, "these arguments")
        _refuse_another_length(fit, plan, path)
        chains = fit.chains()
        chains.restore({k: v for k, v in store.read_state().items() if not k.startswith("result:")})
    except BaseException:
        store.close()
        raise
    return Begun(fit, chains, plan, StoreSink(store, fit.spec.kept()), record, store.progress)


def _refuse_another_length(fit: Fit, plan: Plan, path: Path) -> None:
    if plan.num_burnin == BY_THE_CLOCK:
        if fit.length.max_seconds is None:
            raise InvalidValueError(
                f"the run in {path} has a time limit, and was ended in its burn-in: give max_seconds, the time that "
                "it has from now on."
            )
        return
    if fit.length.num_steps is None or fit.length.is_default:
        return
    if fit.plan()[:3] != plan[:3]:
        raise InvalidValueError(
            f"the run in {path} was planned as {plan.num_steps} steps for {plan.num_samples} draws, and it is gone on "
            "with as planned: leave num_steps, num_epochs, num_draws and discard as they were, or begin another run."
        )


def _burnt_in(begun: Begun, callbacks: Sequence[Callback], bar: Bar) -> tuple[Begun, Stopwatch]:
    """After a burn-in by the clock; its store gives place to one with the plan that is known now."""
    plan, watch = burn_in(begun.fit, begun.chains, begun.sink, callbacks, bar, begun.reached)
    planned = {"num_samples": plan.num_samples, "num_burnin": plan.num_burnin, "thin": plan.thin}
    record = {**begun.record, "configuration": begun.record["configuration"] | planned}
    begun.sink.close()
    sink = _sink(begun.fit, record, begun.sink.path, overwrite=True)
    return Begun(begun.fit, begun.chains, plan, sink, record, burnt_in=True), watch


def _drive(begun: Begun, callbacks: tuple[Callback, ...], bar: Bar, clock: Clock) -> Run:
    timing: dict[str, Any] = {"setup": clock.read()}
    session = Session(begun.chains, begun.plan, begun.sink, callbacks, bar, None)
    if begun.reached is not None:
        session.restore(begun.reached)
    if begun.burnt_in:
        session.commit()
    session.drive()
    if session.status == "interrupted" and begun.sink.path is not None and not holds_run(begun.sink.path):
        raise KeyboardInterrupt  # before the first commit: there is nothing to open
    kept = begun.sink.collect()
    return Run(
        kept.draws,
        None,
        kept.stats,
        begun.record["configuration"],
        {},
        timing | session.timing,
        session.status,
        session.scores,
        {},
        {},
        begun.sink.path,
    )
