"""Figures of topics (`plot_topics`, `shares_by(...).plot`): words and shares with intervals, by matplotlib."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scirocco import _checks
from scirocco.errors import InvalidValueError
from scirocco.run.exporting import COLOURS, drawn_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = np.ndarray

# panels in all and in a row; names and ticks on an axis
_MOST, _ACROSS, _MOST_NAMES, _FEW_TICKS = 12, 4, 15, 6
_LONGEST = 18  # characters of a name
_ORDERED = "iufM"
"""Kinds of arrays whose values are places on an axis: numbers and dates."""


def topics(model: Any, num: int, chosen: Sequence[int] | None, interval: float) -> Figure:
    """A panel for each topic; see `LDA.plot_topics`."""
    listed = model.top_words(num, interval=interval)
    numbers = _numbers(chosen, len(listed))
    labels = [_title(model, k) for k in numbers]
    across = min(_ACROSS, len(numbers))
    down = math.ceil(len(numbers) / across)
    with drawn_figure("plot_topics()") as figure:
        figure.set_size_inches(2.5 * across, 0.5 + down * (0.5 + 0.19 * len(listed[0])))
        axes = figure.subplots(down, across, squeeze=False).ravel()
        for panel, k, label in zip(axes, numbers, labels, strict=False):
            _panel(panel, listed[k], label)
        for panel in axes[len(numbers) :]:
            panel.set_axis_off()
        more = f", {len(numbers)} of {len(listed)} topics" if len(numbers) < len(listed) else ""
        figure.supxlabel(f"probability of a word, central {interval:.0%} intervals{more}", fontsize=9)
    return figure


def shares(found: Any, labels: Sequence[str] | None) -> Figure:
    """A panel for each topic, those that differ most between groups first; see `GroupShares.plot`."""
    count = found.mean.shape[1]
    order = np.argsort(-np.ptp(found.mean, axis=0), kind="stable")[:_MOST]
    with drawn_figure("plot()") as figure:
        for panel, k in zip(_panels(figure, len(order), 1.7, found.groups), order, strict=True):
            _over(panel, found.groups, *(part[:, k] for part in (found.mean, found.low, found.high)))
            panel.set_title(f"topic {k}" if labels is None else _short(labels[k], 34), fontsize=9, loc="left")
        more = f", {len(order)} of {count} topics" if len(order) < count else ""
        figure.supylabel(f"mean share of a topic{more}", fontsize=9)
    return figure


def paths(model: Any, num: int, chosen: Sequence[int] | None, interval: float) -> Figure:
    """A panel for each topic, a line for each of its words; see `DynamicTopics.plot_topics`."""
    labels = model.labels(3)
    numbers = _numbers(chosen, len(labels))
    with drawn_figure("plot_topics()") as figure:
        panels = _panels(figure, len(numbers), 2.1, model.times_, across=3, width=3.3)
        for panel, k in zip(panels, numbers, strict=True):
            found = model.evolution(k, num=num, interval=interval)
            for j, word in enumerate(found.words):
                mean, low, high = (part[:, j] for part in (found.mean, found.low, found.high))
                colour = COLOURS[j % len(COLOURS)]
                _over(panel, found.times, mean, low, high, colour, _short(str(word)))
            panel.set_title(_short(f"{k}: {labels[k]}", 40), fontsize=9, loc="left")
            panel.legend(fontsize=7, frameon=False, handlelength=1.0, loc="upper left", bbox_to_anchor=(1.0, 1.05))
        more = f", {len(numbers)} of {len(labels)} topics" if len(numbers) < len(labels) else ""
        figure.supylabel(f"probability of a word, {interval:.0%} intervals{more}", fontsize=9)
    return figure


def correlations(mean: Array, low: Array, high: Array, labels: Sequence[str], interval: float) -> Figure:
    """A matrix of dots; see `CorrelatedTopics.plot_correlations`."""
    count = len(mean)
    clear = (low > 0) | (high < 0)
    rows, columns = np.nonzero(np.tri(count, k=-1, dtype=bool))
    size = np.where(clear, 220.0, 30.0)[rows, columns] * min(1.0, 12.0 / count)
    most = max(np.abs(mean[rows, columns]).max(initial=0.0), 0.1)
    names = [_short(f"{k}: {label}", 28) for k, label in enumerate(labels)]
    with drawn_figure("plot_correlations()") as figure:
        figure.set_size_inches(2.6 + 0.32 * count, 1.9 + 0.32 * count)
        panel = figure.subplots()
        dots = panel.scatter(
            columns, rows, size, mean[rows, columns], cmap="RdBu_r", vmin=-most, vmax=most, linewidths=0
        )
        panel.set_xticks(range(count), names, fontsize=8, rotation=45, ha="right", rotation_mode="anchor")
        panel.set_yticks(range(count), names, fontsize=8)
        panel.set(xlim=(-0.6, count - 1.4), ylim=(count - 0.4, 0.4))
        panel.tick_params(length=0)
        bar = figure.colorbar(dots, shrink=0.6)
        bar.set_label("correlation of log shares", fontsize=8)
        bar.ax.tick_params(labelsize=7)
        figure.supxlabel(f"small: the {interval:.0%} interval contains 0", fontsize=8, color="0.4")
    return figure


def _panels(
    figure: Figure, count: int, height: float, groups: Array, across: int = _ACROSS, width: float = 2.5
) -> list[Any]:
    """Panels side by side with one axis of groups, whose names are below the lowest panel of each column."""
    down = math.ceil(count / across)
    across = math.ceil(count / down)
    figure.set_size_inches(width * across, 0.5 + height * down)
    axes = figure.subplots(down, across, squeeze=False, sharex=True).ravel()
    for number, panel in enumerate(axes):
        panel.tick_params(labelsize=7, labelbottom=number + across >= count)
        panel.set_axis_on() if number < count else panel.set_axis_off()
    if groups.dtype.kind not in _ORDERED:
        step = math.ceil(len(groups) / _MOST_NAMES)
        places = np.arange(len(groups))[::step]
        axes[0].set_xticks(places, [_short(str(group)) for group in groups[::step]])
        for panel in axes:
            panel.tick_params(axis="x", labelrotation=45)
            for label in panel.get_xticklabels():
                label.set_ha("right")
                label.set_rotation_mode("anchor")
    return list(axes[:count])


def _over(
    panel: Any, groups: Array, mean: Array, low: Array, high: Array, colour: str = COLOURS[0], label: str | None = None
) -> None:
    """Values over groups with intervals: a line in a band if the groups have an order, otherwise points."""
    if groups.dtype.kind in _ORDERED:
        panel.fill_between(groups, low, high, color=colour, alpha=0.2, linewidth=0)
        panel.plot(groups, mean, "-o", color=colour, markersize=2, linewidth=1.2, label=label)
    else:
        places = np.arange(len(groups))
        panel.vlines(places, low, high, color=colour, linewidth=1.6)
        panel.plot(places, mean, "o", color=colour, markersize=3, label=label)
    panel.set_ylim(0, None)
    panel.locator_params(axis="y", nbins=4)
    if groups.dtype.kind == "M":
        dates = importlib.import_module("matplotlib.dates")
        place = dates.AutoDateLocator(minticks=2, maxticks=4)
        panel.xaxis.set_major_locator(place)
        panel.xaxis.set_major_formatter(dates.ConciseDateFormatter(place))
    elif groups.dtype.kind in _ORDERED:
        if len(groups) <= _FEW_TICKS:
            panel.set_xticks(groups)
            return
        whole = groups.dtype.kind in "iu"
        panel.xaxis.set_major_locator(importlib.import_module("matplotlib.ticker").MaxNLocator(4, integer=whole))


def _numbers(chosen: Sequence[int] | None, count: int) -> list[int]:
    if chosen is None:
        return list(range(min(count, _MOST)))
    numbers = [_checks.positive_int(k, "topics", minimum=0) for k in chosen]
    if not numbers or max(numbers) >= count:
        raise InvalidValueError(f"`topics` must be numbers from 0 to {count - 1}, got {list(chosen)}.")
    return numbers


def _title(model: Any, k: int) -> str:
    return f"{k}: {model.topic_names_[k]}" if k < len(model.topic_names_) else f"topic {k}"


def _panel(panel: Any, words: Sequence[tuple[Any, float, float, float]], label: str) -> None:
    """Bars for the means, lines for the intervals; most probable word on top."""
    rows = np.arange(len(words))[::-1]
    names, means, low, high = zip(*words, strict=True)
    panel.barh(rows, means, color=COLOURS[0], alpha=0.35, height=0.72)
    panel.hlines(rows, low, high, color=COLOURS[0], linewidth=1.6)
    panel.set_yticks(rows, [_short(str(name)) for name in names], fontsize=8)
    panel.set_title(label, fontsize=9, loc="left")
    panel.set_xlim(0, 1.05 * max(high))
    panel.tick_params(axis="x", labelsize=7)
    panel.tick_params(axis="y", length=0)
    panel.locator_params(axis="x", nbins=3)
    panel.ticklabel_format(axis="x", useOffset=False)
    panel.margins(y=0.02)


def _short(name: str, most: int = _LONGEST) -> str:
    """A word that fits next to a panel; dollar signs would be read as mathematics."""
    escaped = name if len(name) <= most else f"{name[: most - 1]}…"
    return escaped.replace("$", r"\$")
