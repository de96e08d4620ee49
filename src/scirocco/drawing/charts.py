"""Charts that several sections share: intervals in rows, traces in rows, scores along a run."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from scirocco.drawing import svg
from scirocco.drawing.markup import Html, number, shorten, tag

Array = np.ndarray[Any, np.dtype[Any]]

_STEP, _LEFT = 18, 112
_SPARK, _SPARK_BINS = 30, 25


def forest(
    names: Sequence[str], means: Array, inner: Array, outer: Array, label: str, caption: object
) -> Html:
    """A row for each name: two intervals and a dot, on one axis."""
    frame = svg.Frame(svg.extent(outer), (0.0, 1.0), _STEP * len(names) + 40, left=_LEFT)
    dots, parts = frame.across(means), [svg.axes(frame, y_ticks=False)]
    if frame.x[0] < 0 < frame.x[1]:
        place = svg.short(frame.across(0.0))
        parts.append(tag("path", d=f"M{place} {frame.top}V{frame.height - frame.bottom}", class_="level"))
    for row, name in enumerate(names):
        y = frame.top + _STEP * (row + 0.5)
        parts.append(tag("g", tag("title", name), svg.text(_LEFT - 6, y + 3.5, shorten(name, 16), "end")))
        if not np.isfinite([means[row], *inner[row], *outer[row]]).all():
            continue
        for ends, class_ in ((outer, "outer"), (inner, "inner")):
            a, b = (svg.short(value) for value in frame.across(ends[row]))
            parts.append(tag("path", d=f"M{a} {y}H{b}", class_=class_))
        parts.append(tag("circle", cx=svg.short(dots[row]), cy=y, r=3, class_="dot"))
    return svg.figure(frame, parts, label, caption)


def sparks(names: Sequence[str], draws: ArrayLike, label: str, most_chains: int = 4) -> Html:
    """A row for each name: the trace of every chain on an axis of its own; draws are (chain, draw, name)."""
    values = np.asarray(draws, np.float64)[:most_chains]
    names = names[: values.shape[2]]
    height, rows = _SPARK * len(names) + 4, list[Html]()
    for row, name in enumerate(names):
        column = values[:, :, row]
        frame = svg.Frame(
            (0.0, max(1.0, column.shape[1] - 1.0)),
            svg.extent(column),
            _SPARK * (row + 1),
            left=_LEFT,
            top=_SPARK * row + 4,
            bottom=0,
        )
        rows.append(svg.text(_LEFT - 6, _SPARK * (row + 0.5) + 5.5, shorten(name, 16), "end"))
        rows += [
            svg.line(frame, *envelope(chain, _SPARK_BINS), f"c{k % svg.NUM_COLOURS}")
            for k, chain in enumerate(column)
        ]
    box = f"0 0 {svg.WIDTH} {height}"
    return tag("svg", *rows, viewBox=box, role="img", aria_label=label)


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
        frame = svg.Frame(svg.extent(when), svg.extent(values))
        last = f"{spoken(name)}, {number(values[-1])} at the end"
        dots = [] if len(points) > 40 else [svg.dots(frame, when, values)]
        parts = [svg.axes(frame, "step"), svg.line(frame, when, values, "thick c0"), *dots]
        charts.append(svg.figure(frame, parts, last))
    return tag("div", *charts, class_="charts") if charts else None


def spoken(name: str) -> str:
    """A name in code as words."""
    text = name.replace("_", " ")
    return f"{text[:1].upper()}{text[1:]}"
