"""`scirocco watch`: a live picture of a run in the terminal, or lines where there is none."""

from __future__ import annotations

import importlib.util
import itertools
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scirocco.cli._ending import ending_at_once
from scirocco.cli._typer import width as terminal_width
from scirocco.cli.watch_state import State, curves, effective, read_state
from scirocco.errors import StoreError
from scirocco.run.listing import NOT_BEGUN

ENDED_WELL = ("complete", "stopped")
_GOES_ON = ("running", NOT_BEGUN)
_BLOCKS = "▁▂▃▄▅▆▇█"
_BAR, _WIDTH = 40, 50
_ESS_SHARE = 0.1
"""The share of the time that the effective sample size may take."""
_COLOURS = {"running": "cyan", "complete": "green", "stopped": "green"}


class Watch:
    """Looks at a folder now and then, and keeps what is dear to compute."""

    def __init__(self, path: Path):
        self.path = path
        self.state = read_state(path)
        self._ess: float | None = None
        self._seen: Any = None
        self._next = 0.0

    def look(self) -> bool:
        """Whether there is something new."""
        before = self.state.mark
        try:
            self.state = read_state(self.path)
        except (
            StoreError
        ):  # being written just now; what is really damaged stays so, and is told the second time
            time.sleep(0.2)
            self.state = read_state(self.path)
        return self.state.mark != before

    def ess(self) -> float | None:
        """The smallest effective sample size, computed again when there are new draws, and not too often."""
        now = time.monotonic()
        if self._seen != self.state.mark and (now >= self._next or self.state.status not in _GOES_ON):
            self._seen, self._ess = self.state.mark, effective(self.state)
            took = time.monotonic() - now
            self._next = time.monotonic() + took / _ESS_SHARE
        return self._ess


def follow(path: Path, *, once: bool, every: float) -> str:
    """Show a run until it ends; its last status."""
    watch = Watch(path)
    if once:
        print("\n".join(frame(watch)))
        return watch.state.status
    goes_on = "; the run goes on" if watch.state.status == "running" else ""
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
        title, *rest = frame(watch)
        style = _COLOURS.get(watch.state.status, "red")
        return Group(Text(title, style=f"bold {style}"), *(Text(line, no_wrap=True) for line in rest))

    with Live(picture(), auto_refresh=False) as live:
        while watch.state.status in _GOES_ON:
            time.sleep(every)
            watch.look()
            live.update(picture(), refresh=True)


def _lines(watch: Watch, every: float) -> None:
    print(line(watch), flush=True)
    while watch.state.status in _GOES_ON:
        time.sleep(every)
        if watch.look():
            print(line(watch), flush=True)


def line(watch: Watch) -> str:
    """Where it stands, in one line."""
    state, ess = watch.state, watch.ess()
    parts = [f"{time.strftime('%H:%M:%S')} {_phase(state)} {_progress(state)}"]
    parts += [f"ESS {ess:,.0f}"] if ess is not None else []
    parts += [f"{name} {values[-1]:.5g}" for name, values in curves(state).items()]
    return ", ".join(parts)


def frame(watch: Watch) -> list[str]:
    """Where it stands, as lines of a picture; the first is the title."""
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
    """What a line of the terminal leaves for a picture between its name and its words."""
    return max(8, min(most, terminal_width() - width - len(words) - 4))


def _bar(share: float, length: int) -> str:
    full = round(length * share)
    return f"{'━' * full}{'╌' * (length - full)} "


def _parts(state: State, width: int) -> list[str]:
    if state.kind == "run":
        return [f"  {'chains':<{width}} {state.parts[0].num_chains}"]
    rows = []
    for part in state.parts:
        far = f"{part.draws:,} of {part.num_samples:,} draws" if part.num_samples else ""
        rows.append(f"  {part.name:<{width}} {part.status:<12} {far}")
    return rows


def _phase(state: State) -> str:
    if state.status != "running":
        return state.status
    return "burn-in" if all(part.burning for part in state.parts if part.num_steps) else "sampling"


def _progress(state: State) -> str:
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
    """A curve in one line: means of equal parts where there are many; a blank for what is not finite.

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
        _BLOCKS[round((len(_BLOCKS) - 1) * (value - low) / height)] if math.isfinite(value) else " "
        for value in means
    )
