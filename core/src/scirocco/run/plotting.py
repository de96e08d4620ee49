"""`run.plot()`: traces, intervals and pairs of parameters, by matplotlib (the extra `plot`)."""

from __future__ import annotations

import difflib
import functools
import importlib
import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from scirocco import _checks
from scirocco._extras import require
from scirocco.diagnostics.columns import Columns, Leaf
from scirocco.diagnostics.intervals import METHOD
from scirocco.errors import InvalidTypeError, InvalidValueError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = np.ndarray[Any, np.dtype[Any]]
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
_MOST = {"traces": 6, "intervals": 30, "pairs": 5}
_MOST_POINTS = 2_000
_STYLE = {"axes.spines.top": False, "axes.spines.right": False, "font.size": 9.0, "savefig.dpi": 115}


def plot(leaves: Mapping[str, Leaf], kind: str, names: str | Sequence[str] | None) -> Figure:
    """A figure of the draws (chain, draw, ...) by name."""
    kind = _checks.choice(kind, "kind", tuple(_MOST))
    columns = _chosen(leaves, names, _MOST[kind])
    drawing: dict[str, Callable[[Figure, list[str], Array], None]] = {
        "traces": _traces,
        "intervals": _intervals,
        "pairs": _pairs,
    }
    with drawn_figure("run.plot()") as figure:
        drawing[kind](figure, columns.names, columns.values)
    if names is None and len(columns.names) < columns.total:
        shown = f"{len(columns.names)} of {columns.total:,} parameters; choose others with names=[...]"
        figure.supxlabel(shown, fontsize=8, color="0.4")
    return figure


@contextmanager
def drawn_figure(purpose: str) -> Iterator[Figure]:
    """An empty figure to draw on, in the style of this library; notebooks show it.

    If the program has imported pyplot, it is the current figure there, for `plt.show()` and `plt.savefig(...)`; not in
    a notebook that shows figures inline, which would show it twice.
    """
    matplotlib = require("matplotlib", purpose)
    with matplotlib.rc_context(_STYLE):
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None or "inline" in pyplot.get_backend():
            make = importlib.import_module("matplotlib.figure").Figure
        else:
            make = pyplot.figure
        figure: Figure = make(layout="constrained")
        yield figure
    # a figure that pyplot does not know is shown by notebooks only if it says how
    figure._repr_png_ = functools.partial(_png, figure)  # type: ignore[attr-defined]


def _png(figure: Figure) -> bytes:
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=115)
    return drawn.getvalue()


def _chosen(leaves: Mapping[str, Leaf], names: str | Sequence[str] | None, most: int) -> Columns:
    """The first columns, or those that are named: `beta` is all of an array, `beta[3]` one number of it."""
    columns = Columns(leaves)
    if names is None:
        return columns.select(np.arange(min(most, columns.total)))
    wanted = [names] if isinstance(names, str) else list(names)
    places: list[int] = []
    for name in wanted:
        if not isinstance(name, str):
            raise InvalidTypeError(f"`names` must be names of parameters, got {name!r}.")
        found = [k for k, label in enumerate(columns.names) if label == name or label.startswith(f"{name}[")]
        if not found:
            close = difflib.get_close_matches(name, [*leaves, *columns.names], 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise InvalidValueError(f"there is no parameter {name!r}.{hint} There are {', '.join(leaves)}.")
        places += found
    return columns.select(np.unique(places))


def _traces(figure: Figure, names: list[str], values: Array) -> None:
    """A row for each parameter: draws of every chain in order, and their histograms."""
    figure.set_size_inches(8.5, 0.6 + 1.3 * len(names))
    axes = figure.subplots(len(names), 2, squeeze=False, width_ratios=[3, 1])
    for row, name in enumerate(names):
        trace, marginal = axes[row]
        bins = np.histogram_bin_edges(_finite(values[:, :, row]), 40)
        for chain, draws in enumerate(values[:, :, row]):
            colour = COLOURS[chain % len(COLOURS)]
            trace.plot(draws, color=colour, linewidth=0.5, alpha=0.8)
            marginal.hist(_finite(draws), bins, density=True, histtype="step", color=colour)
        trace.set(ylabel=name, xlim=(0, max(1, values.shape[1] - 1)))
        marginal.set(yticks=[])
    axes[-1][0].set_xlabel("draw")


def _intervals(figure: Figure, names: list[str], values: Array) -> None:
    """A row for each parameter: the mean, and the central 50 % and 90 % intervals of all chains."""
    figure.set_size_inches(7.0, 1.0 + 0.24 * len(names))
    axes, rows = figure.subplots(), np.arange(len(names))[::-1]
    ends = np.array(
        [
            np.quantile(_finite(column), [0.05, 0.25, 0.5, 0.75, 0.95], method=METHOD)
            for column in _flat(values)
        ]
    )
    axes.hlines(rows, ends[:, 0], ends[:, 4], color=COLOURS[0], linewidth=1.5, label="90 %")
    axes.hlines(rows, ends[:, 1], ends[:, 3], color=COLOURS[0], linewidth=4.0, label="50 %")
    means = [_finite(column).mean() for column in _flat(values)]
    axes.plot(means, rows, "o", color="white", markeredgecolor=COLOURS[0], markersize=5, label="mean")
    if ends.min() < 0 < ends.max():
        axes.axvline(0, color="0.6", linewidth=0.8, zorder=0)
    axes.set_yticks(rows, names)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, 1.0 + 0.9 / (1 + len(names))), ncols=3, frameon=False
    )


def _pairs(figure: Figure, names: list[str], values: Array) -> None:
    """Every pair of parameters as points, histograms on the diagonal; at most 2,000 draws, spread over all."""
    count = len(names)
    if count < 2:
        raise InvalidValueError("`kind='pairs'` requires at least two parameters.")
    figure.set_size_inches(1.7 * count + 0.6, 1.7 * count + 0.6)
    axes = figure.subplots(count, count, sharex="col", squeeze=False)
    chains, draws, _ = values.shape
    stride = -(-chains * draws // _MOST_POINTS)
    for row in range(count):
        for column in range(count):
            here = axes[row][column]
            if column > row:
                here.set_axis_off()
                continue
            if column == row:
                here.hist(_finite(values[:, :, row]), 40, histtype="stepfilled", color=COLOURS[0], alpha=0.5)
                here.set(yticks=[])
            else:
                for chain in range(chains):
                    colour = COLOURS[chain % len(COLOURS)]
                    some = values[chain, ::stride]
                    here.plot(some[:, column], some[:, row], ".", color=colour, markersize=2, alpha=0.4)
                here.sharey(axes[row][0])
            if column > 0:
                here.tick_params(labelleft=False)
            if row == count - 1:
                here.set_xlabel(names[column])
            if column == 0:
                here.set_ylabel(names[row])


def _flat(values: Array) -> Array:
    """(parameter, draw of all chains)."""
    flat: Array = values.reshape(-1, values.shape[2]).T
    return flat


def _finite(values: Array) -> Array:
    found: Array = values[np.isfinite(values)]
    return found if found.size else np.zeros(1)
