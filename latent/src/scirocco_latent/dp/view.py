"""Clusters in a report: their number, weights and profiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from scirocco.drawing import svg
from scirocco.drawing.charts import forest, scores
from scirocco.drawing.markup import Html, Section, choice, interval_cell, join, number, paragraph, search, tag
from scirocco.models._core.view import View, size_of, with_draws
from scirocco.run import Run
from scirocco_latent.dp.estimator import DPMixture
from scirocco_latent.dp.results import Cluster

Profile = tuple[list[str], list[Html], tuple[str, str, str]]
"""Column names, the rows of a table, and its headings."""

# probability of intervals; most clusters, columns and rows of a forest plot that are shown
_INTERVAL, _MOST_CLUSTERS, _MOST_COLUMNS, _FOREST = 0.9, 60, 12, 30


def view(model: DPMixture, run: Run, names: Sequence[object] | None = None) -> View:
    """Report of the clusters; diagnostics use quantities that do not depend on the labels."""
    about = (
        "The diagnostics use quantities that do not depend on the labels of clusters: their number, the concentration "
        "and the largest weights. Quantities that are constant over all draws are omitted."
    )
    return View(
        run,
        f"DPMixture: {len(model.weights_)} clusters",
        size_of(run, "columns", model.n_features_in_),
        with_draws(run, model._watched()),
        about,
        sections=lambda seen: _sections(model, run, names),
        shows_scores=True,
    )


def _sections(model: DPMixture, run: Run, names: Sequence[object] | None) -> list[Section]:
    listed = model.clusters(model._level(_INTERVAL))
    columns = model.column_names(names)
    found = [
        _numbers(model),
        _weights(listed, model._level(_INTERVAL)),
        _profiles(model, listed[:_MOST_CLUSTERS], columns, len(listed)),
    ]
    scored = scores(run.scores)
    return found if scored is None else [*found, Section("scores", "Scores", scored)]


def _numbers(model: DPMixture) -> Section:
    found = np.asarray(model.num_clusters()).ravel()
    level = model._level(_INTERVAL)
    low, high = model.num_clusters(level)
    likely = f"between {low} and {high}" if low < high else f"{low}"
    words = (
        f"{number(found.mean(), 3)} clusters have rows on average; with probability {level:.0%} there are "
        f"{likely}. The posterior mean of the concentration is {number(model.concentration_, 3)}."
    )
    values, counts = np.unique(found, return_counts=True)
    frame = svg.ChartFrame((values[0] - 1.0, values[-1] + 1.0), (0.0, counts.max() / found.size * 1.05))
    bars = [
        svg.bars(frame, [value - 0.45, value + 0.45], [times / found.size], "c0")
        for value, times in zip(values, counts, strict=True)
    ]
    chart = svg.figure(frame, [svg.axes(frame, "clusters"), *bars], "Posterior of the number of clusters")
    return Section("number", "Number of clusters", join([paragraph(words), tag("div", chart, class_="charts")]))


def _weights(listed: Sequence[Cluster], level: float) -> Section:
    shown = listed[:_FOREST]
    means = np.array([row.weight for row in shown])
    outer = np.array([[row.low, row.high] for row in shown])
    names = [f"cluster {row.label}" for row in shown]
    label = "Weights of the clusters"
    chart = forest(names, means, np.stack([means, means], axis=1), outer, label, Html())
    words = f"Posterior means with the central {level:.0%}; clusters are matched between draws."
    if len(listed) > len(shown):
        words += f" The {len(shown)} largest of {len(listed)} are shown."
    return Section("weights", "Weights", join([paragraph(words), tag("div", chart, class_="charts")]))


def _profiles(model: DPMixture, listed: Sequence[Cluster], columns: list[str], total: int) -> Section:
    counts, level = model.base_ == "multinomial", model._level(_INTERVAL)
    make = _counted(model, columns) if counts else _real(model, columns)
    cards = [_card(row, place, make(row.label)) for place, row in enumerate(listed)]
    words = (
        "The most probable columns of each cluster. Bar: their mean probability in the cluster, and its ratio to that "
        f"in all rows; thick line: its central {level:.0%}; each cluster has its own axis, from 0."
        if counts
        else f"Mean of each column in the cluster: the thick line is its central {level:.0%}, the thin line plus "
        "or minus one standard deviation of the rows in the cluster. A column has the same axis in all clusters, and "
        "the columns in which the cluster differs most come first."
    )
    if len(columns) > _MOST_COLUMNS:
        words += f" {_MOST_COLUMNS} of {len(columns):,} columns."
    if total > len(listed):
        words += f" The {len(listed)} largest of {total} clusters."
    orders = [("place up", "weight"), ("number up", "number")]
    box = search("clusters", "Find a column", "cards")
    controls = tag("div", box, choice("clusters", orders), class_="controls")
    deck = tag("div", *cards, id="clusters", class_="cards ratios" if counts else "cards")
    return Section("profiles", "Profiles", join([paragraph(words), controls, deck]))


def _card(row: Cluster, place: int, made: Profile) -> Html:
    names, rows, heads = made
    label = row.label
    head = [tag("th", text, scope="col", class_="num" if k == 1 else None) for k, text in enumerate(heads)]
    said = f"weight {number(row.weight, 3)} ({number(row.low, 3)} to {number(row.high, 3)})"
    table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows), aria_label=f"Profile of cluster {label}")
    return tag(
        "article",
        tag("h3", f"Cluster {label}"),
        paragraph(said, class_="note"),
        table,
        id=f"cluster-{label}",
        class_="card",
        tabindex="-1",
        aria_label=f"Cluster {label}",
        data_text=f"cluster {label} " + " ".join(names),
        data_place=place,
        data_number=label,
    )


def _counted(model: DPMixture, columns: list[str]) -> Callable[[int], Profile]:
    components, weights = np.asarray(model.components_), np.asarray(model.weights_)
    everywhere = np.maximum(weights @ components / weights.sum(), 1e-300)
    order = np.argsort(-components, axis=1, kind="stable")[:, :_MOST_COLUMNS]
    low, high = model.intervals(model._level(_INTERVAL), order)["components"]

    def make(label: int) -> Profile:
        rows, largest = [], float(np.nan_to_num(high[label]).max())
        for k, a, b in zip(order[label], low[label], high[label], strict=True):
            share = float(components[label, k])
            times = f"{number(share, 2)} (×{number(share / everywhere[k], 2)})"
            ends = f"{number(a, 3)} to {number(b, 3)}"
            cells = tag("th", columns[k], scope="row"), tag("td", times, class_="num", title=ends)
            rows.append(tag("tr", *cells, interval_cell(share, a, b, largest)))
        return [columns[k] for k in order[label]], rows, ("column", "probability", "interval")

    return make


def _real(model: DPMixture, columns: list[str]) -> Callable[[int], Profile]:
    means, sds = np.asarray(model.means_), 1 / np.sqrt(np.asarray(model.precisions_))
    weights = np.asarray(model.weights_) / np.sum(model.weights_)
    middle = weights @ means
    overall = np.sqrt(weights @ (sds**2 + (means - middle) ** 2))
    apart = np.abs(means - middle) / np.maximum(overall, 1e-300)
    order = np.argsort(-apart, axis=1, kind="stable")[:, :_MOST_COLUMNS]
    low, high = model.intervals(model._level(_INTERVAL), order)["means"]
    start, end = (means - sds).min(axis=0), (means + sds).max(axis=0)

    def make(label: int) -> Profile:
        rows = []
        for k, a, b in zip(order[label], low[label], high[label], strict=True):
            mean, sd = means[label, k], sds[label, k]
            ends = f"{number(a, 3)} to {number(b, 3)}; sd of the rows {number(sd, 2)}"
            cells = tag("th", columns[k], scope="row"), tag("td", number(mean, 3), class_="num", title=ends)
            first = start[k]
            around = (float(mean - sd - first), float(mean + sd - first))
            drawn = interval_cell(mean - first, a - first, b - first, end[k] - first, around)
            rows.append(tag("tr", *cells, drawn))
        return [columns[k] for k in order[label]], rows, ("column", "mean", "interval")

    return make
