"""Curves over the steps of a run: gradient norms and what else the sampler reports, step sizes, scores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from scirocco.report import svg
from scirocco.report.columns import envelope
from scirocco.report.markup import Html, join, number, paragraph, tag
from scirocco.report.page import Section
from scirocco.run import Run
from scirocco.samplers import schedules

_MOST_CHAINS, _BINS = 8, 150
_SCHEDULES = {
    "Constant": schedules.Constant,
    "Polynomial": schedules.Polynomial,
    "Cyclical": schedules.Cyclical,
}


def section(run: Run) -> Section:
    """Statistics of every draw, and the step size."""
    charts, words = [], []
    for name, values in run.stats.items():
        if len(values.shape) != 2 or not values.shape[1]:
            continue
        array = np.asarray(values, np.float64)
        if np.ptp(array[np.isfinite(array)], axis=None) > 0 if np.isfinite(array).any() else False:
            charts.append(_stat(_words(name), array))
        else:
            words.append(f"{_words(name)} was {number(array.flat[0])} at every draw.")
    for name, size in _step_sizes(run.configuration.get("sampler")):
        if isinstance(size, float):
            words.append(f"{name} was constant: {number(size)}.")
        else:
            charts.append(_schedule(name, size, run))
    if not charts and not words:
        words.append("The sampler reported no statistics.")
    grid = tag("div", *charts, class_="charts") if charts else Html()
    title = "Gradients and step sizes" if "gradient_norm" in run.stats else "Statistics of the sampler"
    return Section("curves", title, join([*map(paragraph, words), grid]))


def _stat(name: str, array: Any) -> Html:
    frame = svg.Frame((0.0, max(1.0, array.shape[1] - 1.0)), svg.extent(array))
    lines = [
        svg.line(frame, *envelope(chain, _BINS), f"c{k % svg.NUM_COLOURS}")
        for k, chain in enumerate(array[:_MOST_CHAINS])
    ]
    return svg.figure(frame, [svg.axes(frame, "draw"), *lines], f"{name} at each draw")


def _step_sizes(sampler: Any) -> Iterator[tuple[str, Any]]:
    """Step sizes of a described sampler by name: numbers, or schedules that can be evaluated again."""
    if not isinstance(sampler, dict):
        return
    if isinstance(sampler.get("inner"), dict):
        yield from _step_sizes(sampler["inner"])
    yield from _parts(sampler.get("step_size"), "Step size")


def _parts(size: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(size, bool):
        return
    if isinstance(size, (int, float)):
        yield name, float(size)
    elif isinstance(size, dict) and size.get("name") in _SCHEDULES:
        fields = {key: value for key, value in size.items() if key != "name"}
        if all(isinstance(value, (int, float)) for value in fields.values()):
            yield name, _SCHEDULES[size["name"]](**fields)
    elif isinstance(size, dict) and "name" not in size and "shape" not in size:
        for key, value in size.items():
            yield from _parts(value, f"{name} of {key}")


def _schedule(name: str, schedule: Any, run: Run) -> Html:
    known = run.configuration
    num_steps = known.get("num_burnin", 0) + run.num_draws * known.get("thin", 1)
    steps = np.unique(np.linspace(0, max(num_steps - 1, 1), 2 * _BINS).astype(int))
    sizes = np.array([float(size) for size in np.asarray(schedule(steps))])
    frame = svg.Frame((0.0, float(steps[-1])), svg.extent(sizes, [0.0]))
    parts = [svg.axes(frame, "step, burn-in included"), svg.line(frame, steps, sizes, "thick c0")]
    return svg.figure(frame, parts, f"{name} at each step")


def scores(run: Run, wanted: tuple[str, ...] | None = None) -> Html | None:
    """What callbacks returned, a curve for each name; None where there is nothing."""
    names = list(dict.fromkeys(name for _, found in run.scores for name in found))
    charts = []
    for name in names if wanted is None else [name for name in names if name in wanted]:
        points = [(step, found[name]) for step, found in run.scores if name in found]
        steps, values = np.array(points, np.float64).T
        frame = svg.Frame(svg.extent(steps), svg.extent(values))
        last = f"{_words(name)}, {number(values[-1])} at the end"
        dots = [] if len(points) > 40 else [_dots(frame, steps, values)]
        parts = [svg.axes(frame, "step"), svg.line(frame, steps, values, "thick c0"), *dots]
        charts.append(svg.figure(frame, parts, last))
    return tag("div", *charts, class_="charts") if charts else None


def _dots(frame: svg.Frame, steps: Any, values: Any) -> Html:
    places = zip(frame.across(steps), frame.down(values), strict=True)
    kept = [(x, y) for x, y in places if np.isfinite(x) and np.isfinite(y)]
    return join(tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=2.5, class_="dot") for x, y in kept)


def _words(name: str) -> str:
    text = name.replace("_", " ")
    return f"{text[:1].upper()}{text[1:]}"
