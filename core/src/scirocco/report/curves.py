"""Curves over the steps of a run: step sizes, how they were chosen, gradient noise, what the sampler reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from scirocco.analysis.diagnosis.noise import noise_along
from scirocco.drawing import svg
from scirocco.drawing.charts import envelope, spoken
from scirocco.drawing.markup import Html, Section, join, legend, number, paragraph, spot, tag
from scirocco.errors import SciroccoError
from scirocco.models._core.view import Draws
from scirocco.run import Run
from scirocco.run.cadence import cadence_of
from scirocco.samplers import schedules
from scirocco.samplers.schedules import Schedule

Array = np.ndarray[Any, np.dtype[Any]]
Size = float | str | Schedule
"""A step size: a number, text, or a schedule that can be evaluated."""

_MOST_CHAINS, _BINS = 8, 150  # chains in a chart, and bins of a trace
_POINTS = 300  # of a schedule
_MOST_CHARTS, _MOST_WORDS = 6, 12  # charts of step sizes, and sentences about them
_SCHEDULES = {"Constant": schedules.Constant, "Polynomial": schedules.Polynomial, "Cyclical": schedules.Cyclical}


def sections(run: Run, charted: Draws) -> list[Section]:
    """Step sizes, the search for them, gradient noise, and statistics of every draw that are not charted already.

    No section for models with their own sampling loop that have none of these.
    """
    tried = _search(run)
    charts, words = _sizes(run)
    noise, why = _gradient_noise(run)
    known, told = _stats(run, charted)
    parts = [tag("h3", "Step size"), *map(paragraph, words), _grid(charts)] if charts or words else []
    parts += [] if tried is None else [tag("h3", "The search for it"), tried]
    if why:
        parts += [tag("h3", "Gradient noise"), paragraph(why), _grid([noise] if noise else [])]
    if known or told:
        parts += [tag("h3", "Statistics of the draws"), *map(paragraph, told), _grid(known)]
    title = "Step sizes and gradients" if isinstance(run.configuration.get("sampler"), dict) else "Statistics"
    return [Section("curves", title, join(parts))] if parts else []


def _stats(run: Run, charted: Draws) -> tuple[list[Html], list[str]]:
    """Charts of statistics that change between draws, a sentence for each that does not."""
    charts, words = [], []
    drawn = [np.asarray(each) for each in charted.values() if len(each.shape) == 2]
    for name, values in run.stats.items():
        if len(values.shape) != 2 or not values.shape[1]:
            continue
        array = np.asarray(values, np.float64)
        finite = array[np.isfinite(array)]
        if _counts_draws(array) or any(np.array_equal(array, other) for other in drawn):
            continue
        if finite.size and np.ptp(finite) > 0:
            charts.append(_stat(spoken(name), array))
        else:
            value = finite[0] if finite.size else array.flat[0]
            some = "" if finite.size in (0, array.size) else "finite "
            words.append(f"{spoken(name)} was {number(value)} at every {some}draw.")
    return charts, words


def _counts_draws(array: Array) -> bool:
    """Whether a statistic only counts, such as the passes made so far."""
    steps = np.diff(array, axis=1)
    return bool(steps.size and steps[0, 0] > 0 and np.all(steps == steps[0, 0]) and np.all(array == array[0]))


def _grid(charts: list[Html]) -> Html:
    return tag("div", *charts, class_="charts") if charts else Html()


def _stat(name: str, array: Array) -> Html:
    frame = svg.ChartFrame((0.0, max(1.0, array.shape[1] - 1.0)), svg.extent(array))
    lines = [
        svg.line(frame, *envelope(chain, _BINS), f"c{k % svg.NUM_COLOURS}")
        for k, chain in enumerate(array[:_MOST_CHAINS])
    ]
    return svg.figure(frame, [svg.axes(frame, "draw"), *lines], f"{name} at each draw")


# -- step sizes, and what was tried before they were chosen -----------------------------------------------------------


def _sizes(run: Run) -> tuple[list[Html], list[str]]:
    """Charts of step sizes that change along the run, and a sentence for each that does not."""
    charts, words = [], []
    for name, size in _step_sizes(run.configuration.get("sampler")):
        if isinstance(size, str):
            words.append(f"{name}: {size}.")
        elif isinstance(size, float):
            words.append(f"{name} was constant: {number(size)}.")
        else:
            charts.append(_schedule(name, size, run))
    left = len(words) - _MOST_WORDS
    if left > 0:
        words = [*words[:_MOST_WORDS], f"{left:,} more are under “All settings”."]
    return charts[:_MOST_CHARTS], words


def _step_sizes(sampler: object, of: str = "") -> Iterator[tuple[str, Size]]:
    """Step sizes of a described sampler by name: numbers, text, or schedules that can be evaluated."""
    if not isinstance(sampler, dict):
        return
    if isinstance(sampler.get("inner"), dict):
        yield from _step_sizes(sampler["inner"], of)
    for name, block in _blocks(sampler.get("blocks")):
        yield from _step_sizes(block, f" of {name}")
    yield from _parts(sampler.get("step_size"), f"Step size{of}")


def _blocks(blocks: object) -> Iterator[tuple[str, object]]:
    """Samplers of the blocks of parameters, in any of the stored formats."""
    if isinstance(blocks, dict):
        yield from ((str(name), block) for name, block in blocks.items())
    elif isinstance(blocks, (list, tuple)):
        for place, block in enumerate(blocks):
            if isinstance(block, (list, tuple)) and len(block) == 2:
                yield str(block[0]), block[1]
            else:
                yield f"part {place}", block


def _parts(size: object, name: str) -> Iterator[tuple[str, Size]]:
    if isinstance(size, bool) or size is None:
        return
    if isinstance(size, (int, float)):
        yield name, float(size)
    elif isinstance(size, str):
        yield name, size
    elif isinstance(size, dict) and size.get("name") in _SCHEDULES:
        fields = {key: value for key, value in size.items() if key != "name"}
        if all(isinstance(value, (int, float)) for value in fields.values()):
            yield name, _SCHEDULES[size["name"]](**fields)
    elif isinstance(size, dict) and "shape" in size:
        yield name, f"an array of shape {tuple(size['shape'])}, a number for each parameter"
    elif isinstance(size, dict) and "name" not in size:
        for key, value in size.items():
            yield from _parts(value, f"{name} of {key}")
    elif isinstance(size, list) and all(isinstance(value, (int, float)) for value in size):
        yield (name, f"{number(min(size))} to {number(max(size))}, a number for each of {len(size):,} parameters")


def _schedule(name: str, schedule: Schedule, run: Run) -> Html:
    num_steps = cadence_of(run.configuration).steps(run.num_draws)
    when = np.unique(np.linspace(0, max(num_steps - 1, 1), _POINTS).astype(int))
    found = np.array([float(size) for size in np.asarray(schedule(when))])
    frame = svg.ChartFrame((0.0, float(when[-1])), svg.extent(found, [0.0]))
    parts = [svg.axes(frame, "step, burn-in included"), svg.line(frame, when, found, "thick c0")]
    return svg.figure(frame, parts, f"{name} at each step")


def _search(run: Run) -> Html | None:
    """What step_size="auto" tried: the discrepancy of each setting against its step size; None without a search."""
    tuning: dict[str, Any] = run.preparation.get("tuning") or {}
    trials = tuning.get("trials", [])
    tried = [trial for trial in trials if trial.get("ksd") and _is_number(trial["settings"].get("step_size"))]
    if not tried:
        return None
    chosen = ", ".join(f"{name} {_shown(value)}" for name, value in tuning["chosen"].items())
    lost = sum(trial["ksd"][0] is None for trial in tried)
    rounds = max(len(trial["ksd"]) for trial in tried)
    words = (
        f"{len(tried)} settings ran in parallel, {tuning['num_steps']:,} steps per round, and the best continued; the "
        f"kernel Stein discrepancy measures how far their draws are from the posterior (lower is better). "
        f"Chosen: {chosen.replace('_', ' ')}."
    )
    words += f" {lost} diverged (NaN or inf) and are not shown." if lost else ""
    return join([paragraph(words), _key(rounds), tag("div", _search_chart(tried, rounds), class_="charts")])


def _search_chart(tried: list[dict[str, Any]], rounds: int) -> Html:
    """A colour for each round; the ring is the best of the last."""
    points = [
        [(t["settings"]["step_size"], t["ksd"][k]) for t in tried if len(t["ksd"]) > k and t["ksd"][k] is not None]
        for k in range(rounds)
    ]
    every = np.array([point for part in points for point in part], np.float64).reshape(-1, 2)
    frame = svg.ChartFrame(svg.log_extent(every[:, 0]), svg.log_extent(every[:, 1]), height=190, logs="xy")
    parts = [svg.axes(frame, "step size")]
    for k, part in enumerate(points):
        if part:
            x, y = np.array(sorted(part), np.float64).T
            parts.append(svg.dots(frame, x, y, f"spot c{k % svg.NUM_COLOURS}", 3))
    if points and points[-1]:
        best = min(points[-1], key=lambda point: point[1])
        parts.append(svg.dots(frame, [best[0]], [best[1]], "ring", 6))
    return svg.figure(frame, parts, "Stein discrepancy against step size")


def _key(rounds: int) -> Html:
    names = [(f"spot c{k % svg.NUM_COLOURS}", f"round {k + 1}") for k in range(rounds)] + [("ring", "chosen")]
    return legend((spot(kind), words) for kind, words in names)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


def _shown(value: object) -> str:
    return number(value, 3) if isinstance(value, float) else str(value)


def _gradient_noise(run: Run) -> tuple[Html | None, str]:
    """A curve and its description; without a curve, one sentence that says why."""
    if not isinstance(run.configuration.get("sampler"), dict):
        return None, ""  # its own sampling loop, without gradients
    if run.origin is not None and run.origin.estimator.core.traits.is_exact:
        return None, "There is no gradient noise: every gradient is exact (all rows)."
    if run.certificate is not None and run.certificate.trustworthy:
        return None, f"Not shown, because it does no harm: {run.certificate}."
    try:
        found = noise_along(run)
    except SciroccoError as error:
        return None, f"Not shown: {error}"
    if not np.isfinite(found.largest).all():
        return None, "Not shown: the gradients at some draws are not finite."
    end = (float(found.steps[0]), float(max(found.steps[-1], found.steps[0] + 1)))
    top = max(float(found.largest.max()), 1e-12)
    frame = svg.ChartFrame(end, (0.0, top * 1.1))
    level = [svg.level(frame, 0.2)] if 0.2 <= frame.y[1] else []
    parts = [svg.axes(frame, "step, burn-in included"), *level]
    for values, colour in ((found.largest, "c1"), (found.median, "c0")):
        parts += [
            svg.line(frame, found.steps, values, f"thick {colour}"),
            svg.dots(frame, found.steps, values, f"spot {colour}"),
        ]
    words = (
        "The variance that gradient noise adds in a step, relative to the noise that the sampler injects: the worst "
        f"parameter (upper line, {number(found.largest[-1], 2)} at the end) and the median one (lower line, "
        f"{number(found.median[-1], 2)}). Unless the sampler corrects for it (a thermostat, SGHMC with measured "
        f"noise), variances are too large by about this ratio; above 0.2{', the dashed line,' if level else ''} "
        f"consider reducing it. {found.how}"
    )
    return svg.figure(frame, parts, "Gradient noise over injected noise"), words
