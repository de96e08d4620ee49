"""Running a fit: new or resumed, in memory or with a store, for a number of steps or seconds."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np

from scirocco import _checks
from scirocco._version import __version__
from scirocco.data import fingerprints
from scirocco.data.sources import check_memory
from scirocco.errors import InvalidValueError
from scirocco.models.fits.chains import Chain, HostChains, Spec
from scirocco.models.fits.length import Length, spread
from scirocco.models.fits.saved import Kind, make_record
from scirocco.run import records, run_group, snapshot
from scirocco.run.keeping import Keeping
from scirocco.run.loading import load
from scirocco.run.progress import Bar, Callback, Clock, as_callbacks
from scirocco.run.records import Record
from scirocco.run.result import Run
from scirocco.run.session import Plan, Session
from scirocco.run.sinks import StoreSink, new_sink
from scirocco.run.time_limit import Stopwatch
from scirocco.store import Store, Stored, holds_run, open_stored, refuse_unless_free

Path = str | os.PathLike[str]

_CHAIN_BYTES = 4_096
_LARGE = 2**30
BY_THE_CLOCK = 1 << 30
"""Planned steps of a burn-in with a time limit."""


@dataclass(frozen=True)
class Fit:
    """Definition of a fit, without the options of its execution.

    Parameters
    ----------
    kind
        Names of the model in records and in messages.
    configuration
        The settings that define the chains, as plain JSON, with the name of the method under "sampler". A stored fit is
        resumed only if all of it is the same.
    fingerprint
        Returns the fingerprint of the data: called once, when the record is written.
    num_rows
        Number of rows of the data.
    spec
        Shapes and types of one draw, see `Spec`.
    make_chains
        Creates `num_chains` chains in their initial state.
    num_chains, num_samples, seed
        Number of chains, draws per chain (a short run gives fewer), and the seed.
    length
        From `check_length`.
    num_burnin
        Steps of burn-in (int), or the fraction of the run that is burn-in (float).
    thin
        Steps between two draws; None: draws are spread evenly over the run after the burn-in.
    first_steps
        Minimum number of steps before the first draw, for any `num_burnin`.
    capacity
        Number of draws in a chunk, see `HostChains`.
    after_clock
        With `max_seconds`, called with the chains when the time of the burn-in is over: ends phases that belong to the
        burn-in, and returns the minimum number of steps before the first draw.
    as_stored
        Returns the same fit with the choices that a stored fit had made, given the stored configuration.
    chosen
        What was chosen for the user, in one line that is shown with the progress.
    """

    kind: Kind
    configuration: dict[str, Any]
    fingerprint: Callable[[], Any]
    num_rows: int
    spec: Spec
    make_chains: Callable[[], Sequence[Chain]]
    num_chains: int
    num_samples: int
    seed: int
    length: Length
    num_burnin: float = 0.5
    thin: int | None = None
    first_steps: int = 0
    capacity: int = 1
    after_clock: Callable[[Sequence[Any]], int] | None = None
    as_stored: Callable[[dict[str, Any]], Fit] | None = None
    chosen: str = ""

    def chains(self) -> HostChains:
        """The chains in their initial state."""
        return HostChains(self.make_chains(), self.spec, self.capacity)

    def plan(self) -> Plan:
        """The plan of the whole run; with a time limit, that of its burn-in, because the rest is not yet known."""
        if self.length.num_steps is None:
            return self.plan_of(self.num_samples, BY_THE_CLOCK, 1)
        return self.plan_of(
            *spread(self.length.num_steps, self.num_samples, self.num_burnin, self.first_steps, self.thin)
        )

    def plan_of(self, num_samples: int, num_burnin: int, thin: int) -> Plan:
        """A plan with this number of draws of the chains of this fit."""
        keeping = Keeping.checked(False, True, None)
        return Plan(num_samples, num_burnin, thin, self.num_chains, self.seed, keeping, "threads")

    def warn_if_large(self, advice: str) -> None:
        """Warn if the draws of a fit without a store take much memory."""
        each = sum(np.dtype(leaf.dtype).itemsize * math.prod(leaf.shape) for leaf in self.spec.draws.values())
        total = each * self.num_samples * self.num_chains
        if total > _LARGE:
            _checks.warn(
                f"the draws will take {total / 2**30:.1f} GiB of memory: {self.num_chains} × {self.num_samples} of "
                f"{each / 2**20:.0f} MiB. {advice}"
            )

    def record(self, plan: Plan, extra: dict[str, Any]) -> Record:
        """Contents of the record of a store; `extra` is specific to the model."""
        configuration = {
            **self.configuration,
            "num_rows": int(self.num_rows),
            "dimension": self.spec.dimension,
            "data": self.fingerprint(),
            "num_samples": plan.num_samples,
            "num_burnin": plan.num_burnin,
            "thin": plan.thin,
            "num_chains": plan.num_chains,
            "seed": plan.seed,
            "versions": {"scirocco": __version__, "numpy": np.__version__},
        }
        return make_record(self.kind, self.spec, configuration, extra)


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
        Definition of the fit.
    store, resume, overwrite, callbacks, progress
        As for `sc.sample`.
    extra
        Data needed to load the model from a store, as JSON.
    """
    run_group.check_switches(store, resume, overwrite)
    clock, limit, callbacks = Clock(), fit.length.max_seconds, as_callbacks(callbacks)
    check_memory(
        fit.num_chains * (8 * fit.spec.dimension + _CHAIN_BYTES),  # a state and a draw, in single precision
        f"the states of num_chains={fit.num_chains} chains with {fit.spec.dimension:,} parameters each",
        "Pass fewer chains, or a smaller model.",
    )
    if store is not None and resume and holds_run(store):
        found = open_stored(store)
        if _is_done(found):  # nothing to write: the disk may be read-only
            _checked(fit, found)
            return load(store)
        fit, session = _resumed(fit, store)
    else:
        session = _new(fit, store, overwrite, extra or {})
    bar = Bar(session.plan.num_steps, progress, limit)
    bar.say(fit.chosen)
    try:
        watch = None if limit is None else Stopwatch(limit)
        if session.plan.num_burnin == BY_THE_CLOCK:
            session, watch = _burnt_in(fit, session, callbacks, bar)
            session.commit()  # a crash must not lose the burn-in
        session.drive((*callbacks, watch) if watch else callbacks, bar, clock)
        if session.status == "interrupted" and store is not None and not holds_run(store):
            raise KeyboardInterrupt  # before the first commit: there is nothing to open
        return session.run({})
    finally:
        bar.close()
        session.sink.close()


def _new(fit: Fit, store: Path | None, overwrite: bool, extra: dict[str, Any]) -> Session:
    if store is not None:
        refuse_unless_free(store, overwrite)
    chains, plan = fit.chains(), fit.plan()
    record = fit.record(plan, extra)
    sink = new_sink(store, fit.spec.kept(), fit.num_chains, record.to_json(), overwrite=overwrite)
    return Session(chains, plan, record, sink)


def _resumed(fit: Fit, path: Path) -> tuple[Fit, Session]:
    """A stored fit, with the choices it had made; an error if the data, settings or length differ."""
    store = Store.open(path)
    try:
        record, reached = records.read(store)
        fit, plan = _checked(fit, store)
        chains = fit.chains()
        chains.restore(snapshot.of_chains(store.read_state()))
    except BaseException:
        store.close()
        raise
    return fit, Session(chains, plan, record, StoreSink(store, fit.spec.kept()), reached)


def _is_done(found: Stored) -> bool:
    record, reached = records.read(found)
    return reached.status == "complete" and reached.step >= record.num_steps(reached.num_samples)


def _checked(fit: Fit, found: Store | Stored) -> tuple[Fit, Plan]:
    """The fit with the choices that the stored one had made, and its plan; an error if they differ."""
    record, _ = records.read(found)
    if record.model != fit.kind.name:
        raise fit.kind.refuse(found.path)
    was = record.configuration
    if fit.as_stored is not None:
        fit = fit.as_stored(was)
    plan = fit.plan_of(*record.lengths)
    now = fingerprints.like(was["data"], partial(fit.record, plan, {})).configuration
    given = {name: now.get(name) for name in set(was) - {"versions"}}
    stored = {name: was[name] for name in given}
    records.refuse_differences(stored, given, found.path, "these arguments")
    _refuse_another_length(fit, plan, found.path)
    return fit, plan


def _refuse_another_length(fit: Fit, plan: Plan, path: Path) -> None:
    if plan.num_burnin == BY_THE_CLOCK:
        if fit.length.max_seconds is None:
            raise InvalidValueError(
                f"the run in {path} has a time limit and was stopped during burn-in: pass max_seconds, the time for "
                "the rest of the run."
            )
        return
    if fit.length.num_steps is None or fit.length.is_default:
        return
    if fit.plan()[:3] != plan[:3]:
        raise InvalidValueError(
            f"the run in {path} was planned as {plan.num_steps} steps for {plan.num_samples} draws, and it is resumed "
            "as planned: pass the same num_steps, num_epochs, num_samples, num_burnin and thin, or start another "
            "run."
        )


def _burnt_in(
    fit: Fit, session: Session, callbacks: tuple[Callback, ...], bar: Bar
) -> tuple[Session, Stopwatch]:
    """Run a burn-in with a time limit; return the session that follows it, and the callback that ends it in time.

    The store is replaced by one with the plan that is now known.
    """
    seconds, clock = fit.length.max_seconds or 0.0, Clock()
    if isinstance(fit.num_burnin, int):
        watch = Stopwatch(seconds, most_steps=fit.num_burnin)
    else:
        watch = Stopwatch(seconds * fit.num_burnin)
    chains, first = cast(HostChains, session.chains), session.step
    session.drive((*callbacks, watch), bar, clock)
    if not watch.stopped:
        if session.status == "interrupted":
            raise KeyboardInterrupt
        raise InvalidValueError("the run was stopped during burn-in, before its first draw.")
    rate = (session.step - first) / max(watch.elapsed, 1e-9)
    left = max(1, int(rate * (seconds - watch.elapsed)))
    again = fit.after_clock(chains.chains) if fit.after_clock else 0
    draws = max(1, min(fit.num_samples, (left - again) // (fit.thin or 1)))
    plan = fit.plan_of(draws, again, fit.thin or max(1, (left - again) // draws))
    planned = {"num_samples": plan.num_samples, "num_burnin": plan.num_burnin, "thin": plan.thin}
    record = replace(session.record, configuration=session.record.configuration | planned)
    session.sink.close()
    sink = new_sink(session.sink.path, fit.spec.kept(), fit.num_chains, record.to_json(), overwrite=True)
    left_over = Stopwatch(seconds - watch.elapsed, again + plan.thin)
    return Session(chains, plan, record, sink), left_over
