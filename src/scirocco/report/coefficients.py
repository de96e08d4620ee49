"""The coefficients of a regression by name, those first that are surest to differ from 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from scirocco.report.chains import View
from scirocco.report.charts import forest
from scirocco.report.markup import join, number, paragraph, tag
from scirocco.report.page import Section
from scirocco.report.tables import search, sortable

_FOREST = 40


def section(seen: View) -> Section:
    """A chart in units of posterior standard deviations, and a table in the units of the columns."""
    places = [k for k, name in enumerate(seen.columns.names) if name.startswith("coef[")]
    sd = np.maximum(np.nan_to_num(seen.summary["sd"]), 1e-300)
    sure = np.abs(np.nan_to_num(seen.summary["mean"])) / sd
    order = sorted(places, key=lambda k: -sure[k])
    names = [seen.columns.names[k].removeprefix("coef[").removesuffix("]") for k in order]
    shown = order[:_FOREST]
    scaled = {
        name: seen.summary[name][shown] / sd[shown] for name in ("mean", "low", "lower", "upper", "high")
    }
    inner, outer = (
        np.stack([scaled[a], scaled[b]], axis=1) for a, b in (("lower", "upper"), ("low", "high"))
    )
    label = "Coefficients in posterior standard deviations from 0"
    chart = forest(names[:_FOREST], scaled["mean"], inner, outer, label, label)
    words = (
        "By how many posterior standard deviations a coefficient differs from 0: the dot is its mean, the lines hold "
        "50 % and 90 % of it. Those that are surest to have their sign come first."
    )
    if len(order) > _FOREST:
        words += f" The first {_FOREST} of {len(order):,} are drawn."
    table = sortable("coefficients", _HEADS, _rows(seen, order, names), "Coefficients")
    controls = tag("div", search("coefficients", "Find a coefficient", "rows"), class_="controls")
    parts = [paragraph(words, " ", seen.cut), tag("div", chart, class_="charts"), controls, table]
    return Section("coefficients", "Coefficients", join(parts))


_HEADS = ["coefficient", "mean", "sd", "5 %", "95 %", "|mean| / sd", "P(sign)"]


def _rows(seen: View, order: list[int], names: list[str]) -> list[list[Any]]:
    rows = []
    for place, name in zip(order, names, strict=True):
        values = seen.columns.values[:, :, place]
        above = float(np.mean(values > 0))
        mean, sd = seen.summary["mean"][place], seen.summary["sd"][place]
        numbers = [
            mean,
            sd,
            seen.summary["low"][place],
            seen.summary["high"][place],
            abs(mean) / max(sd, 1e-300),
        ]
        rows.append([name, *(number(value) for value in numbers), number(max(above, 1 - above))])
    return rows
