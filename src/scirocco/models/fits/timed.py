"""Fits by the clock: a burn-in of so many seconds, then as many steps as its speed lets expect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scirocco.errors import InvalidValueError
from scirocco.models.fits.chains import HostChains
from scirocco.models.fits.fit import Fit
from scirocco.run.progress import Bar, Callback, Report
from scirocco.run.session import Plan, Session
from scirocco.run.sinks import Sink


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


def burn_in(
    fit: Fit,
    chains: HostChains,
    sink: Sink,
    callbacks: Sequence[Callback],
    bar: Bar,
    reached: dict[str, Any] | None,
) -> tuple[Plan, Stopwatch]:
    """Run the burn-in; returns the plan of what is left of the time, and what ends it when the plan takes longer."""
    seconds = fit.length.max_seconds or 0.0
    watch = Stopwatch(seconds * fit.discard)
    session = Session(chains, fit.plan(), sink, (*callbacks, watch), bar, None)
    if reached is not None:
        session.restore(reached)
    first = session.step
    session.drive()
    if not watch.stopped:
        if session.status == "interrupted":
            raise KeyboardInterrupt
        raise InvalidValueError("the run was stopped in its burn-in, before its first draw.")
    rate = (session.step - first) / max(watch.elapsed, 1e-9)
    left = max(1, int(rate * (seconds - watch.elapsed)))
    again = fit.after_clock(chains.chains) if fit.after_clock else 0
    draws = max(1, min(fit.num_draws, left - again))
    thin = max(1, (left - again) // draws)
    return fit.plan_of(draws, again, thin), Stopwatch(seconds - watch.elapsed, again + thin)
