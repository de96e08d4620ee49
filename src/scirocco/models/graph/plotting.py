"""`model.plot()` of networks: the network with its blocks, their shares and their rates, by matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scirocco.drawing.networks import SURE, positions
from scirocco.models.graph.edges import Array
from scirocco.run.plotting import drawn_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NAMED = 60


def plot(model: Any, interval: float) -> Figure:
    """The network if it is small, shares, and the block matrix if there is one."""
    model._check_fitted()
    shares = model.memberships()
    edges = model.nodes_.edges
    kinds = ["network"] * (edges is not None) + ["shares"] + ["matrix"] * ("block_matrix" in model.draws_)
    with drawn_figure("plot()") as figure:
        widths = [2.0 if kind == "network" else 1.0 for kind in kinds]
        figure.set_size_inches(2.7 * sum(widths), 5.0 if edges is not None else 2.7)
        axes = figure.subplots(1, len(kinds), squeeze=False, width_ratios=widths)[0]
        panels = dict(zip(kinds, axes, strict=True))
        if edges is not None:
            _network(panels["network"], np.array(edges, np.int64), shares, model.nodes_.listed())
        _shares(panels["shares"], model.shares(interval), interval, shares.shape[1])
        if "matrix" in kinds:
            _matrix(figure, panels["matrix"], np.asarray(model.block_matrix()))
    return figure


def _colours(num: int) -> Array:
    """A colour for each block."""
    import matplotlib

    table = matplotlib.colormaps["tab20"]  # dark and light colours in turn; the dark ones first
    return np.array([table((2 * k + k // 10) % 20) for k in range(num)])


def _network(panel: Axes, edges: Array, shares: Array, names: list[Any]) -> None:
    from matplotlib.collections import LineCollection

    place, colours = positions(len(shares), *edges), _colours(shares.shape[1])
    order = np.argsort(-shares, axis=1, kind="stable")
    unsure = shares.max(axis=1) < SURE
    ends = np.stack([place[edges[0]], place[edges[1]]], axis=1)
    faint = float(np.clip(18.0 / np.sqrt(max(len(ends), 1)), 0.15, 0.7))
    panel.add_collection(LineCollection(list(ends), colors="0.5", linewidths=0.5, alpha=faint, zorder=1))
    size = float(np.clip(8_000.0 / len(shares), 14.0, 170.0))
    rings = np.where(unsure[:, None], colours[order[:, min(1, shares.shape[1] - 1)]], 1.0)
    panel.scatter(
        place[:, 0],
        place[:, 1],
        s=np.where(unsure, 1.3, 1.0) * size,
        c=colours[order[:, 0]],
        edgecolors=rings.tolist(),
        linewidths=np.where(unsure, 0.2 * np.sqrt(size), 0.3).tolist(),
        zorder=2,
    )
    if len(names) <= _NAMED:
        for at, name in zip(place, names, strict=True):
            beside = 0 if len(str(name)) <= 2 else 7
            colour = "black" if beside else "white"
            panel.annotate(
                str(name), at, (0, beside), textcoords="offset points", ha="center", va="center",
                fontsize=6, color=colour, zorder=3,
            )  # fmt: skip
    panel.set_title(f"{int(unsure.sum()):,} of {len(shares):,} nodes uncertain", fontsize=9, loc="left")
    panel.margins(0.06)
    panel.set_axis_off()


def _shares(panel: Axes, found: Any, interval: float, num: int) -> None:
    at, colours = np.arange(num), _colours(num)
    panel.hlines(at, found.low, found.high, color=colours, linewidth=1.6)
    panel.scatter(found.mean, at, c=colours, s=18)
    panel.set_ylim(num - 0.5, -0.5)
    panel.set_xlim(0, None)
    panel.set_yticks(at if num <= 30 else at[:: num // 15])
    panel.set_title(f"shares, central {interval:.0%}", fontsize=9, loc="left")


def _matrix(figure: Figure, panel: Axes, mean: Array) -> None:
    from matplotlib.colors import LogNorm

    low = max(float(mean.min()), 1e-12 * float(mean.max()))
    norm = LogNorm(low, float(mean.max())) if low < mean.max() else None
    drawn = panel.imshow(np.maximum(mean, low), cmap="Blues", norm=norm)
    panel.locator_params(integer=True)
    panel.set_title("rates between blocks", fontsize=9, loc="left")
    figure.colorbar(drawn, ax=panel, shrink=0.4)
