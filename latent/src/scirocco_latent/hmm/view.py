"""Hidden Markov models in a report, the states and the transitions between them; and `model.plot(series)`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from scirocco.diagnostics.intervals import widest
from scirocco.drawing.charts import forest
from scirocco.drawing.markup import Html, Section, join, number, paragraph, sortable, tag
from scirocco.models._core.view import View, size_of
from scirocco.run import Run
from scirocco.run.exporting import COLOURS, drawn_figure
from scirocco_latent.hmm.series import SeriesData

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scirocco_latent.hmm.estimator import HMM

_INTERVAL, _MOST = 0.9, 30  # probability of intervals; most transitions in a table
_MOST_TIMES = 5_000  # observations in a picture


def view(model: HMM, run: Run) -> View:
    """Report of states and transitions; draws are diagnosed with their states in one order."""
    chosen = run.preparation.get("chosen", "")
    about = (
        "Diagnosed and plotted with the states of all draws and chains in one order: the number in brackets is the "
        "state, of transitions from the first to the second."
    )
    if chosen:
        about += f" Method: {chosen}."
    return View(
        run,
        "HMM",
        size_of(run, "states", model._num_states),
        model._judged(),
        about,
        sections=lambda seen: [_states(model), _transitions(model)],
    )


def _level(model: HMM) -> float:
    """The probability of the intervals that are shown: less if there are few draws."""
    return widest(math.prod(model.draws_["initial"].shape[:2]), _INTERVAL)


def _states(model: HMM) -> Section:
    level = _level(model)
    table = model.states(level)
    names = [name for name in table.columns if not name.endswith(("_low", "_high"))]
    rows = [[f"state {k}", *(_cell(row, name) for name in names)] for k, row in table.iterrows()]
    words = (
        f"Posterior means, and the central {level:.0%} in brackets. Share: of time, in the long run. "
        "Dwell: expected steps of a visit."
    )
    found = sortable("states", ["state", *names], rows, "States", texts=range(len(names) + 1))
    return Section("states", "States", join([paragraph(words), found]))


def _cell(row: Any, name: str) -> str:
    if f"{name}_low" not in row:
        return str(row[name])
    return f"{number(row[name], 3)} ({number(row[f'{name}_low'], 3)} to {number(row[f'{name}_high'], 3)})"


def _transitions(model: HMM) -> Section:
    level = _level(model)
    mean, low, high = (np.asarray(part) for part in model.transitions(level))
    num = len(mean)
    order = np.argsort(-mean, axis=None)[:_MOST]
    places = [divmod(int(place), num) for place in order]
    at = tuple(np.array(places).T)
    chart = forest(
        [f"{j} → {k}" for j, k in places],
        mean[at],
        np.stack([mean[at], mean[at]], axis=1),
        np.stack([low[at], high[at]], axis=1),
        "Transition probabilities",
        Html(),
    )
    head = [f"to {k}" for k in range(num)]
    rows = [[f"state {j}", *(number(value, 3) for value in mean[j])] for j in range(num)]
    words = f"Posterior means; the lines are the central {level:.0%}."
    if num * num > _MOST:
        words += f" The {_MOST} largest of {num * num}."
    parts = [
        paragraph(words),
        sortable("moves", ["from", *head], rows, "Transition probabilities"),
        tag("div", chart, class_="charts"),
    ]
    return Section("transitions", "Transitions", join(parts))


def plot(given: SeriesData, shares: np.ndarray, names: list[str]) -> Figure:
    """The first series and its states, see `HMM.plot`."""
    length = min(int(given.bounds[1]), _MOST_TIMES)
    shares, values = shares[:length], given.values[:length].reshape(length, -1)
    with drawn_figure("plot()") as figure:
        figure.set_size_inches(8.0, 4.0)
        top, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        _observations(top, values, names)
        _probabilities(top, below, shares)
        if length < len(given.values):
            more = f"the first {length:,} of {len(given.values):,} observations"
            top.set_title(more if given.num_series == 1 else f"the first series, {more}", fontsize=9, loc="left")
    return figure


def _observations(panel: Axes, values: np.ndarray, names: list[str]) -> None:
    """Lines of numbers, or dots of labels."""
    if values.dtype.kind not in "biuf":
        rows = {name: row for row, name in enumerate(names)}
        heights = [rows.get(f"P({value})", np.nan) for value in values[:, 0].tolist()]  # NaN: missing
        panel.plot(heights, ".", color="0.2", markersize=2)
        panel.set_yticks(range(len(names)), [name[2:-1] for name in names])
        return
    for k, column in enumerate(values.T):
        colour = "0.2" if len(values.T) == 1 else COLOURS[k % len(COLOURS)]
        panel.plot(column, color=colour, linewidth=0.7, label=names[k])
    if len(values.T) > 1:
        panel.legend(fontsize=7, frameon=False)


def _probabilities(panel: Axes, below: Axes, shares: np.ndarray) -> None:
    """The most probable state behind the series, and the probabilities of all under it."""
    from matplotlib.colors import ListedColormap

    length, num = shares.shape
    colours = [COLOURS[k % len(COLOURS)] for k in range(num)]
    edges = np.arange(length + 1) - 0.5
    panel.pcolormesh(
        edges,
        [0.0, 1.0],
        shares.argmax(axis=1)[None],
        transform=panel.get_xaxis_transform(),
        cmap=ListedColormap(colours),
        vmin=-0.5,
        vmax=num - 0.5,
        alpha=0.25,
        zorder=0,
    )
    tops = np.cumsum(shares, axis=1)
    for k in range(num):
        below.stairs(tops[:, k], edges, baseline=tops[:, k] - shares[:, k], fill=True, color=colours[k], alpha=0.6,
                     label=f"state {k}")  # fmt: skip
    below.set(ylim=(0, 1), xlim=(-0.5, length - 0.5), xlabel="time", ylabel="P(state)")
    below.legend(fontsize=7, frameon=False, ncols=num, loc="upper left", bbox_to_anchor=(0, 1.35))
