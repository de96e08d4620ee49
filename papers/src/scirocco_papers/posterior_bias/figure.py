"""The figure of `posterior-bias`: three heat maps with numbers, samplers down, estimators across."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAPS = (
    ("mean_bias", "error of a mean, in sds", "Reds", (0.0, 0.5), "{:.2f}"),
    ("sd_ratio", "sd / true sd", "PuOr", (0.6, 1.4), "{:.2f}"),
    ("ess_per_million", "effective draws / 10⁶ row gradients", "Greens", (-1.0, 2.5), "{:.3g}"),
)


def draw(figure: Figure, numbers: dict[str, Any]) -> None:
    """A row of maps for each number of rows."""
    tables = numbers["tables"]
    heights = [len(tables[size]) for size in tables]
    figure.set_size_inches(13, 1.6 + 0.42 * sum(heights) + 0.8 * len(heights))
    panels = figure.subplots(len(tables), len(MAPS), squeeze=False, height_ratios=heights)
    for row, size in zip(panels, tables, strict=True):
        for axes, (what, title, colours, limits, form) in zip(row, MAPS, strict=True):
            _heat(axes, tables[size], what, colours, limits, form)
            axes.set_title(f"N = {size:,}: {title}")
            if axes is not row[0]:
                axes.set_yticklabels([])


def _heat(
    axes: Axes, table: dict[str, Any], what: str, colours: str, limits: tuple[float, float], form: str
) -> None:
    names, ways = list(table), list(next(iter(table.values())))
    values = np.array([[table[name][way][what] for way in ways] for name in names], float)
    shown = np.log10(np.maximum(values, 1e-3)) if what == "ess_per_million" else values
    axes.imshow(shown, cmap=colours, vmin=limits[0], vmax=limits[1], aspect="auto")
    axes.set_xticks(range(len(ways)), ways, rotation=20, ha="right")
    axes.set_yticks(range(len(names)), names)
    middle, half = sum(limits) / 2, (limits[1] - limits[0]) / 2
    for (i, j), value in np.ndenumerate(values):
        far = (
            abs(shown[i, j] - middle) > 0.7 * half
            if what == "sd_ratio"
            else shown[i, j] > middle + 0.3 * half
        )
        text = form.format(value) if np.isfinite(value) else "diverged"
        axes.text(j, i, text, ha="center", va="center", fontsize=8, color="white" if far else "black")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
