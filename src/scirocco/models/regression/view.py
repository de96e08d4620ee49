"""A regression in a report: its coefficients by name, those first that are surest to differ from 0."""

from __future__ import annotations

import numpy as np

from scirocco.drawing.charts import forest
from scirocco.drawing.markup import Section, join, number, paragraph, search, sortable, tag
from scirocco.models.regression.results import Results
from scirocco.models._core.view import Seen, View, run_behind, size_of
from scirocco.run import Run

_FOREST = 40


def view(model: Results, run: Run | None) -> View:
    """Coefficients in the units of the columns; chains are diagnosed in their own coordinates."""
    draws, name = model.draws_, type(model).__name__
    if run is None:
        run = model.run_ or run_behind(name, draws, {}, "posterior draws", model.seed, "loaded")
    run = model._with_units(run)
    about = "The diagnostics use the coordinates of the sampler; the plots have the original units of the columns."
    return View(
        run,
        name,
        size_of(run, "columns", model.n_features_in_),
        about=about,
        charted=model.named_draws(),
        sections=lambda seen: [_coefficients(seen)],
    )


def _coefficients(seen: Seen) -> Section:
    """A chart in units of posterior standard deviations, and a table in the units of the columns."""
    places = [k for k, name in enumerate(seen.names) if name.startswith("coef[")]
    sd = np.maximum(np.nan_to_num(seen.summary["sd"]), 1e-300)
    sure = np.abs(np.nan_to_num(seen.summary["mean"])) / sd
    order = sorted(places, key=lambda k: -sure[k])
    names = [seen.names[k].removeprefix("coef[").removesuffix("]") for k in order]
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


def _rows(seen: Seen, order: list[int], names: list[str]) -> list[list[str]]:
    rows = []
    for place, name in zip(order, names, strict=True):
        values = seen.values[:, :, place]
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
