"""The figure of `bpmf-movielens`: scores against passes over the ratings, and boxes of zero variance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"SGLD": "#7b3294", "SGLD-CV": "#009e73", "SAGA": "#e69f00"}
BOX = {"without": "#7b3294", "with": "#009e73"}


def draw(figure: Figure, numbers: dict[str, Any]) -> None:
    """A row of panels for each kind of steps, one for each size; boxes at the right."""
    sizes = sorted(numbers["curves"])
    decays = list(numbers["curves"][sizes[0]])
    figure.set_size_inches(3.6 * (len(sizes) + 1), 3.2 * len(decays))
    panels = figure.subplots(len(decays), len(sizes) + 1, squeeze=False)
    for row, decay in enumerate(decays):
        for axes, size in zip(panels[row], sizes, strict=False):
            _curves(axes, numbers["curves"][size][decay])
            axes.set(title=f"{size} users, {decay} steps", xlabel="passes over the ratings")
        panels[row, 0].set_ylabel("mean log density of test ratings")
    panels[0, 0].legend(fontsize=8, loc="lower right")
    for row, (name, found) in enumerate(numbers["boxes"].items()):
        if row < len(decays):
            _boxes(panels[row, -1], found)
            panels[row, -1].set(title=f"SGLD-CV, {name}", xlabel="run")
    panels[0, -1].legend(fontsize=8)


def _curves(axes: Axes, found: dict[str, list[dict[str, Any]]]) -> None:
    """A line for each seed; the axis shows where curves arrive, not where they come from."""
    arrived = []
    for name, curves in found.items():
        for number, curve in enumerate(curves):
            axes.plot(
                curve["passes"],
                curve["scores"],
                color=COLOURS[name],
                linewidth=0.8,
                alpha=0.8,
                label=None if number else name,
            )
            arrived += [np.max(curve["scores"]), np.min(curve["scores"][len(curve["scores"]) // 4 :])]
    margin = 0.1 * (max(arrived) - min(arrived))
    axes.set_ylim(min(arrived) - margin, max(arrived) + margin)


def _boxes(axes: Axes, found: list[dict[str, Any]]) -> None:
    for name, shift in (("without", -0.2), ("with", 0.2)):
        style: Any = {"color": BOX[name], "linewidth": 1.2}
        parts = ("boxprops", "whiskerprops", "capprops", "medianprops")
        axes.boxplot(
            [each[name] for each in found],
            positions=[number + shift for number in range(1, len(found) + 1)],
            widths=0.3,
            flierprops={"markersize": 2, "markeredgecolor": BOX[name]},
            **dict.fromkeys(parts, style),
        )
        axes.plot([], [], color=BOX[name], label=f"{name} zero variance")
    axes.set_xticks(range(1, len(found) + 1), [str(number) for number in range(1, len(found) + 1)])
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.margins(y=0.15)
