"""Pictures of predictive checks and of simulation-based calibration, for reports and as matplotlib figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scirocco._extras import require
from scirocco.drawing import svg
from scirocco.drawing.charts import forest
from scirocco.drawing.markup import Html, Section, join, number, paragraph, sortable, tag

if TYPE_CHECKING:
    from scirocco.analysis.calibrating import SBC
    from scirocco.analysis.predictive import Checked, PredictiveCheck
    from scirocco.analysis.scores import Calibration

_TAILS = (0.05, 0.95)  # ends of the 90 % intervals
_MOST_CHARTS = 24  # in a report or figure


# -- predictive checks ------------------------------------------------------------------------------------------------


def check_section(check: PredictiveCheck, name: str) -> Section:
    """A predictive check in a report."""
    charts = [_density(check) if check.calibration is None else _calibrated(check.calibration)]
    parts = [paragraph(f"{check.words[0].upper()}{check.words[1:]}."), tag("div", *charts, class_="charts")]
    heads = ("statistic", "observed", "simulated", "5 %", "95 %", "p-value")
    parts.append(sortable(f"{name}-statistics", heads, map(_cells, check.statistics), "Test statistics"))
    if check.groups:
        names = [row.name for row in check.groups]
        spans = np.array([[row.low, row.high] for row in check.groups])
        seen = np.array([row.observed for row in check.groups])
        label = "Observed means of groups on the 90 % intervals of simulated ones"
        parts.append(tag("div", forest(names, seen, spans, spans, label, label), class_="charts"))
        parts.append(sortable(f"{name}-groups", heads, map(_cells, check.groups), "Means by group"))
    return Section(name, check.title, join(parts))


def _density(check: PredictiveCheck) -> Html:
    edges, observed, simulated = check.curve()
    low, high = np.quantile(simulated, _TAILS, axis=0)
    middle = 0.5 * (edges[1:] + edges[:-1])
    frame = svg.ChartFrame((edges[0], edges[-1]), svg.extent(observed, high, 0.0))
    words = "density" if check.kind == "continuous" else "root of the frequencies"
    parts = [svg.bars(frame, edges, observed, "band"), svg.line(frame, middle, simulated.mean(axis=0), "thick c0")]
    parts += [svg.line(frame, middle, ends, "c0") for ends in (low, high)]
    label = f"Observed (bars) and simulated (mean and 90 %) outcomes, {words}"
    return svg.figure(frame, [svg.axes(frame, "outcome"), *parts], label)


def _calibrated(found: Calibration) -> Html:
    table = found.table
    predicted, observed, _, errors = np.array(table).T
    errors = 2 * errors
    frame = svg.ChartFrame((0.0, 1.0), (0.0, 1.0))
    lines = [svg.line(frame, predicted, predicted + sign * errors, "c7") for sign in (-1, 0, 1)]
    parts = [svg.axes(frame, "predicted probability"), *lines, svg.dots(frame, predicted, observed)]
    return svg.figure(frame, parts, "Observed shares by predicted probability, and two standard errors")


def check_figure(check: PredictiveCheck) -> Any:
    """A predictive check as a matplotlib figure."""
    figures = require("matplotlib.figure", "check.plot()")
    last = check.calibration is not None or bool(check.groups)
    figure = figures.Figure(figsize=(4.0 * (2 + last), 3.0), layout="constrained")
    first, second, *more = figure.subplots(1, 2 + last)
    edges, observed, simulated = check.curve()
    low, high = np.quantile(simulated, _TAILS, axis=0)
    first.stairs(observed, edges, fill=True, color="0.85", label="observed")
    first.stairs(high, edges, baseline=low, fill=True, alpha=0.35, label="simulated, 90 %")
    first.stairs(simulated.mean(axis=0), edges)
    first.legend(fontsize=8)
    first.set_ylabel("density" if check.kind == "continuous" else "root of frequency")
    _deviations(second, check.statistics)
    for panel in more:
        if check.calibration is not None:
            table = check.calibration.table
            panel.plot([0, 1], [0, 1], linestyle=":", color="0.5")
            errors = [2 * row.standard_error for row in table]
            panel.errorbar([row.predicted for row in table], [row.observed for row in table], yerr=errors, fmt="o")
            panel.set(xlabel="predicted probability", ylabel="observed share")
        else:
            _deviations(panel, check.groups)
    return figure


def _deviations(panel: Any, rows: tuple[Checked, ...]) -> None:
    """Observed numbers in units of the simulated interval."""
    half = np.array([max(0.5 * (row.high - row.low), 1e-300) for row in rows])
    seen = np.array([(row.observed - 0.5 * (row.high + row.low)) for row in rows]) / half
    places = np.arange(len(rows))
    panel.hlines(places, -1, 1, linewidth=6, alpha=0.35)
    panel.plot(np.clip(seen, -5, 5), places, "ko")
    panel.set_yticks(places, [row.name for row in rows], fontsize=8)
    panel.invert_yaxis()
    panel.set_xlabel("observed (dot), in simulated 90 % intervals")


def _cells(row: Checked) -> list[str]:
    return [row.name, *(number(value) for value in row[1:5]), number(row.p_value, 2)]


# -- ranks ------------------------------------------------------------------------------------------------------------


def ranks_section(of: SBC, name: str) -> Section:
    """Simulation-based calibration in a report: the rank plot, one chart for each quantity."""
    order = np.argsort(of.p_values)
    places, found, low, high = of.curves(0.95)
    frame = svg.ChartFrame((0.0, 1.0), svg.extent(found[order[:_MOST_CHARTS]], low, high))
    charts = []
    for k in order[:_MOST_CHARTS]:
        lines = [svg.line(frame, places, ends, "c7") for ends in (low, high)]
        parts = [svg.axes(frame, "rank"), svg.level(frame, 0.0), *lines]
        parts.append(svg.line(frame, places, found[k], "thick c0"))
        charts.append(svg.figure(frame, parts, f"{of.names[k]}, p = {number(of.p_values[k], 2)}"))
    told = (
        "For data simulated from the prior, the rank of the true value among posterior draws is uniform if the "
        "posterior is right. Lines are the observed share of ranks below a rank minus the expected one, and the "
        "band that uniform ranks stay in with probability 95 %."
    )
    rows = [[of.names[k], number(of.p_values[k], 3), of.deviation(k)] for k in order]
    table = sortable(f"{name}-table", ("quantity", "p-value", "largest deviation"), rows, "Ranks", (0, 2))
    head = f"{of.words[0].upper()}{of.words[1:]}."
    content = [paragraph(head), paragraph(told), tag("div", *charts, class_="charts"), table]
    return Section(name, "Simulation-based calibration", join(content))


def ranks_figure(of: SBC, probability: float) -> Any:
    """The rank plot as a matplotlib figure."""
    figures = require("matplotlib.figure", "sbc.plot()")
    places, found, low, high = of.curves(probability)
    shown = np.argsort(of.p_values)[:_MOST_CHARTS]
    columns = min(4, len(shown))
    lines = -(-len(shown) // columns)
    figure = figures.Figure(figsize=(3.0 * columns, 2.2 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for panel, k in zip(panels, shown, strict=False):
        panel.fill_between(places, low, high, color="0.88", step="mid")
        panel.step(places, found[k], where="mid")
        panel.axhline(0.0, linewidth=0.6, color="0.5")
        panel.set_title(f"{of.names[k]}  p = {of.p_values[k]:.2g}", fontsize=9)
    for panel in panels[len(shown) :]:
        panel.set_visible(False)
    figure.supylabel("share of ranks - expected", fontsize=9)
    figure.supxlabel("rank of the truth, scaled to 0 ... 1", fontsize=9)
    return figure
