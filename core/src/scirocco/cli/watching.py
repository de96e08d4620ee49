"""`scirocco watch`: a live display of a run in the terminal, or lines where there is none.

Everything is read from the run's folder: progress, scores, chains. Nothing is locked, nothing is written.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scirocco.cli._common import neutral, say
from scirocco.cli._common import width as terminal_width
from scirocco.cli._exit import ending_at_once
from scirocco.errors import InvalidValueError, SciroccoError, StoreError
from scirocco.run import load, records
from scirocco.run.loading import NOT_BEGUN, smallest_ess, worst
from scirocco.run.records import OWN_LOOP
from scirocco.run.run_group import CHAINS, SHARDS
from scirocco.store import holds_run, open_stored

ENDED_WELL = ("complete", "stopped")
_GOES_ON = ("running", NOT_BEGUN)
_BLOCKS = "▁▂▃▄▅▆▇█"
_BAR, _WIDTH = 40, 50  # characters of the bar and of a curve
_ESS_SHARE = 0.1
"""Largest share of the time spent on computing the effective sample size."""
_CURVE = 400
"""The most points of a curve that are read from disk."""
_COLOURS = {"running": "cyan", "complete": "green", "stopped": "green"}


# -- what a folder says ------------------------------------------------------------------------------------------------


class WatchedPart(NamedTuple):
    """A run in a folder: the only one, or that of a group of chains or of a shard."""

    name: str
    status: str
    step: int = 0
    num_steps: int = 0
    draws: int = 0
    num_samples: int = 0
    num_chains: int = 0
    rate: float = 0.0
    burning: bool = False
    method: str = ""
    scores: tuple[tuple[int, dict[str, float]], ...] = ()
    path: Path | None = None


class WatchedState(NamedTuple):
    """The state of all parts of a run."""

    path: Path
    kind: str
    """"run", "chains" or "subposteriors"."""
    parts: tuple[WatchedPart, ...]

    @property
    def status(self) -> str:
        """The status "running" while any part is; otherwise the worst status of the parts."""
        return worst([part.status for part in self.parts])

    @property
    def share(self) -> float:
        """The share of all steps that is done, between 0 and 1."""
        whole = max((part.num_steps for part in self.parts), default=0) * len(self.parts)
        return min(1.0, sum(part.step for part in self.parts) / whole) if whole else 0.0

    @property
    def mark(self) -> tuple[Any, ...]:
        """A value that changes when there is something new."""
        return tuple((part.step, part.draws, part.status) for part in self.parts)


def read_state(path: Path) -> WatchedState:
    """The current state of a run, a folder of chains or a folder of subposteriors."""
    if not path.exists():
        raise InvalidValueError(f"{path} does not exist.")
    for family in (CHAINS, SHARDS):
        if family.is_at(path):
            count = family.read(str(path))["count"]
            paths = [Path(family.path(str(path), number)) for number in range(count)]
            return WatchedState(path, family.name, tuple(_part_or_none(each) for each in paths))
    return WatchedState(path, "run", (_part(path),))


def _part_or_none(path: Path) -> WatchedPart:
    """The state of a part whose worker may not have started yet."""
    if not holds_run(path):
        return WatchedPart(path.name, NOT_BEGUN)
    return _part(path)


def _part(path: Path) -> WatchedPart:
    stored = open_stored(path)
    record, progress = records.read(stored)
    return WatchedPart(
        path.name,
        records.status_of(stored),
        progress.step,
        record.num_steps(progress.num_samples),
        progress.draws,
        progress.num_samples,
        record.num_chains,
        progress.steps_per_second,
        progress.step < record.num_burnin,
        record.method,
        tuple(progress.scores),
        path,
    )


def curves(state: WatchedState) -> dict[str, list[float]]:
    """Scores of callbacks along the run (of the first part with any); otherwise the gradient norm at the draws."""
    scored = next((part.scores for part in state.parts if part.scores), ())
    names = dict.fromkeys(name for _, values in scored for name in values)
    if names:
        return {name: [values[name] for _, values in scored if name in values] for name in names}
    first = next((part for part in state.parts if part.path is not None and part.draws), None)
    if first is None or first.path is None:
        return {}
    norms = open_stored(first.path).arrays.get("sample_stats", {}).get("gradient_norm")
    if norms is None or not norms.shape[1]:
        return {}
    some = np.asarray(norms[:, :: max(1, norms.shape[1] // _CURVE)], np.float64)
    return {"gradient norm": some.mean(axis=0).tolist()}


def effective(state: WatchedState) -> float | None:
    """The smallest effective sample size so far; None if it cannot be estimated (yet) or has no meaning."""
    try:
        if state.kind == "chains":
            found = [load(state.path)]
        else:
            found = [load(part.path) for part in state.parts if part.path is not None]
        if any(run.kind == OWN_LOOP for run in found):
            return None  # components of such models may be permuted between draws
        sizes = [smallest_ess(run) for run in found]
    except SciroccoError:  # a chain that has not started
        return None
    known = [size for size in sizes if size is not None]
    return min(known) if known and len(known) == len(sizes) else None


def as_plain(state: WatchedState) -> dict[str, Any]:
    """The state, the last values of its curves and its parts, as JSON values."""
    parts = [
        {name: value for name, value in part._asdict().items() if name not in ("scores", "path")}
        for part in state.parts
    ]
    return {
        "path": str(state.path),
        "kind": state.kind,
        "status": state.status,
        "share": state.share,
        "ess": effective(state),
        "scores": {name: values[-1] for name, values in curves(state).items()},
        "parts": parts,
    }


# -- what is shown of it -----------------------------------------------------------------------------------------------


class Watch:
    """Reads a folder from time to time, and caches what is expensive to compute."""

    def __init__(self, path: Path):
        self.path = path
        self.state = read_state(path)
        self._ess: float | None = None
        self._seen: Any = None
        self._next = 0.0

    def look(self) -> bool:
        """Read the folder; whether there is something new."""
        before = self.state.mark
        try:
            self.state = read_state(self.path)
        # it may be in the middle of a write; a damaged folder raises the second time
        except StoreError:
            time.sleep(0.2)
            self.state = read_state(self.path)
        return self.state.mark != before

    def ess(self) -> float | None:
        """The smallest effective sample size, recomputed for new draws, but not too often."""
        now = time.monotonic()
        if self._seen != self.state.mark and (now >= self._next or self.state.status not in _GOES_ON):
            self._seen, self._ess = self.state.mark, effective(self.state)
            took = time.monotonic() - now
            self._next = time.monotonic() + took / _ESS_SHARE
        return self._ess


def follow(path: Path, *, once: bool, every: float) -> str:
    """Show a run until it ends, and return its last status."""
    watch = Watch(path)
    if once:
        say("\n".join(frame(watch)))
        return watch.state.status
    goes_on = "; the run continues" if watch.state.status == "running" else ""
    with ending_at_once(f"no longer watching {path}{goes_on}."):
        if sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
            _live(watch, every)
        else:
            _lines(watch, every)
    return watch.state.status


def _live(watch: Watch, every: float) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    def picture() -> Group:
        title, *rest = map(neutral, frame(watch))
        style = _COLOURS.get(watch.state.status, "red")
        return Group(Text(title, style=f"bold {style}"), *(Text(line, no_wrap=True) for line in rest))

    with Live(picture(), auto_refresh=False) as live:
        while watch.state.status in _GOES_ON:
            time.sleep(every)
            watch.look()
            live.update(picture(), refresh=True)


def _lines(watch: Watch, every: float) -> None:
    say(line(watch), flush=True)
    while watch.state.status in _GOES_ON:
        time.sleep(every)
        if watch.look():
            say(line(watch), flush=True)


def line(watch: Watch) -> str:
    """The current state in one line."""
    state, ess = watch.state, watch.ess()
    parts = [f"{time.strftime('%H:%M:%S')} {_phase(state)} {_progress(state)}"]
    parts += [f"ESS {ess:,.0f}"] if ess is not None else []
    parts += [f"{name} {values[-1]:.5g}" for name, values in curves(state).items()]
    return ", ".join(parts)


def frame(watch: Watch) -> list[str]:
    """The current state as lines of a display; the first is the title."""
    state, ess = watch.state, watch.ess()
    method = next((part.method for part in state.parts if part.method), "")
    found = curves(state)
    width = max(9, *(len(name) for name in (*found, _phase(state))))
    lines = [f"{state.path}  {method}  {state.status}"]
    lines.append(
        f"  {_phase(state):<{width}} {_bar(state.share, _room(width, _progress(state), _BAR))}{_progress(state)}"
    )
    for name, values in found.items():
        spread = f"{values[-1]:.5g} now, {min(values):.5g} to {max(values):.5g}"
        lines.append(f"  {name:<{width}} {sparkline(values, _room(width, spread, _WIDTH))} {spread}")
    total = sum(part.draws * part.num_chains for part in state.parts)
    if ess is not None:
        lines.append(f"  {'ESS':<{width}} {ess:,.0f} of {total:,} draws (worst parameter)")
    elif state.status in _GOES_ON:
        lines.append(f"  {'ESS':<{width}} not known yet")
    return lines + _parts(state, width)


def _room(width: int, words: str, most: int) -> int:
    """The width left for a bar or curve between its name and its text."""
    return max(8, min(most, terminal_width() - width - len(words) - 4))


def _bar(share: float, length: int) -> str:
    full = round(length * share)
    return f"{'━' * full}{'╌' * (length - full)} "


def _parts(state: WatchedState, width: int) -> list[str]:
    if state.kind == "run":
        return [f"  {'chains':<{width}} {state.parts[0].num_chains}"]
    rows = []
    for part in state.parts:
        far = f"{part.draws:,} of {part.num_samples:,} draws" if part.num_samples else ""
        rows.append(f"  {part.name:<{width}} {part.status:<12} {far}")
    return rows


def _phase(state: WatchedState) -> str:
    if state.status != "running":
        return state.status
    return "burn-in" if all(part.burning for part in state.parts if part.num_steps) else "sampling"


def _progress(state: WatchedState) -> str:
    draws = min((part.draws for part in state.parts), default=0)
    wanted = max((part.num_samples for part in state.parts), default=0)
    text = f"{100 * state.share:.0f} %, {draws:,} of {wanted:,} draws"
    rate = sum(part.rate for part in state.parts if part.status == "running")
    if state.status == "running" and rate > 0:
        left = sum(part.num_steps - part.step for part in state.parts) / rate
        text += f", {rate:,.0f} steps/s, {_duration(left)} left"
    return text


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def sparkline(values: Sequence[float], width: int = _WIDTH) -> str:
    """A curve in one line: means of equal parts if there are many values; a blank where a value is not finite.

    >>> sparkline([0.0, 1.0, 2.0, 3.0])
    '▁▃▆█'
    """
    count = min(width, len(values))
    edges = [round(k * len(values) / count) for k in range(count + 1)] if count else []
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    finite = [value for value in means if math.isfinite(value)]
    if not finite:
        return " " * count
    low, high = min(finite), max(finite)
    height = (high - low) or 1.0
    return "".join(
        _BLOCKS[round((len(_BLOCKS) - 1) * (value - low) / height)] if math.isfinite(value) else " " for value in means
    )
