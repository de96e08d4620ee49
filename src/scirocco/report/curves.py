"""Curves over the steps of a run: step sizes, gradient noise, what the sampler reports, scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from scirocco.report import gradient_noise, steps, svg
from scirocco.report.columns import envelope
from scirocco.report.markup import Html, join, number, paragraph, tag
from scirocco.report.page import Section
from scirocco.run import Run

_MOST_CHAINS, _BINS = 8, 150


def section(run: Run) -> Section:
    """Step sizes, what was tried for them, gradient noise, and statistics of every draw."""
    tried = steps.search(run)
    charts, words = steps.sizes(run)
    noise, why = gradient_noise.chart(run)
    known, told = _stats(run)
    parts = [tag("h3", "Step size"), *map(paragraph, words), _grid(charts)] if charts or words else []
    parts += [] if tried is None else [tag("h3", "The search for it"), tried]
    parts += [tag("h3", "Gradient noise"), paragraph(why), _grid([noise] if noise else [])]
    if known or told:
        parts += [tag("h3", "Statistics of the draws"), *map(paragraph, told), _grid(known)]
    title = "Step sizes and gradients" if isinstance(run.configuration.get("sampler"), dict) else "Statistics"
    return Section("curves", title, join(parts))


def _stats(run: Run) -> tuple[list[Html], list[str]]:
    """Charts of what changes from draw to draw, words for what does not."""
    charts, words = [], []
    for name, values in run.stats.items():
        if len(values.shape) != 2 or not values.shape[1]:
            continue
        array = np.asarray(values, np.float64)
        finite = array[np.isfinite(array)]
        if finite.size and np.ptp(finite) > 0:
            charts.append(_stat(spoken(name), array))
        else:
            value = finite[0] if finite.size else array.flat[0]
            some = "" if finite.size in (0, array.size) else "finite "
            words.append(f"{spoken(name)} was {number(value)} at every {some}draw.")
    return charts, words


def _grid(charts: list[Html]) -> Html:
    return tag("div", *charts, class_="charts") if charts else Html()


def _stat(name: str, array: Any) -> Html:
    frame = svg.Frame((0.0, max(1.0, array.shape[1] - 1.0)), svg.extent(array))
    lines = [
        svg.line(frame, *envelope(chain, _BINS), f"c{k % svg.NUM_COLOURS}")
        for k, chain in enumerate(array[:_MOST_CHAINS])
    ]
    return svg.figure(frame, [svg.axes(frame, "draw"), *lines], f"{name} at each draw")


def scores(run: Run, wanted: tuple[str, ...] | None = None) -> Html | None:
    """What callbacks returned, a curve for each name; None where there is nothing."""
    names = list(dict.fromkeys(name for _, found in run.scores for name in found))
    charts = []
    for name in names if wanted is None else [name for name in names if name in wanted]:
        points = [(step, found[name]) for step, found in run.scores if name in found]
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
