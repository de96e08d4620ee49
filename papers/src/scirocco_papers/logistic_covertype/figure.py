"""The figure of `logistic-covertype`: three sizes with fixed and decreasing steps, the six samplers, the boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scirocco_papers.logistic_covertype.six import CONTROLLED, PLAIN
from scirocco_papers.logistic_covertype.sizes import HALF, OWN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "SGLD": "#7b3294",
    "SGLD-CV": "#009e73",
    OWN: "#0072b2",
    "SAGA": "#e69f00",
    HALF: "#d55e00",
    "sgld": "#7b3294",
    "sghmc": "#0072b2",
    "sgnht": "#e69f00",
}
COLOURS |= {f"{name}cv": COLOURS[name] for name in PLAIN}
BELOW, ABOVE = 0.02, 0.002
"""How much of the score is shown around the best of a panel."""


def draw(figure: Figure, numbers: dict[str, Any]) -> None:
    """Rows of panels: fixed steps, decreasing steps, six samplers and boxes."""
    sizes = numbers["sizes"]
    order = sorted(sizes)
    figure.set_size_inches(12.5, 10.5)
    panels = figure.subplots(3, 3, squeeze=False)
    for row, kind in zip(panels, ("fixed", "decreasing"), strict=False):
        for axes, size in zip(row, order, strict=False):
            _curves(axes, sizes[size][kind])
            axes.set_title(f"{size:,} rows, {kind} steps")
        row[0].set_ylabel("log predictive density")
    for axes in panels[1]:
        axes.set_xlabel("passes over the rows, set-up included")
    panels[0, 0].legend(fontsize=7.5, loc="lower right")
    for axes, names, title in (
        (panels[2, 0], PLAIN, "standard"),
        (panels[2, 1], CONTROLLED, "with control variates"),
    ):
        _losses(axes, numbers["six"], names)
        axes.set(title=f"six samplers: {title}", xlabel="steps after burn-in or ascent", ylabel="log loss")
    _boxes(panels[2, 2], numbers["boxes"])


def _curves(axes: Axes, found: dict[str, Any]) -> None:
    """The mean over the seeds and their range."""
    for name, curve in found.items():
        passes, mean = np.asarray(curve["passes"]), np.asarray(curve["mean"])
        axes.fill_between(passes, curve["low"], curve["high"], color=COLOURS[name], alpha=0.2, linewidth=0)
        axes.plot(passes, mean, color=COLOURS[name], linewidth=1.2, label=name)
    best = max(curve["late_mean"] for curve in found.values())
    axes.set_ylim(best - BELOW, best + ABOVE)


def _losses(axes: Axes, six: dict[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        found = six[name]
        places = np.asarray(found["iterations"]) * found["inner"]
        axes.plot(places, found["first_chain"], color=COLOURS[name], linewidth=0.9, label=name)
    axes.legend(fontsize=8)


def _boxes(axes: Axes, boxes: list[dict[str, Any]]) -> None:
    for name, shift, colour in (("without", -0.2, COLOURS["sgld"]), ("with", 0.2, COLOURS["SGLD-CV"])):
        style: Any = {"color": colour, "linewidth": 1.2}
        axes.boxplot(
            [each[name] for each in boxes],
            positions=[number + shift for number in range(1, len(boxes) + 1)],
            widths=0.3,
            flierprops={"markersize": 2, "markeredgecolor": colour},
            **dict.fromkeys(("boxprops", "whiskerprops", "capprops", "medianprops"), style),
        )
        axes.plot([], [], color=colour, label=f"{name} zero variance")
    axes.set_xticks(range(1, len(boxes) + 1), [str(number) for number in range(1, len(boxes) + 1)])
    axes.set(title="SGLD-CV along the chain", xlabel="run", ylabel="log predictive density")
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.margins(y=0.15)
    axes.legend(fontsize=8, loc="upper left")
