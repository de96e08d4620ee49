"""Running a fit: new or resumed, in memory or with a store, for a number of steps or seconds."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from scirocco import _checks
from scirocco._version import __version__
from scirocco.data.sources import check_memory
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models._core.chain import HostChains
from scirocco.models._core.length import BY_THE_CLOCK, AskedDraws, FitLength
from scirocco.run import encoding, records, run_group
from scirocco.run.keeping import Keeping, StoreSink, new_sink
from scirocco.run.loading import load
from scirocco.run.progress import Bar, Callback, Clock, Stopwatch
from scirocco.run.records import OWN_LOOP, Record
from scirocco.run.result import Run
from scirocco.run.session import Plan, Session
from scirocco.store import Store, Stored, holds_run, open_stored, refuse_unless_free

if TYPE_CHECKING:
    from scirocco.models._core.program import OwnChains

Path = str | os.PathLike[str]

_CHAIN_BYTES = 4_096
"""Memory of a chain in addition to its state and a draw."""
_LARGE = 2**30
"""Bytes of draws in memory that are worth a warning."""


@dataclass(frozen=True)
class PlannedFit:
    """A program with its length: all that defines a run, without the options of its execution."""

    name: str
    """Name of the model in records."""
    program: OwnChains
    asked: AskedDraws
    length: FitLength
    note: dict[str, str]
    """What is needed to load the model from a store."""

    def chains(self) -> HostChains:
        """The chains in their initial state; with a time limit compiled, since it is for sampling."""
        made = [self.program.make(number) for number in range(self.asked.num_chains)]
        if self.length.max_seconds is not None:
            for chain in made:
                chain.prepare()
        return HostChains(made, self.program.spec, self.program.capacity)

    def plan(self) -> Plan:
        """The plan of the whole run; with a time limit, that of its burn-in, because the rest is not yet known."""
        if self.length.num_steps is None:
            return self.plan_of(self.asked.num_samples, BY_THE_CLOCK, 1)
        return self.plan_of(*self.asked.spread(self.length.num_steps, self.program.first_steps))

    def plan_of(self, num_samples: int, num_burnin: int, thin: int) -> Plan:
        """A plan with this number of draws of the chains of this fit."""
        keeping = Keeping.checked(False, True, None)
        asked = self.asked
        return Plan(num_samples, num_burnin, thin, asked.num_chains, asked.seed, keeping, "threads")

    def warn_if_large(self) -> None:
        """Warn if the draws of a fit without a store take much memory."""
        leaves = self.program.spec.draws.values()
        each = sum(np.dtype(leaf.dtype).itemsize * math.prod(leaf.shape) for leaf in leaves)
        total = each * self.asked.num_samples * self.asked.num_chains
        if total > _LARGE:
            _checks.warn(
                f"the draws will take {total / 2**30:.1f} GiB of memory: {self.asked.num_chains} × "
                f"{self.asked.num_samples} of {each / 2**20:.0f} MiB. Pass a `store`, or fewer draws (num_samples)."
            )

    def said(self) -> str:
        """One line: what was chosen, and how long it lasts."""
        if self.length.num_steps is None:
            lasts = f"{self.length.max_seconds:g} s"
        elif self.program.steps_of is not None:
            lasts = f"{self.length.num_steps:,} steps"
        else:
            rows, batch = self.program.epoch
            lasts = f"{self.length.num_steps * batch / rows:,.4g} passes"
        chains = "1 chain" if self.asked.num_chains == 1 else f"{self.asked.num_chains} chains"
        words = self.program.words.removesuffix(".")
        return f"{self.name}: {words}; {lasts}, {chains} of at most {self.asked.num_samples} draws."

    def record(self, plan: Plan) -> Record:
        """Contents of the record of a store."""
        program = self.program
        configuration = {
            "kind": OWN_LOOP,
            "model": self.name,
            **program.settings,
            "num_rows": int(program.num_rows),
            "dimension": program.spec.dimension,
            "data": program.fingerprint(),
            "num_samples": plan.num_samples,
            "num_burnin": plan.num_burnin,
            "thin": plan.thin,
            "num_chains": plan.num_chains,
            "seed": plan.seed,
            "versions": {"scirocco": __version__, "numpy": np.__version__},
        }
        return Record(
            configuration=configuration,
            notes=self.note,
            structure=encoding.structure(program.spec.draws),
            report={"chosen": program.words},
        )


def run_fit(
    fit: PlannedFit,
    *,
    store: Path | None,
    resume: bool,
    overwrite: bool,
    callbacks: tuple[Callback, ...],
    progress: bool,
) -> Run:
    """Run the chains of a fit: new or resumed, for a number of steps or of seconds. It may end without a draw."""
    run_group.check_switches(store, resume, overwrite)
    clock, limit, spec = Clock(), fit.length.max_seconds, fit.program.spec
    num_chains = fit.asked.num_chains
    check_memory(
        num_chains * (8 * spec.dimension + _CHAIN_BYTES),  # a state and a draw, in single precision
        f"the states of num_chains={num_chains} chains with {spec.dimension:,} parameters each",
        "Pass fewer chains, or a smaller model.",
    )
    if store is not None and resume and holds_run(store):
        found = open_stored(store)
        record, reached = records.read(found)
        if reached.status == "complete" and reached.step >= record.num_steps(reached.num_samples):
            # nothing to write: the disk may be read-only
            _checked(fit, found)
            return load(store)
        fit, session = _resumed(fit, store)
    else:
        if store is None:
            fit.warn_if_large()
        session = _new(fit, store, overwrite)
    bar = Bar(session.plan.num_steps, progress, limit)
    bar.say(fit.said())
    try:
        watch = None if limit is None else Stopwatch(limit)
        if session.plan.num_burnin == BY_THE_CLOCK:
            session, watch = _burnt_in(fit, session, callbacks, bar)
            if watch is None:
                return session.run(session.record.report)
            session.commit()  # a crash must not lose the burn-in
        session.drive((*callbacks, watch) if watch else callbacks, bar, clock)
        if session.status == "interrupted" and store is not None and not holds_run(store):
            raise KeyboardInterrupt  # before the first commit: there is nothing to open
        return session.run(session.record.report)
    finally:
        bar.close()
        session.sink.close()


def _new(fit: PlannedFit, store: Path | None, overwrite: bool) -> Session:
    if store is not None:
        refuse_unless_free(store, overwrite)
    chains, plan = fit.chains(), fit.plan()
    record, kept = fit.record(plan), fit.program.spec.kept()
    sink = new_sink(store, kept, fit.asked.num_chains, record.to_json(), overwrite=overwrite)
    return Session(chains, plan, record, sink)


def _resumed(fit: PlannedFit, path: Path) -> tuple[PlannedFit, Session]:
    """A stored fit, with the choices it had made; an error if the data, settings or length differ."""
    store = Store.open(path)
    try:
        record, reached = records.read(store)
        fit, plan = _checked(fit, store)
        chains = fit.chains()
        chains.restore(encoding.chains_in(store.read_state()))
    except BaseException:
        store.close()
        raise
    return fit, Session(chains, plan, record, StoreSink(store, fit.program.spec.kept()), reached)


def _checked(fit: PlannedFit, found: Store | Stored) -> tuple[PlannedFit, Plan]:
    """The fit with the choices that the stored one had made, and its plan; an error if they differ."""
    record, _ = records.read(found)
    if record.model != fit.name:
        raise InvalidTypeError(f"the run in {found.path} is one of {record.model}, not of {fit.name}.")
    was = record.configuration
    if fit.program.as_stored is not None:
        fit = replace(fit, program=fit.program.as_stored(was))
    plan = fit.plan_of(*record.lengths)
    if "data" not in was:
        raise InvalidValueError(
            f"{found.path} holds a model that was saved: its draws, without the state of the chains, so the fit cannot "
            "be resumed. Pass overwrite=True to fit it again, or another `store`."
        )
    now = fit.record(plan).configuration
    given = {name: now.get(name) for name in set(was) - {"versions"}}
    stored = {name: was[name] for name in given}
    records.refuse_differences(stored, given, found.path, "these arguments")
    _refuse_another_length(fit, plan, found.path)
    return fit, plan


def _refuse_another_length(fit: PlannedFit, plan: Plan, path: Path) -> None:
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
    fit: PlannedFit, session: Session, callbacks: tuple[Callback, ...], bar: Bar
) -> tuple[Session, Stopwatch | None]:
    """Run a burn-in with a time limit; return the session that follows it, and the callback that ends it in time.

    The store is replaced by one with the plan that is now known. None: the burn-in was stopped before its time.
    """
    seconds, clock, asked = fit.length.max_seconds or 0.0, Clock(), fit.asked
    if isinstance(asked.num_burnin, int):
        watch = Stopwatch(seconds, most_steps=asked.num_burnin)
    else:
        watch = Stopwatch(seconds * asked.num_burnin)
    chains, first = cast(HostChains, session.chains), session.step
    session.drive((*callbacks, watch), bar, clock)
    if not watch.stopped:
        return session, None
    rate = (session.step - first) / max(watch.elapsed, 1e-9)
    left = max(1, int(rate * (seconds - watch.elapsed)))
    again = fit.program.after_clock(chains.chains) if fit.program.after_clock else 0
    draws = max(1, min(asked.num_samples, (left - again) // (asked.thin or 1)))
    plan = fit.plan_of(draws, again, asked.thin or max(1, (left - again) // draws))
    planned = {"num_samples": plan.num_samples, "num_burnin": plan.num_burnin, "thin": plan.thin}
    record = replace(session.record, configuration=session.record.configuration | planned)
    session.sink.close()
    kept = fit.program.spec.kept()
    sink = new_sink(session.sink.path, kept, asked.num_chains, record.to_json(), overwrite=True)
    left_over = Stopwatch(seconds - watch.elapsed, again + plan.thin)
    return Session(chains, plan, record, sink), left_over
