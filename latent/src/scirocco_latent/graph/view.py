"""Models of networks in a report, blocks, pictures of the network and of rates, uncertain nodes; and `model.plot()`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from scirocco.diagnostics.intervals import widest
from scirocco.drawing.markup import Html, Section, join, number, paragraph, sortable, tag
from scirocco.drawing.networks import SURE, network, positions
from scirocco.models._core.view import View, size_of
from scirocco.run import Run
from scirocco.run.exporting import drawn_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scirocco_latent.graph.base import GraphModel
    from scirocco_latent.graph.estimator import StochasticBlockModel
    from scirocco_latent.graph.mixed import MixedMembership

Array = np.ndarray

_INTERVAL = 0.9
"""Probability of the intervals of a report."""
_MOST_NODES, _LABELLED, _NAMED = 50, 30, 60
"""Most nodes in a table, blocks whose rows have a number, and nodes with a name in a figure."""


def of_blocks(model: StochasticBlockModel, run: Run) -> View:
    """Report of blocks and rates; draws are diagnosed with their blocks in one order."""
    return _view(model, run, "blocks", "the largest first", lambda: [_blocks(model)])


def of_communities(model: MixedMembership, run: Run) -> View:
    """Report of communities and of nodes between them."""
    return _view(model, run, "communities", "by their share of edges", lambda: [_communities(model)])


def _view(model: GraphModel, run: Run, groups: str, order: str, sections: Callable[[], list[Section]]) -> View:
    """`groups` is what blocks are called: "blocks" or "communities"."""
    chosen = run.preparation.get("chosen", "")
    about = f"Diagnosed and plotted with the {groups} of all draws and chains in one order, {order}."
    return View(
        run,
        type(model).__name__,
        size_of(run, groups, model.draws_["shares"].shape[-1]).replace(" rows", " edges"),
        model._judged(),
        about + (f" Method: {chosen}." if chosen else ""),
        sections=lambda seen: [*sections(), *_pictures(model, np.asarray(model.memberships()), groups)],
    )


def _pictures(model: GraphModel, shares: Array, groups: str) -> list[Section]:
    """The network if it is small, the block matrix if there is one, and the uncertain nodes."""
    found = list[Section]()
    if model.nodes_.edges is not None:
        found.append(_network(model, shares, groups))
    if "block_matrix" in model.draws_:
        found.append(_matrix(model))
    return [*found, _nodes(model, shares)]


def _network(model: GraphModel, shares: Array, groups: str) -> Section:
    source, target = np.array(model.nodes_.edges, np.int64)
    mixed = groups == "communities"
    group = "community" if mixed else "block"
    ringed = "belong to several communities" if mixed else "are uncertain"
    words = (
        f"Nodes have the colour of their {group}. Those in a ring {ringed} (no {group} has {SURE:g} or more): slices "
        f"are mean memberships. Positions follow from the edges alone, so that linked nodes are near each other."
    )
    if model.nodes_.directed:
        words += " Directions are not drawn."
    label = f"A network of {len(shares):,} nodes and {len(source):,} edges, in {shares.shape[1]} {groups}"
    told = (group, "several" if mixed else "uncertain")
    drawn = network(source, target, shares, model.nodes_.listed(), label, told)
    return Section("network", "Network", join([paragraph(words), drawn]))


def _communities(model: MixedMembership) -> Section:
    level = widest(math.prod(model.draws_["shares"].shape[:2]), _INTERVAL)
    table = model.communities(level)
    rows = [
        [f"community {k}", _with_bounds(row, "share"), f"{int(row['nodes']):,}", f"{int(row['members']):,}"]
        for k, row in table.iterrows()
    ]
    words = (
        f"Share of the edges: posterior mean, and the central {level:.0%} in brackets. Largest: nodes for which it is "
        "the largest membership. Members: nodes with a membership of at least 0.1."
    )
    head = ["community", "share", "largest", "members"]
    found = sortable("communities", head, rows, "Communities", texts=(0, 1))
    return Section("communities", "Communities", join([paragraph(words), found]))


def _blocks(model: StochasticBlockModel) -> Section:
    level = widest(math.prod(model.draws_["shares"].shape[:2]), _INTERVAL)
    table = model.blocks(level)
    rows = [
        [f"block {k}", f"{int(row['nodes']):,}", _with_bounds(row, "share"), _with_bounds(row, "inside")]
        for k, row in table.iterrows()
    ]
    words = (
        f"Nodes: those for which the block is the most probable. Share of the nodes and rate of edges inside: "
        f"posterior means, and the central {level:.0%} in brackets."
    )
    found = sortable("blocks", ["block", "nodes", "share", "inside"], rows, "Blocks", texts=(0, 2, 3))
    return Section("blocks", "Blocks", join([paragraph(words), found]))


def _with_bounds(row: Any, name: str) -> str:
    """The mean and the interval of a column."""
    return f"{number(row[name], 3)} ({number(row[f'{name}_low'], 3)} to {number(row[f'{name}_high'], 3)})"


def _matrix(model: GraphModel) -> Section:
    mean = np.asarray(model.block_matrix())
    words = (
        "Mean rates of edges between blocks, from the block of the row to that of the column, on a logarithmic scale: "
        f"the darkest is {number(mean.max(), 3)}, the lightest {number(mean.min(), 3)}. Larger blocks have "
        "wider rows and columns."
    )
    return Section("block-matrix", "Block matrix", join([paragraph(words), picture(mean, np.asarray(model.shares()))]))


def picture(mean: Array, shares: Array, side: int = 420) -> Html:
    """The matrix as squares: the larger a rate, the darker."""
    num = len(mean)
    logs = np.log(np.maximum(mean, 1e-12 * mean.max()))
    low, high = float(logs.min()), float(logs.max())
    dark = (logs - low) / (high - low) if high > low else np.ones_like(logs)
    widths = 0.5 / num + 0.5 * shares / shares.sum()  # empty blocks are visible, too
    edges = side * np.concatenate([[0.0], np.cumsum(widths)])
    parts = list[Html]()
    for r in range(num):
        for s in range(num):
            square = tag(
                "rect",
                tag("title", f"{r} to {s}: {number(mean[r, s], 3)}"),
                x=f"{edges[s]:.1f}",
                y=f"{edges[r]:.1f}",
                width=f"{edges[s + 1] - edges[s]:.1f}",
                height=f"{edges[r + 1] - edges[r]:.1f}",
                class_="bars c0",
                fill_opacity=f"{0.04 + 0.96 * dark[r, s]:.2f}",
            )
            parts.append(square)
    for r in range(num) if num <= _LABELLED else ():
        middle = (edges[r] + edges[r + 1]) / 2
        parts.append(tag("text", str(r), x=-6, y=f"{middle + 4:.1f}", text_anchor="end"))
        parts.append(tag("text", str(r), x=f"{middle:.1f}", y=-6, text_anchor="middle"))
    drawn = tag(
        "svg",
        *parts,
        viewBox=f"-24 -20 {side + 30} {side + 26}",
        style=f"max-width:{side + 30}px;width:100%",
        role="img",
        aria_label=f"Rates of edges between {num} blocks, as shades of a matrix",
    )
    return tag("figure", drawn)


def _nodes(model: GraphModel, shares: Array) -> Section:
    best = shares.max(axis=1)
    names = model.nodes_.listed()
    unsure = int((best < SURE).sum())
    rows = []
    for place in np.argsort(best, kind="stable")[:_MOST_NODES]:
        order = np.argsort(-shares[place], kind="stable")[:3]
        told = ", ".join(f"{k} ({shares[place, k]:.2f})" for k in order if shares[place, k] > 0)
        rows.append([str(names[place]), number(best[place], 3), told])
    words = (
        f"{unsure:,} of {len(best):,} nodes belong to no block or community with a mean membership of {SURE:g} or "
        f"more. {'The least certain first' if len(rows) == len(best) else f'The {len(rows)} least certain'}:"
    )
    found = sortable("nodes", ["node", "largest", "memberships"], rows, "Nodes by certainty", texts=(0, 2))
    return Section("nodes", "Uncertain nodes", join([paragraph(words), found]))


# -- plots ------------------------------------------------------------------------------------------------------------


def plot(model: GraphModel, interval: float) -> Figure:
    """The network if it is small, shares, and the block matrix if there is one."""
    shares = np.asarray(model.memberships())
    edges = model.nodes_.edges
    kinds = ["network"] * (edges is not None) + ["shares"] + ["matrix"] * ("block_matrix" in model.draws_)
    with drawn_figure("plot()") as figure:
        widths = [2.0 if kind == "network" else 1.0 for kind in kinds]
        figure.set_size_inches(2.7 * sum(widths), 5.0 if edges is not None else 2.7)
        axes = figure.subplots(1, len(kinds), squeeze=False, width_ratios=widths)[0]
        panels = dict(zip(kinds, axes, strict=True))
        if edges is not None:
            _draw_network(panels["network"], np.array(edges, np.int64), shares, model.nodes_.listed())
        _draw_shares(panels["shares"], model.shares(interval), interval, shares.shape[1])
        if "matrix" in kinds:
            _draw_matrix(figure, panels["matrix"], np.asarray(model.block_matrix()))
    return figure


def _colours(num: int) -> Array:
    """A colour for each block."""
    import matplotlib

    table = matplotlib.colormaps["tab20"]  # dark and light colours in turn; the dark ones first
    return np.array([table((2 * k + k // 10) % 20) for k in range(num)])


def _draw_network(panel: Axes, edges: Array, shares: Array, names: list[Any]) -> None:
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


def _draw_shares(panel: Axes, found: Any, interval: float, num: int) -> None:
    at, colours = np.arange(num), _colours(num)
    panel.hlines(at, found.low, found.high, color=colours, linewidth=1.6)
    panel.scatter(found.mean, at, c=colours, s=18)
    panel.set_ylim(num - 0.5, -0.5)
    panel.set_xlim(0, None)
    panel.set_yticks(at if num <= 30 else at[:: num // 15])
    panel.set_title(f"shares, central {interval:.0%}", fontsize=9, loc="left")


def _draw_matrix(figure: Figure, panel: Axes, mean: Array) -> None:
    from matplotlib.colors import LogNorm

    low = max(float(mean.min()), 1e-12 * float(mean.max()))
    norm = LogNorm(low, float(mean.max())) if low < mean.max() else None
    drawn = panel.imshow(np.maximum(mean, low), cmap="Blues", norm=norm)
    panel.locator_params(integer=True)
    panel.set_title("rates between blocks", fontsize=9, loc="left")
    figure.colorbar(drawn, ax=panel, shrink=0.4)
