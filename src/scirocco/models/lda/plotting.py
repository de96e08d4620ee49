"""`lda.plot_topics()` and `lda.shares_by(...).plot()`: words and shares of topics with intervals, by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scirocco import _checks
from scirocco.errors import InvalidValueError
from scirocco.run.plotting import COLOURS, drawn_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST, _ACROSS = 12, 4
_LONGEST = 18


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
    groups, count = found.mean.shape
    order = np.argsort(-np.ptp(found.mean, axis=0), kind="stable")[:_MOST]
    across = min(_ACROSS, len(order))
    down = math.ceil(len(order) / across)
    places = found.groups if found.groups.dtype.kind in "iuf" else np.arange(groups)
    with drawn_figure("plot()") as figure:
        figure.set_size_inches(2.5 * across, 0.5 + 1.7 * down)
        axes = figure.subplots(down, across, squeeze=False, sharex=True).ravel()
        for panel, k in zip(axes, order, strict=False):
            panel.vlines(places, found.low[:, k], found.high[:, k], color=COLOURS[0], linewidth=1.6)
            panel.plot(places, found.mean[:, k], "o", color=COLOURS[0], markersize=3)
            panel.set_ylim(0, None)
            panel.set_title(f"topic {k}" if labels is None else _short(labels[k], 34), fontsize=9, loc="left")
            panel.tick_params(labelsize=7)
            if places is not found.groups:
                panel.set_xticks(
                    places, [_short(str(group)) for group in found.groups], rotation=60, ha="right"
                )
        for panel in axes[len(order) :]:
            panel.set_axis_off()
        more = f", {len(order)} of {count} topics" if len(order) < count else ""
        figure.supylabel(f"mean share of a topic{more}", fontsize=9)
    return figure


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
