"""Small charts as SVG, written by hand: axes, lines, bars, bands, intervals.

Charts are 340 units wide, the width of a phone, so that their text is readable there; wider screens put several side
by side. Colours are classes of the page's style sheet, which knows light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scirocco.report.markup import Html, join, shorten, tag

Array = np.ndarray[Any, np.dtype[Any]]

WIDTH = 340
NUM_COLOURS = 8


@dataclass(frozen=True)
class Frame:
    """Where the numbers are on the paper."""

    x: tuple[float, float]
    y: tuple[float, float]
    height: int = 150
    left: int = 46
    right: int = 8
    top: int = 6
    bottom: int = 32

    def across(self, values: Any) -> Array:
        """Horizontal places of values."""
        return self.left + _shares(values, self.x) * (WIDTH - self.left - self.right)

    def down(self, values: Any) -> Array:
        """Vertical places of values."""
        low = self.height - self.bottom
        return low - _shares(values, self.y) * (low - self.top)


def _shares(values: Any, ends: tuple[float, float]) -> Array:
    low, high = ends
    shares: Array = (np.asarray(values, np.float64) - low) / (high - low)
    return shares


def extent(*values: Any, margin: float = 0.04) -> tuple[float, float]:
    """Ends of an axis that holds all finite values."""
    flat = np.concatenate([np.ravel(np.asarray(part, np.float64)) for part in values])
    flat = flat[np.isfinite(flat)]
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


def figure(frame: Frame, parts: Sequence[Html], label: str, caption: Any = None) -> Html:
    """A chart with what it shows in words, for those who do not see it."""
    box = f"0 0 {WIDTH} {frame.height}"
    drawn = tag("svg", *parts, viewBox=box, role="img", aria_label=label)
    return tag("figure", tag("figcaption", label if caption is None else caption), drawn)


def axes(frame: Frame, x_label: str = "", y_ticks: bool = True) -> Html:
    """Lines, ticks and numbers."""
    base, parts = frame.height - frame.bottom, []
    for value in ticks(*frame.x):
        place = _short(frame.across(value))
        parts.append(tag("path", d=f"M{place} {base}v4", class_="axis"))
        parts.append(_text(place, base + 15, _tick(value, frame.x), "middle"))
    for value in ticks(*frame.y, 4) if y_ticks else []:
        place = _short(frame.down(value))
        parts.append(tag("path", d=f"M{frame.left} {place}H{WIDTH - frame.right}", class_="grid"))
        parts.append(_text(frame.left - 5, float(place) + 3.5, _tick(value, frame.y), "end"))
    parts.append(tag("path", d=f"M{frame.left} {base}H{WIDTH - frame.right}", class_="axis"))
    if x_label:
        middle = (frame.left + WIDTH - frame.right) / 2
        parts.append(_text(_short(middle), frame.height - 3, x_label, "middle"))
    return join(parts)


def line(frame: Frame, xs: Any, ys: Any, class_: str) -> Html:
    """A line, broken where values are not finite."""
    px, py = frame.across(xs), frame.down(ys)
    path, pen = [], "M"
    for x, y in zip(px.tolist(), py.tolist(), strict=True):
        if not (math.isfinite(x) and math.isfinite(y)):
            pen = "M"
            continue
        path.append(f"{pen}{_short(x)} {_short(y)}")
        pen = "L"
    return tag("path", d="".join(path) or "M0 0", class_=f"line {class_}")


def level(frame: Frame, value: float, class_: str = "level") -> Html:
    """A horizontal line at a value."""
    return tag("path", d=f"M{frame.left} {_short(frame.down(value))}H{WIDTH - frame.right}", class_=class_)


def bars(frame: Frame, edges: Any, heights: Any, class_: str) -> Html:
    """A histogram from 0 up."""
    px, py, zero = frame.across(edges).tolist(), frame.down(heights).tolist(), _short(frame.down(0.0))
    path = [
        f"M{_short(a)} {zero}V{_short(y)}H{_short(b)}V{zero}z"
        for a, b, y in zip(px[:-1], px[1:], py, strict=True)
    ]
    return tag("path", d="".join(path), class_=f"bars {class_}")


def band(frame: Frame, low: float, high: float) -> Html:
    """A horizontal band between two values."""
    top, end = _short(frame.down(high)), _short(frame.down(low))
    return tag("path", d=f"M{frame.left} {top}H{WIDTH - frame.right}V{end}H{frame.left}z", class_="band")


def forest(names: Sequence[str], means: Any, inner: Any, outer: Any, label: str, caption: Any) -> Html:
    """A row for each name: two intervals and a dot, on one axis."""
    step = 18
    frame = Frame(extent(outer), (0.0, 1.0), step * len(names) + 40, left=112)
    dots, parts = frame.across(means), [axes(frame, y_ticks=False)]
    if frame.x[0] < 0 < frame.x[1]:
        place = _short(frame.across(0.0))
        parts.append(tag("path", d=f"M{place} {frame.top}V{frame.height - frame.bottom}", class_="level"))
    for row, name in enumerate(names):
        y = frame.top + step * (row + 0.5)
        parts.append(tag("g", tag("title", name), _text(106, y + 3.5, shorten(name, 18), "end")))
        if not np.isfinite([means[row], *inner[row], *outer[row]]).all():
            continue
        for ends, class_ in ((outer, "outer"), (inner, "inner")):
            a, b = (_short(value) for value in frame.across(ends[row]))
            parts.append(tag("path", d=f"M{a} {y}H{b}", class_=class_))
        parts.append(tag("circle", cx=_short(dots[row]), cy=y, r=3, class_="dot"))
    return figure(frame, parts, label, caption)


def _text(x: Any, y: Any, words: str, anchor: str) -> Html:
    return tag("text", words, x=x, y=_short(y), text_anchor=anchor)


def _tick(value: float, ends: tuple[float, float]) -> str:
    """As many digits as tell neighbours apart."""
    largest = max(abs(ends[0]), abs(ends[1]))
    if value == round(value) and 1_000 <= abs(value) < 1_000_000:
        return f"{value:.0f}"
    digits = max(3, math.ceil(math.log10(max(largest / (ends[1] - ends[0]), 1.0))) + 2)
    return f"{0.0 if abs(value) < 1e-9 * largest else value:.{digits}g}"


def _short(value: Any) -> str:
    """One decimal at most: a tenth of a pixel on a phone."""
    return f"{float(value):.1f}".removesuffix(".0")
