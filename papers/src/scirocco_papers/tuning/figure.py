"""The figure of `tuning`: errors against the bars, and the discrepancy by step size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scirocco_papers.tuning.claims import MEAN_BAR, SD_BAR

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLES = {
    "auto": ("o", "#d55e00", "auto"),
    "grid": ("|", "black", "best of a grid, same coordinates"),
    "plain": ("s", "#0072b2", "best of a grid, the user's units"),
    "guess": ("^", "#999999", "first guess, the user's units"),
}
_LEAST = 1e-3
"""Ratios below this are drawn at it."""


def draw(figure: Figure, rows: list[dict[str, Any]]) -> None:
    """Errors of means, ratios of sds, curves."""
    figure.set_size_inches(13, 4.6)
    means, sds, curves = figure.subplots(1, 3, width_ratios=(1, 1, 1.15))
    sds.sharey(means)
    places = np.arange(len(rows))[::-1]
    for axes, key in ((means, "mean_error"), (sds, "sd_ratio")):
        for method, (marker, colour, label) in list(STYLES.items())[::-1]:
            values = np.maximum([row[method][key] for row in rows], _LEAST)
            size = 11 if marker == "|" else 6
            how = {"color": colour, "markersize": size, "markeredgewidth": 1.6 if marker == "|" else 0.5}
            axes.plot(values, places, marker, label=label, **how)
        axes.set(xscale="log", ylim=(-0.6, len(rows) - 0.4))
        axes.grid(axis="y", linewidth=0.4)
    means.set_xlim(0.01, max(1.0, 1.2 * means.get_xlim()[1]))
    means.axvspan(0.01, MEAN_BAR, color="#009e73", alpha=0.12, linewidth=0)
    sds.axvspan(1 - SD_BAR, 1 + SD_BAR, color="#009e73", alpha=0.12, linewidth=0)
    means.set_yticks(places, [f"{row['name']} ({row['num_params']})" for row in rows])
    sds.tick_params(labelleft=False)
    means.set(title="worst error of a mean, in sds", xlabel="wanted: the green part")
    sds.set(title="sd over NUTS', the farthest from 1", xlabel=f"below {_LEAST:g}: drawn there")
    _draw_curves(curves, rows)
    handles, labels = means.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside lower left", ncols=4, fontsize=8.5)


def _draw_curves(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """One curve a posterior, in the coordinates of `auto`; a dot where `auto` is."""
    for number, row in enumerate(rows):
        grid, auto, colour = row["grid"], row["auto"], f"C{number % 10}"
        axes.plot(
            grid["step_sizes"], np.array(grid["ksds"]) / row["nuts_ksd"], "-", color=colour, linewidth=1
        )
        axes.plot(auto["step_size"], auto["ksd"] / row["nuts_ksd"], "o", color=colour, label=row["name"])
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set(
        xscale="log",
        yscale="log",
        title="Stein discrepancy over that of NUTS' draws",
        xlabel="step size; lines: a grid, dots: auto",
    )
    axes.legend(fontsize=7.5, ncols=2)
