"""Progress of a run: a live bar, reports for callbacks, and the time limit, which is one."""

from __future__ import annotations

import functools
import importlib.util
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scirocco.drawing.markup import join, tag
from scirocco.errors import InvalidTypeError
from scirocco.run.result import Run
from scirocco.types import PyTree

_EVERY_SECONDS, _EVERY_MINUTE = 0.2, 60.0
"""Seconds between two states of a bar, and between two lines where there is none."""
_MUCH = 10.0
"""A run is said to take too long after so many times the predicted time."""


@dataclass
class Report:
    """Passed to every callback after each chunk.

    A callback may return a number or a dict of numbers, which the progress bar shows and `run.scores` keeps.
    """

    step: int
    """Steps made so far, burn-in included."""
    num_steps: int
    num_chains: int
    draws: PyTree
    """The draws of this chunk, axes (chain, draw, ...); None during burn-in."""
    steps_per_second: float
    """Steps per second over all chains, in the last chunk; 0 before it is known."""
    elapsed: float
    """Seconds since sampling started."""
    stopped: bool = field(default=False, init=False)

    def stop(self) -> None:
        """Stop the run after this chunk; all draws so far are kept."""
        self.stopped = True


Callback = Callable[[Report], float | Mapping[str, float] | None]


def as_callbacks(value: object) -> tuple[Callback, ...]:
    """Return the callbacks of a user as a tuple; raise an error if they are not functions."""
    if not isinstance(value, Sequence) or not all(callable(callback) for callback in value):
        raise InvalidTypeError("`callbacks` must be a sequence of functions, e.g. callbacks=[my_function].")
    return tuple(value)


class Cell:
    """A bar in a notebook: a line of HTML that is replaced in place, so that no widgets have to be installed."""

    def __init__(self, whole: float, unit: str):
        self._display = importlib.import_module("IPython.display")
        self._whole, self._unit, self._began, self._shown = whole, unit, time.perf_counter(), 0.0
        self._last: tuple[float, str, str, str] = (0.0, "setting up", "", "")
        self._place = self._display.display(self._html(), display_id=True)

    def update(self, _: object = None, *, total: float | None = None, **now: Any) -> None:
        """Show the progress, at most a few times a second."""
        if total is not None:
            self._whole = total
            return
        self._last = now["completed"], now["description"], now["rate"], now["score"]
        if time.perf_counter() - self._shown > _EVERY_SECONDS:
            self.refresh()

    def refresh(self) -> None:
        """Show what is known."""
        self._shown = time.perf_counter()
        self._place.update(self._html())

    stop = refresh

    def say(self, line: str) -> None:
        """Show a line."""
        self._display.display(self._display.HTML(tag("small", line)))

    def _html(self) -> Any:
        done, phase, rate, score = self._last
        seconds = time.perf_counter() - self._began
        left = f"{seconds * (self._whole / done - 1):.0f} s left" if done else ""
        words = [phase, f"{done:.0f}/{self._whole:g} {self._unit}", rate, f"{seconds:.0f} s", left, score]
        shown = tag("progress", value=f"{done:g}", max=f"{self._whole:g}")
        return self._display.HTML(join([shown, " ", " · ".join(word for word in words if word)]))


def in_notebook() -> bool:
    """Whether this is a kernel of Jupyter, which shows what is displayed."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


class Bar:
    """A rich progress bar on stderr, or a line in a notebook; without a terminal or without rich, only what it `say`s.

    Parameters
    ----------
    total
        Steps of the run.
    enabled
        Whether anything is shown.
    seconds
        A time limit, from now on: the bar is then full when the limit is reached, and steps are not counted.
    """

    def __init__(self, total: int, enabled: bool, seconds: float | None = None):
        self._progress: Any = None
        self._enabled, self._seconds, self._began = enabled, seconds, time.perf_counter()
        self._total, self._first, self._spoke = total, (0, 0.0), self._began
        self._predicted: float | None = None
        self._ready = self._began
        if not enabled:
            return
        if in_notebook():
            self._task = None
            self._progress = Cell(total, "steps") if seconds is None else Cell(seconds, "s")
            return
        if importlib.util.find_spec("rich") is None:
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        console = Console(stderr=True)
        if not console.is_terminal:
            return
        whole: float = total
        shown = "{task.completed}/{task.total} steps"
        if seconds is not None:
            whole, shown = seconds, "{task.completed:.0f}/{task.total:g} s"
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn(shown),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[score]}"),
            console=console,
        )
        self._task = self._progress.add_task("setting up", total=whole, rate="", score="")
        self._progress.start()

    def update(self, step: int, phase: str, rate: float, score: Mapping[str, float] | None) -> None:
        """Show the progress of the run."""
        self._say_in_between(step, phase)
        if self._progress is not None:
            shown = "  ".join(f"{name} {value:.5g}" for name, value in (score or {}).items())
            done = step if self._seconds is None else min(time.perf_counter() - self._began, self._seconds)
            self._progress.update(self._task, completed=done, description=phase, rate=_per_second(rate), score=shown)

    def expect(self, total: int, seconds: float | None = None) -> None:
        """Correct the number of steps of the run; `seconds`: what they are predicted to take from now on, or less."""
        self._total, self._predicted, self._ready = total, seconds, time.perf_counter()
        if self._progress is not None and self._seconds is None:
            self._progress.update(self._task, total=total)

    def _say_in_between(self, step: int, phase: str) -> None:
        """That a run takes much longer than predicted; without a bar, a line a minute about steps and time."""
        now = time.perf_counter()
        if self._predicted is not None and now - self._ready > max(_EVERY_MINUTE, _MUCH * self._predicted):
            self.say(
                f"this run takes much longer than the {in_units(self._predicted)} that were predicted: Ctrl-C ends it "
                "and keeps its draws, `max_seconds` limits it"
            )
            self._predicted = None
        if not self._first[1]:
            self._first = (step, now)
        if not self._enabled or self._progress is not None or now - self._spoke < _EVERY_MINUTE:
            return
        self._spoke = now
        made, seconds = step - self._first[0], now - self._first[1]
        left = f", about {in_units(seconds / made * (self._total - step))} left" if made and seconds else ""
        if self._seconds is not None:
            left = f", {in_units(max(self._seconds - (now - self._began), 0.0))} left"
        line = f"{phase}: step {step:,} of {self._total:,} after {in_units(now - self._began)}{left}"
        print(line, file=sys.stderr, flush=True)

    def say(self, line: str) -> None:
        """Print a line above the bar; without a bar, the same line only once in a process."""
        if not (self._enabled and line):
            return
        if self._progress is None:
            print_once(line)
        elif isinstance(self._progress, Cell):
            self._progress.say(line)
        else:
            self._progress.console.print(line, markup=False, highlight=False)

    def close(self) -> None:
        """Leave the last line on the screen."""
        if self._progress is not None:
            self._progress.stop()


@functools.cache
def print_once(line: str) -> None:
    """In the log of a batch job, say, which may make a thousand such runs."""
    print(line, file=sys.stderr, flush=True)


class SharedBar:
    """One bar for the steps of several runs together."""

    def __init__(self, num_runs: int, num_steps: int, progress: bool, name: str):
        self._bar = Bar(num_runs * num_steps, progress)
        self._steps = dict.fromkeys(range(num_runs), 0)
        self._began: tuple[float, int] | None = None
        self._num_steps, self._name = num_steps, name

    def tell(self, number: int, step: int) -> None:
        """Record the number of steps that a run has made."""
        self._steps[number] = step
        now, total = time.monotonic(), sum(self._steps.values())
        self._began = self._began or (now, total)
        seconds, made = now - self._began[0], total - self._began[1]
        done = sum(steps >= self._num_steps for steps in self._steps.values())
        rate = made / seconds if seconds > 0 else 0.0
        self._bar.update(total, f"{done} of {len(self._steps)} {self._name}", rate, None)

    def close(self) -> None:
        """Leave the last line on the screen."""
        self._bar.close()


def in_units(seconds: float) -> str:
    """Seconds, minutes or hours, with as many digits as a prediction has."""
    if seconds < 100:
        return f"{float(f'{seconds:.1g}'):.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.0f} h"


def _per_second(rate: float) -> str:
    return "" if rate <= 0 else f"{rate / 1000:.1f}k it/s" if rate >= 1000 else f"{rate:.0f} it/s"


class Clock:
    """Wall and CPU seconds since it was created or restarted."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Set the time to zero."""
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        """Seconds so far."""
        return {"wall": time.perf_counter() - self._wall, "cpu": time.process_time() - self._cpu}


def as_scores(value: float | Mapping[str, float] | None) -> dict[str, float]:
    """The return value of a callback, as named numbers."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return {str(name): float(number) for name, number in value.items()}
    return {"score": float(value)}


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
