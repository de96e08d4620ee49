"""Time limits of runs: for `sc.sample`, and for the models, whose loops and trials use the same clock."""

from __future__ import annotations

from collections.abc import Callable

from scirocco.run.progress import Report
from scirocco.run.result import Run

_TRIAL = 0.1
"""Fraction of a time limit that is used to measure the speed of the steps of `sc.sample`."""


class Stopwatch:
    """A callback that ends a run after a time limit, but not before a step; or after `most_steps`, if given.

    Parameters
    ----------
    seconds
        The limit, from the first step.
    least_steps
        Steps that are made in any case: those of the burn-in and of the first draw.
    most_steps
        Steps after which the run ends before its time.
    """

    def __init__(self, seconds: float, least_steps: int = 0, most_steps: int | None = None):
        self.seconds, self.least_steps, self.most_steps = seconds, least_steps, most_steps
        self.elapsed, self.stopped = 0.0, False

    def __call__(self, report: Report) -> None:
        """Stop the run if its time is over."""
        self.elapsed = report.elapsed
        late = report.elapsed >= self.seconds and report.step >= self.least_steps
        if late or (self.most_steps is not None and report.step >= self.most_steps):
            self.stopped = True
            report.stop()


class _Pace:
    """A callback that measures the speed and ends the run after a time limit; the first chunk compiles."""

    def __init__(self, seconds: float):
        self.seconds = seconds
        self.seen: list[tuple[int, float]] = []

    def __call__(self, report: Report) -> None:
        self.seen.append((report.step, report.elapsed))
        if len(self.seen) > 1 and report.elapsed - self.seen[0][1] >= self.seconds:
            report.stop()


def affordable(trial: Callable[..., Run], seconds: float) -> tuple[int, float]:
    """The number of steps that fit in a time limit, measured by a trial, and the seconds left after it."""
    pace = _Pace(_TRIAL * seconds)
    if trial(callbacks=(pace,), progress=False).status == "interrupted":
        raise KeyboardInterrupt
    (first, began), (last, ended) = pace.seen[0], pace.seen[-1]
    left = max(seconds - (ended - began), 0.0)
    return max(1, int((last - first) / max(ended - began, 1e-9) * left)), left
