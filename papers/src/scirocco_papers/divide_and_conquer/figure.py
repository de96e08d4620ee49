"""The figure of `divide-and-conquer`: contours and boxes for the plane, and the divergence against the dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import gaussian_kde

from scirocco.types import PyTree
from scirocco_papers.divide_and_conquer.methods import JUDGED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "SGLD": "#e69f00",
    "SGHMC": "#56b4e9",
    "Consensus": "#7b3294",
    "KDEMC": "#d55e00",
    "Weierstrass": "#009e73",
    "SGLD-CV": "#777777",
}
TITLES = {"t": "heavy tails", "mixture": "two modes", "warped": "warped"}
LABELS = {"t": "θ₁, θ₂", "mixture": "θ₁; KL of θ₁ and θ₂", "warped": "θ₁, θ₂"}
_MASSES, _KERNELS, _CELLS, _SMALLEST = (0.95, 0.7, 0.3), 1_000, 60, 0.01


def draw(figure: Figure, pictures: dict[str, dict[str, Any]], numbers: dict[str, Any]) -> None:
    """A row for each posterior in the plane: the first run of each method over the truth, then boxes."""
    figure.set_size_inches(15, 11)
    rows = figure.subplots(4, 6)
    for row, (problem, draws) in zip(rows, pictures.items(), strict=False):
        for axes, name in zip(row, JUDGED, strict=False):
            _contours(axes, draws, name)
        row[0].set_ylabel(f"{TITLES[problem]} ({LABELS[problem]})")
        _boxes(row[-1], numbers["problems"][problem])
    for axes, name in zip(rows[0], JUDGED, strict=False):
        axes.set_title(name, color=COLOURS[name], fontweight="bold")
    rows[0][-1].set_title("KL from the truth")
    grid = rows[3][0].get_gridspec()
    for axes in rows[3]:
        axes.remove()
    for place, (key, title) in enumerate({"kl": "by neighbours", "kl_moments": "by moments"}.items()):
        axes = figure.add_subplot(grid[3, 2 * place : 2 * place + 2])
        _dimensions(axes, numbers["gaussian"], key)
        axes.set_title(f"normal posterior, KL {title}")
    _tuning(figure.add_subplot(grid[3, 4:]), numbers["problems"])


def _contours(axes: Axes, draws: dict[str, Any], name: str) -> None:
    low, high = np.quantile(draws["truth"], [0.0005, 0.9995], axis=0)
    room = 0.15 * (high - low)
    sides = [np.linspace(a, b, _CELLS) for a, b in zip(low - room, high + room, strict=True)]
    for key, colour, width in (("truth", "black", 0.8), (name, COLOURS[name], 1.6)):
        cells = _density(draws[key], sides)
        if cells is not None:
            axes.contour(*sides, cells, levels=_levels(cells), colors=colour, linewidths=width)
    axes.set(
        xlim=(low - room)[0:1].tolist() + (high + room)[0:1].tolist(),
        ylim=(low[1] - room[1], high[1] + room[1]),
    )
    axes.tick_params(labelsize=7)


def _density(draws: PyTree, sides: list[Any]) -> Any:
    """Heights of a kernel estimate on the grid; None where there is nothing to see."""
    if not np.all(np.isfinite(draws)):
        return None
    kept = draws[np.linspace(0, len(draws) - 1, min(len(draws), _KERNELS)).astype(int)]
    x, y = np.meshgrid(*sides)
    cells = gaussian_kde(kept.T, 0.2)(np.stack([x.ravel(), y.ravel()])).reshape(x.shape)
    return cells if cells.max() > 0 else None


def _levels(cells: Any) -> list[float]:
    """Heights whose contours enclose 95, 70 and 30 % of the mass."""
    ordered = np.sort(cells.ravel())[::-1]
    sums = np.cumsum(ordered) / ordered.sum()
    return sorted({float(ordered[np.searchsorted(sums, mass)]) for mass in _MASSES})


def _boxes(axes: Axes, found: dict[str, Any]) -> None:
    names = list(found["methods"])
    for place, name in enumerate([*names, "exact"]):
        values = found["exact"] if name == "exact" else found["methods"][name]["kl"]
        style: Any = {"color": COLOURS.get(name, "black"), "linewidth": 1.2}
        parts = ("boxprops", "whiskerprops", "capprops", "medianprops")
        shown = np.maximum(np.where(np.isfinite(values), values, np.nan), _SMALLEST)
        axes.boxplot(
            shown[np.isfinite(shown)],
            positions=[place],
            widths=0.6,
            flierprops={"markersize": 2, "markeredgecolor": style["color"]},
            **dict.fromkeys(parts, style),
        )
    axes.set_yscale("log")
    axes.set_xticks(range(len(names) + 1), [*names, "exact draws"], rotation=60, ha="right", fontsize=7)


def _dimensions(axes: Axes, by_dimension: dict[int, Any], key: str) -> None:
    sizes = sorted(by_dimension)
    for name in by_dimension[sizes[0]]["methods"]:
        colour = COLOURS[name]
        values = np.array([by_dimension[d]["methods"][name][key] for d in sizes])
        low, middle, high = np.maximum(np.quantile(values, [0.0, 0.5, 1.0], axis=1), _SMALLEST)
        axes.fill_between(sizes, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(sizes, middle, "o-", color=colour, label=name)
    floor = [np.maximum(np.median(by_dimension[d][key.replace("kl", "exact")]), _SMALLEST) for d in sizes]
    axes.plot(sizes, floor, ":", color="black", label="exact draws")
    axes.set(xscale="log", yscale="log", xlabel="dimension d")
    axes.set_xticks(sizes, [str(d) for d in sizes])
    axes.minorticks_off()
    if key == "kl":
        axes.legend(fontsize=8, ncols=2)


def _tuning(axes: Axes, problems: dict[str, Any]) -> None:
    """What the choice of a setting costs: KL over the grid, less the best, on the three posteriors."""
    places = {"t": 0, "mixture": 1, "warped": 2}
    names = [name for name in JUDGED if name != "Consensus"]
    for shift, name in enumerate(names):
        for problem, place in places.items():
            tried = np.array([value for _, value in problems[problem]["methods"][name]["tried"]])
            tried = np.maximum(tried[np.isfinite(tried)], _SMALLEST)
            at = np.full(len(tried), place + 0.18 * (shift - 1.5))
            axes.plot(at, tried, "-", color=COLOURS[name], linewidth=1)
            axes.plot(at, tried, "o", color=COLOURS[name], markersize=4, label=name if place == 0 else None)
    axes.set_xticks(list(places.values()), [TITLES[name] for name in places])
    axes.set(yscale="log", title="KL at all settings tried")
    axes.legend(fontsize=8)
