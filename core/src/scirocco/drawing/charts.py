"""Charts that several sections share: intervals in rows, traces in rows, scores along a run."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from scirocco.drawing import svg
from scirocco.drawing.markup import Html, breakable, number, tag

Array = np.ndarray[Any, np.dtype[Any]]

_AXIS = 22  # pixels of an axis
_SPARK, _SPARK_BINS = 30, 25  # pixels of a small trace, and its bins


def forest(names: Sequence[str], means: Array, inner: Array, outer: Array, label: str, caption: object) -> Html:
    """A row for each name: two intervals and a dot, on one axis."""
    frame = svg.ChartFrame(svg.extent(outer), (0.0, 1.0), _AXIS, bottom=_AXIS)
    zero = svg.share(frame.across(0.0))
    level = [tag("line", x1=zero, x2=zero, y2="100%", class_="level")] * (frame.x[0] < 0 < frame.x[1])
    rows = list[Html]()
    for row, name in enumerate(names):
        parts = list(level)
        if np.isfinite([means[row], *inner[row], *outer[row]]).all():
            for ends, class_ in ((outer, "outer"), (inner, "inner")):
                a, b = map(svg.share, frame.across(ends[row]))
                parts.append(tag("line", x1=a, x2=b, y1="50%", y2="50%", class_=class_))
            middle = svg.share(frame.across(means[row]))
            parts.append(tag("circle", cx=middle, cy="50%", r=2.2, class_="middle"))
        rows += _row(name, tag("svg", *parts, aria_hidden="true"))
    rows += _row("", tag("svg", svg.axes(frame, y_ticks=False), aria_hidden="true"))
    drawn = tag("div", *rows, class_="rows", role="group", aria_label=label)
    return tag("figure", tag("figcaption", caption) if caption else Html(), drawn)


def sparks(names: Sequence[str], draws: ArrayLike, label: str, most_chains: int = 4) -> Html:
    """A row for each name: the trace of every chain on an axis of its own; draws are (chain, draw, name)."""
    values, rows = np.asarray(draws, np.float64)[:most_chains], list[Html]()
    for row, name in enumerate(names[: values.shape[2]]):
        column = values[:, :, row]
        end = max(1.0, column.shape[1] - 1.0)
        frame = svg.ChartFrame((0.0, end), svg.extent(column), _SPARK, top=2, bottom=2)
        lines = [
            svg.line(frame, *envelope(chain, _SPARK_BINS), f"c{k % svg.NUM_COLOURS}") for k, chain in enumerate(column)
        ]
        rows += _row(name, tag("svg", svg.stretched(_SPARK, lines), aria_hidden="true"))
    return tag("div", *rows, class_="rows sparks", role="group", aria_label=label)


def _row(name: str, drawn: Html) -> tuple[Html, Html]:
    """A name, which wraps, and what is drawn next to it."""
    return tag("span", breakable(name)), tag("div", drawn)


def envelope(values: Array, num_bins: int) -> tuple[Array, Array]:
    """A line through few points that keeps every extreme: the smallest and largest value of each bin, in order."""
    length = len(values)
    if length <= 2 * num_bins:
        return np.arange(length, dtype=float), values
    edges = np.linspace(0, length, num_bins + 1).astype(int)
    places: list[int] = []
    for start, end in itertools.pairwise(edges):
        part = np.nan_to_num(values[start:end])
        places += sorted((start + int(part.argmin()), start + int(part.argmax())))
    return np.asarray(places, float), values[places]


def scores(kept: Sequence[tuple[int, dict[str, float]]]) -> Html | None:
    """The scores that callbacks returned, one curve for each name; None if there are none."""
    names = list(dict.fromkeys(name for _, found in kept for name in found))
    charts = []
    for name in names:
        points = [(step, found[name]) for step, found in kept if name in found]
        when, values = np.array(points, np.float64).T
        frame = svg.ChartFrame(svg.extent(when), svg.extent(values))
        last = f"{spoken(name)}, {number(values[-1])} at the end"
        dots = [] if len(points) > 40 else [svg.dots(frame, when, values)]
        parts = [svg.axes(frame, "step"), svg.line(frame, when, values, "thick c0"), *dots]
        charts.append(svg.figure(frame, parts, last))
    return tag("div", *charts, class_="charts") if charts else None


_SHORT = {"n": "number of", "num": "number of"}


def spoken(name: str) -> str:
    """A name in code as words."""
    text = " ".join(_SHORT.get(word, word) for word in name.split("_"))
    return f"{text[:1].upper()}{text[1:]}"
