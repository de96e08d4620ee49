"""Small charts as SVG, without a plotting library: axes, lines, bars, bands, intervals.

A chart is as wide as its place on the page: horizontal positions are shares of the width, so that lines are stretched
and text keeps its size, on a phone and on a wide screen. Colours are classes of the page's style sheet, which has a
light and a dark mode.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import ArrayLike

from scirocco.drawing.markup import Html, join, tag

Array = np.ndarray[Any, np.dtype[Any]]

NUM_COLOURS = 8  # in the style sheet: c0 to c7
_WIDTH = 1000
"""Units of a path across a chart, whatever its width."""


@dataclass(frozen=True)
class ChartFrame:
    """The plot area, and the scales of its axes; heights and margins are in pixels."""

    x: tuple[float, float]
    y: tuple[float, float]
    height: int = 150
    left: int = 46
    right: int = 8
    top: int = 6
    bottom: int = 32
    logs: str = ""
    """Axes with a logarithmic scale: "x", "y" or "xy"."""

    def across(self, values: ArrayLike) -> Array:
        """Horizontal positions of values, as shares of the width."""
        return _shares(values, self.x, "x" in self.logs)

    def down(self, values: ArrayLike) -> Array:
        """Vertical positions of values."""
        low = self.height - self.bottom
        return low - _shares(values, self.y, "y" in self.logs) * (low - self.top)


def _shares(values: ArrayLike, ends: tuple[float, float], logarithmic: bool) -> Array:
    low, high = ends
    array = np.asarray(values, np.float64)
    if logarithmic:
        low, high = math.log(low), math.log(high)
        with np.errstate(divide="ignore", invalid="ignore"):
            array = np.log(array)
    shares: Array = (array - low) / (high - low)
    return shares


def log_extent(*values: ArrayLike, margin: float = 0.06) -> tuple[float, float]:
    """Ends of a logarithmic axis that includes all finite values above 0."""
    flat = np.concatenate([np.ravel(np.asarray(part, np.float64)) for part in values])
    flat = flat[np.isfinite(flat) & (flat > 0)]
    if not flat.size:
        return 1.0, 10.0
    low, high = math.log(flat.min()), math.log(flat.max())
    room = max((high - low) * margin, 0.1)
    return math.exp(low - room), math.exp(high + room)


def extent(*values: ArrayLike, margin: float = 0.04) -> tuple[float, float]:
    """Ends of an axis that includes all finite values."""
    flat = np.concatenate([np.ravel(np.asarray(part, np.float64)) for part in values])
    flat = flat[np.abs(flat) < 1e300]  # so that sums and differences are finite too
    if not flat.size:
        return 0.0, 1.0
    low, high = float(flat.min()), float(flat.max())
    room = (high - low) * margin
    if room <= 1e-12 * max(abs(low), abs(high)):
        room = abs(low) * 0.1 or 1.0
    return low - room, high + room


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between two ends: multiples of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((m * power for m in (1.0, 2.0, 5.0) if m * power >= raw), 10.0 * power)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten between two ends; with 2 and 5 times them where there are few, or every other where many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1.0, 2.0, 5.0) if len(powers) <= 3 else (1.0,)
    every = max(1, -(-len(powers) // 6))
    found = [step * 10.0**power for power in powers if power % every == 0 for step in steps]
    return [value for value in found if low <= value <= high]


def figure(frame: ChartFrame, parts: Sequence[Html], label: str, caption: object = None) -> Html:
    """A chart with a text description for screen readers."""
    drawn = tag(
        "svg",
        stretched(frame.height, parts),
        class_="plot",
        height=frame.height,
        style=f"--left:{frame.left}px;--right:{frame.right}px",
        role="img",
        aria_label=label,
    )
    words = label if caption is None else caption
    return tag("figure", tag("figcaption", words) if words else Html(), drawn)


def stretched(height: int, parts: Sequence[Html]) -> Html:
    """Parts of a chart; the paths among them are stretched to its width."""
    box = {"viewBox": f"0 0 {_WIDTH} {height}", "height": height, "preserveAspectRatio": "none"}
    groups = itertools.groupby(parts, lambda part: part.startswith("<path"))
    return join(tag("svg", *group, **box) if paths else join(group) for paths, group in groups)


def axes(frame: ChartFrame, x_label: str = "", y_ticks: bool = True) -> Html:
    """Lines, ticks and numbers."""
    base, parts = frame.height - frame.bottom, []
    for value in log_ticks(*frame.x) if "x" in frame.logs else ticks(*frame.x):
        place = share(frame.across(value))
        parts.append(tag("line", x1=place, x2=place, y1=base, y2=base + 4, class_="axis"))
        parts.append(text(place, base + 15, _tick(value, frame.x, "x" in frame.logs), "middle"))
    heights = log_ticks(*frame.y) if "y" in frame.logs else ticks(*frame.y, 4)
    for value in heights if y_ticks else []:
        parts.append(level(frame, value, "grid"))
        parts.append(text(-5, frame.down(value) + 3.5, _tick(value, frame.y, "y" in frame.logs), "end"))
    parts.append(tag("line", x2="100%", y1=base, y2=base, class_="axis"))
    if x_label:
        parts.append(text("50%", frame.height - 3, x_label, "middle"))
    return join(parts)


def line(frame: ChartFrame, xs: ArrayLike, ys: ArrayLike, class_: str) -> Html:
    """A line, broken where values are not finite."""
    px, py = _WIDTH * frame.across(xs), frame.down(ys)
    path, pen = [], "M"
    for x, y in zip(px.tolist(), py.tolist(), strict=True):
        if not (math.isfinite(x) and math.isfinite(y)):
            pen = "M"
            continue
        path.append(f"{pen}{x:.0f} {short(y)}")
        pen = "L"
    return tag("path", d="".join(path) or "M0 0", class_=f"line {class_}")


def level(frame: ChartFrame, value: float, class_: str = "level") -> Html:
    """A horizontal line at a value."""
    place = short(frame.down(value))
    return tag("line", x2="100%", y1=place, y2=place, class_=class_)


def bars(frame: ChartFrame, edges: ArrayLike, heights: ArrayLike, class_: str) -> Html:
    """A histogram from 0 up."""
    px, py = (_WIDTH * frame.across(edges)).tolist(), frame.down(heights).tolist()
    zero = short(frame.down(0.0))
    path = [f"M{a:.0f} {zero}V{short(y)}H{b:.0f}V{zero}z" for a, b, y in zip(px[:-1], px[1:], py, strict=True)]
    return tag("path", d="".join(path), class_=f"bars {class_}")


def band(frame: ChartFrame, low: float, high: float) -> Html:
    """A horizontal band between two values."""
    top, end = float(frame.down(high)), float(frame.down(low))
    return tag("rect", width="100%", y=short(top), height=short(end - top), class_="band")


def dots(frame: ChartFrame, xs: ArrayLike, ys: ArrayLike, class_: str = "dot", radius: float = 2.5) -> Html:
    """Circles at finite values."""
    places = zip(frame.across(xs).tolist(), frame.down(ys).tolist(), strict=True)
    kept = [(x, y) for x, y in places if math.isfinite(x) and math.isfinite(y)]
    return join(tag("circle", cx=share(x), cy=short(y), r=radius, class_=class_) for x, y in kept)


def text(x: object, y: SupportsFloat, words: str, anchor: str) -> Html:
    """Text at a position; `anchor` is start, middle or end."""
    return tag("text", words, x=x, y=short(y), text_anchor=anchor)


def _tick(value: float, ends: tuple[float, float], logarithmic: bool = False) -> str:
    """Format a number with enough digits to distinguish it from its neighbours."""
    if logarithmic:
        return f"{value:.3g}"
    largest = max(abs(ends[0]), abs(ends[1]))
    if value == round(value) and 1_000 <= abs(value) < 1_000_000:
        return f"{value:.0f}"
    digits = max(3, math.ceil(math.log10(max(largest / (ends[1] - ends[0]), 1.0))) + 2)
    return f"{0.0 if abs(value) < 1e-9 * largest else value:.{digits}g}"


def short(value: SupportsFloat) -> str:
    """Format with at most one decimal: a tenth of a pixel."""
    return f"{float(value):.1f}".removesuffix(".0")


def share(value: SupportsFloat) -> str:
    """A share of the width as a percentage."""
    return f"{100 * float(value):.2f}%"
