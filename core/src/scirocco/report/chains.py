"""Sections about the draws of parameters: intervals, traces, ranks, autocorrelation, a table of all."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from scirocco.diagnostics import autocorrelation, measures
from scirocco.diagnostics.columns import Columns, Leaf, spread_evenly
from scirocco.diagnostics.frames import supported
from scirocco.diagnostics.measures import Places
from scirocco.drawing import svg
from scirocco.drawing.charts import envelope, forest
from scirocco.drawing.markup import Html, Section, count, join, legend, number, paragraph, search, sortable, tag
from scirocco.models._core.view import Draws

Array = np.ndarray[Any, np.dtype[Any]]

_BINS, _RANK_BINS = 150, 20  # of a trace, and of a histogram of ranks
_MOST_CHAINS = 8  # in one chart
_WORST, _LARGEST = 4, 2  # parameters with charts: that mixed worst, with the largest means
_FOREST, _WIDER = 24, 30  # intervals in the chart; how many times an axis may be as wide as an interval
_MOST_LAGS = 200  # of an autocorrelation


MOST_PARAMETERS = 300  # in the table of all
_MOST_VALUES, _MOST_DRAWS = 4_000_000, 20_000  # that are summarised; of more, every k-th draw
_GLANCE = 100
"""Number of draws used to find the largest of very many parameters."""
PROBABILITY = 0.9  # inside the intervals


def gather(named: Mapping[str, Leaf], most: int = MOST_PARAMETERS) -> Columns:
    """All parameters; of very many, half are the largest ones and half are spread evenly over all."""
    columns = Columns(named)
    wanted = _wanted(columns, most)
    numbers, draws = columns.num_chains * columns.num_draws * len(wanted), columns.num_draws
    return columns.select(wanted).thinned(max(1, -(-numbers // _MOST_VALUES), draws // _MOST_DRAWS))


def _wanted(columns: Columns, most: int) -> Places:
    total = columns.total
    if total <= most:
        return np.arange(total)
    means = []
    for leaf in columns.leaves.values():
        stride = max(1, leaf.shape[1] // _GLANCE)
        size = math.prod(leaf.shape[2:])
        sums = np.zeros(size)
        for draw in range(0, leaf.shape[1], stride):  # one at a time, as each may be large
            sums += np.asarray(leaf[:, draw], np.float64).reshape(-1, size).sum(axis=0) if size else 0.0
        means.append(np.abs(sums))
    largest = np.argsort(-np.concatenate(means), kind="stable")[: most // 2]
    return np.union1d(largest, spread_evenly(total, most - len(largest)))


def summarise(columns: Columns, probability: float = PROBABILITY, group_size: int = 1) -> dict[str, Array]:
    """The numbers of `run.summary()` and the central 50 % interval, one value per parameter.

    NaN where a draw is NaN; diagnostics also where one is infinite.
    """
    tail = (1 - probability) / 2
    found = measures.summarise(columns.values, (tail, 0.25, 0.75, 1 - tail), group_size)
    low, lower, upper, high = found.pop("quantiles")
    found |= {"low": low, "high": high, "lower": lower, "upper": upper, "mcse": found.pop("mcse_mean")}
    broken = np.isnan(columns.values).any(axis=(0, 1))
    endless = ~np.isfinite(columns.values).all(axis=(0, 1))
    for name, numbers in found.items():
        numbers[endless if name in ("mcse", "ess_bulk", "ess_tail", "r_hat") else broken] = np.nan
    return found


def choose(summary: dict[str, Array], worst: int, largest: int) -> dict[int, str]:
    """Parameters worth a chart, and why: those that mixed worst, then those with the largest means."""
    size, chosen = len(summary["mean"]), dict[int, str]()
    ess = np.nan_to_num(summary["ess_bulk"], nan=np.inf)
    r_hat = np.minimum(np.nan_to_num(summary["r_hat"], nan=0.0), 1e6)
    for place in np.lexsort((ess, -np.round(r_hat, 2)))[:worst]:
        chosen[int(place)] = "mixed worst" if size > worst else ""
    for place in np.argsort(-np.abs(np.nan_to_num(summary["mean"])), kind="stable"):
        if len(chosen) >= min(size, worst + largest):
            break
        chosen.setdefault(int(place), "largest mean")
    return chosen


def rank_counts(values: Array, num_bins: int) -> Array:
    """How many draws of each chain are in each part of the pooled ranks: (chain, bin).

    Equal draws share their ranks evenly, so that integers work too.
    """
    levels = np.unique(values)
    below = np.stack([np.searchsorted(np.sort(chain), levels, side="right") for chain in values])
    pooled = np.concatenate([[0], below.sum(axis=0)])
    edges = np.linspace(0, values.size, num_bins + 1)
    return np.stack([np.diff(np.interp(edges, pooled, np.concatenate([[0], chain]))) for chain in below])


class Charted(NamedTuple):
    """Draws of parameters, the summary of each, and which are worth a chart (place: why)."""

    columns: Columns
    summary: dict[str, Array]
    chosen: dict[int, str]

    @property
    def names(self) -> list[str]:
        """Names of the parameters."""
        return self.columns.names

    @property
    def values(self) -> Array:
        """(chain, draw, parameter)."""
        return self.columns.values

    @property
    def cut(self) -> str:
        """A sentence that says if only some parameters, or only some draws, are included."""
        shown, total = len(self.columns.names), self.columns.total
        less = f" Only one draw in {self.columns.stride} is included, also for ESS." if self.columns.stride > 1 else ""
        if shown == total:
            return less.strip()
        return (
            f"{shown:,} of {total:,} parameters are included: about {shown // 2:,} with the largest means, and "
            f"others spread evenly over all.{less}"
        )


def look_at(named: Draws, group_size: int = 1) -> Charted:
    """Summarise draws (chain, draw, ...), by name."""
    columns = gather(named)
    summary = summarise(columns, group_size=group_size)
    return Charted(columns, summary, choose(summary, _WORST, _LARGEST))


def sections(seen: Charted) -> list[Section]:
    """Intervals, traces, ranks, autocorrelation and the table."""
    return [_intervals(seen), _traces(seen), _ranks(seen), _lags(seen), _table(seen)]


def _intervals(seen: Charted) -> Section:
    size = len(seen.names)
    places = range(size) if size <= _FOREST else [*choose(seen.summary, _FOREST // 2, _FOREST // 2)]
    charts = []
    for group in _by_scale(list(places), seen.names, seen.summary):
        names = [seen.names[place] for place in group]
        ends = {name: seen.summary[name][group] for name in ("low", "lower", "upper", "high")}
        inner = np.stack([ends["lower"], ends["upper"]], axis=1)
        outer = np.stack([ends["low"], ends["high"]], axis=1)
        label = f"Posterior intervals of {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
        charts.append(forest(names, seen.summary["mean"][group], inner, outer, label, Html()))
    words = f"Dot: posterior mean. Thick line: central 50%. Thin line: central {PROBABILITY:.0%}."
    if size > _FOREST:
        words += f" The {_FOREST // 2} that mixed worst and the {_FOREST // 2} with the largest means."
    if len(charts) > 1:
        words += " Parameters of different scales have separate axes."
    return Section("intervals", "Posterior intervals", join([paragraph(words), _grid(charts)]))


def _by_scale(places: list[int], names: list[str], summary: dict[str, Array]) -> list[list[int]]:
    """Groups of parameters that can share an axis, which is at most so many times as wide as any of their intervals.

    Elements of one parameter (`beta[0]`, `beta[1]`) stay together if they can.
    """
    low, high = np.nan_to_num(summary["low"]), np.nan_to_num(summary["high"])
    families: dict[str, list[int]] = {}
    for place in places:
        families.setdefault(re.sub(r"\[.*|\d+", "", names[place]), []).append(place)

    def join_up(parts: list[list[int]]) -> list[list[int]]:
        groups: list[list[int]] = []
        for part in sorted(parts, key=lambda part: -np.max(high[part] - low[part])):
            for group in groups:
                both = [*group, *part]
                widths = (high - low)[both]
                if np.ptp([low[both].min(), high[both].max()]) <= _WIDER * widths[widths > 0].min(initial=np.inf):
                    group += part
                    break
            else:
                groups.append(list(part))
        return groups

    parts = [group for family in families.values() for group in join_up([[place] for place in family])]
    return [sorted(group) for group in join_up(parts)]


def _traces(seen: Charted) -> Section:
    values, charts = seen.values, []
    shown, length = min(values.shape[0], _MOST_CHAINS), values.shape[1]
    for place, why in seen.chosen.items():
        column = values[:shown, :, place]
        frame = svg.ChartFrame((0.0, max(1.0, length - 1.0)), svg.extent(column))
        lines = [svg.line(frame, *envelope(chain, _BINS), f"c{k % svg.NUM_COLOURS}") for k, chain in enumerate(column)]
        charts.append(_chart(frame, [svg.axes(frame, "draw"), *lines], seen, place, "Trace of {}", why))
    words = "Converged chains look similar and have no trend."
    if length > 2 * _BINS:
        words += (
            f" Of every {round(length / _BINS)} draws or so, the smallest and the largest are shown, so that no "
            "extreme is lost; the space between them looks fuller than it is."
        )
    return Section("traces", "Traces", join([paragraph(words, _others(values)), _key(shown), _grid(charts)]))


def _ranks(seen: Charted) -> Section:
    values = seen.values
    if values.shape[1] < _RANK_BINS:
        return Section("ranks", "Ranks", paragraph("There are too few draws for ranks."))
    parts = values[:_MOST_CHAINS]
    words = "Ranks of the draws of each chain among all draws: flat where chains agree. "
    if len(values) == 1:
        half = values.shape[1] // 2
        parts = values[:, : 2 * half].reshape(2, half, -1)
        words = "There is one chain: ranks of its first half and second half among all draws, flat where they agree. "
    words += "Grey: the range of 99 % of the bars for independent draws; autocorrelated draws vary more."
    charts = [_rank_chart(seen, parts[:, :, place], place, why) for place, why in seen.chosen.items()]
    note = _others(values)
    return Section("ranks", "Ranks", join([paragraph(words, note), _grid(charts)]))


def _rank_chart(seen: Charted, column: Array, place: int, why: str) -> Html:
    counts = rank_counts(column, _RANK_BINS) / (column.shape[1] / _RANK_BINS)
    spread = 2.576 * np.sqrt(_RANK_BINS / column.shape[1])
    row, parts = 34, []
    whole = svg.ChartFrame((0.0, 100.0), (0.0, 1.0), row * len(counts) + 40)
    top = max(float(counts.max()), 1 + spread)
    for number_of, bars in enumerate(counts):
        frame = svg.ChartFrame((0.0, 100.0), (0.0, top), row * (number_of + 1) + 6, top=row * number_of + 10, bottom=0)
        parts += [
            svg.band(frame, max(0.0, 1 - spread), 1 + spread),
            svg.bars(frame, np.linspace(0, 100, _RANK_BINS + 1), bars, f"c{number_of % svg.NUM_COLOURS}"),
            svg.level(frame, 1.0),
        ]
    return _chart(whole, [*parts, svg.axes(whole, "rank, %", y_ticks=False)], seen, place, "Ranks of {}", why)


def _lags(seen: Charted) -> Section:
    values, charts = seen.values, []
    shown, most = min(len(values), _MOST_CHAINS), min(_MOST_LAGS, max(2, values.shape[1] // 2))
    all_found = {place: autocorrelation(values[:shown, :, place], most) for place in seen.chosen}
    falls = [np.append((np.abs(found) > 0.1).any(axis=0), False).argmin() for found in all_found.values()]
    length = min(most, max(10, 2 * int(max(falls, default=0))))  # of all charts: their axes can be compared
    for place, why in seen.chosen.items():
        found = all_found[place]
        frame = svg.ChartFrame((0.0, length - 1.0), (min(-0.2, float(np.nan_to_num(found[:, :length]).min())), 1.0))
        lines = [
            svg.line(frame, np.arange(length), chain[:length], f"thick c{k % svg.NUM_COLOURS}")
            for k, chain in enumerate(found)
        ]
        parts = [svg.axes(frame, "lag in draws"), svg.level(frame, 0.0), *lines]
        charts.append(_chart(frame, parts, seen, place, "Autocorrelation of {}", why))
    words = "The sooner the autocorrelation reaches 0, the larger the effective sample size."
    return Section("autocorrelation", "Autocorrelation", join([paragraph(words), _key(shown), _grid(charts)]))


def _table(seen: Charted) -> Section:
    tail = 50 * (1 - PROBABILITY)
    columns = [
        "parameter",
        "mean",
        "sd",
        f"{tail:g} %",
        f"{100 - tail:g} %",
        "MC error",
        "ESS bulk",
        "ESS tail",
        "R-hat",
    ]
    rows = []
    for place, name in enumerate(seen.names):
        error = float(seen.summary["mcse"][place])
        row = [supported(seen.summary[key][place], error) for key in ("mean", "sd", "low", "high")]
        row.append(number(error, 2))
        row += [count(seen.summary[key][place]) for key in ("ess_bulk", "ess_tail")]
        rows.append([name, *row, number(seen.summary["r_hat"][place])])
    controls = tag("div", search("parameters", "Find a parameter", "rows"), class_="controls")
    words = "A dash: cannot be estimated from one chain or few draws. Click a heading to sort."
    table = sortable("parameters", columns, rows, "All parameters")
    return Section("all", "All parameters", join([paragraph(words, " ", seen.cut), controls, table]))


def _chart(frame: svg.ChartFrame, parts: list[Html], seen: Charted, place: int, form: str, why: str) -> Html:
    name = seen.names[place]
    caption = [tag("strong", name)] + ([f", {why}"] if why else [])
    return svg.figure(frame, parts, form.format(name), join(caption))


def _others(values: Array) -> str:
    left = len(values) - _MOST_CHAINS
    return f" The first {_MOST_CHAINS} of {len(values)} chains are drawn." if left > 0 else ""


def _key(shown: int) -> Html:
    if shown < 2:
        return Html()
    return legend((tag("path", d="M0 5H20", class_=f"line thick c{k}"), f"chain {k}") for k in range(shown))


def _grid(charts: list[Html]) -> Html:
    return tag("div", *charts, class_="charts")
