"""Models of networks in a report: blocks, pictures of the network and of the block matrix, uncertain nodes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from scirocco.diagnostics.intervals import widest
from scirocco.drawing.markup import Html, Section, join, number, paragraph, sortable, tag
from scirocco.drawing.networks import SURE, network
from scirocco.models._core.view import View, own_run, size_of, with_draws
from scirocco.run import Run

if TYPE_CHECKING:
    from scirocco.models.graph.estimator import StochasticBlockModel
    from scirocco.models.graph.mixed import MixedMembership

_INTERVAL, _MOST_NODES, _MOST_CHARTED, _LABELLED = 0.9, 50, 30, 30


def view(model: StochasticBlockModel, run: Run | None) -> View:
    """Report of blocks and rates; draws are diagnosed with their blocks in one order."""
    run = own_run(model, run)
    model._check_fitted()
    draws: dict[str, Any] = {"shares": model.draws_["shares"]}
    matrix = model.draws_["block_matrix"]
    draws["block matrix" if matrix.shape[-1] <= _MOST_CHARTED else "inside"] = (
        matrix if matrix.shape[-1] <= _MOST_CHARTED else np.diagonal(matrix, axis1=-2, axis2=-1)
    )
    if "log_joint" in run.stats:
        draws["log joint density"] = np.asarray(run.stats["log_joint"])
    chosen = run.preparation.get("chosen", "")
    about = "Diagnosed and plotted with the blocks of all draws and chains in one order, the largest first."
    if chosen:
        about += f" Method: {chosen}."
    return View(
        run,
        "Block model",
        size_of(run, "blocks", matrix.shape[-1]).replace(" rows", " edges"),
        with_draws(run, draws),
        about,
        sections=lambda seen: [_blocks(model), *_pictures(model, model.memberships(), "block")],
    )


def mixed(model: MixedMembership, run: Run | None) -> View:
    """Report of communities and of nodes between them."""
    run = own_run(model, run)
    model._check_fitted()
    draws = {"shares": model.draws_["shares"], "log likelihood": np.asarray(run.stats["log_likelihood"])}
    about = "Diagnosed and plotted with the communities of all draws and chains in one order, by their share of edges."
    chosen = run.preparation.get("chosen", "")
    return View(
        run,
        "Mixed memberships",
        size_of(run, "communities", model.draws_["shares"].shape[-1]).replace(" rows", " edges"),
        with_draws(run, draws),
        about + (f" Method: {chosen}." if chosen else ""),
        sections=lambda seen: [_communities(model), *_pictures(model, model.memberships_, "community")],
    )


def _pictures(model: StochasticBlockModel | MixedMembership, shares: np.ndarray, group: str) -> list[Section]:
    """The network if it is small, the block matrix if there is one, and the uncertain nodes."""
    found = list[Section]()
    if model.nodes_.edges is not None:
        found.append(_network(model, shares, group))
    if "block_matrix" in model.draws_:
        found.append(_matrix(model))
    return [*found, _nodes(model, shares)]


def _network(model: StochasticBlockModel | MixedMembership, shares: np.ndarray, group: str) -> Section:
    source, target = np.array(model.nodes_.edges, np.int64)
    mixed = group == "community"
    groups = "communities" if mixed else "blocks"
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
    table = model.summary(level)
    rows = [
        [
            f"community {k}",
            f"{number(row['share'], 3)} ({number(row['share_low'], 3)} to {number(row['share_high'], 3)})",
            f"{int(row['nodes']):,}",
            f"{int(row['members']):,}",
        ]
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
    table = model.summary(level)
    rows = [
        [
            f"block {k}",
            f"{int(row['nodes']):,}",
            *(
                f"{number(row[name], 3)} ({number(row[f'{name}_low'], 3)} to {number(row[f'{name}_high'], 3)})"
                for name in ("share", "inside")
            ),
        ]
        for k, row in table.iterrows()
    ]
    words = (
        f"Nodes: those for which the block is the most probable. Share of the nodes and rate of edges inside: "
        f"posterior means, and the central {level:.0%} in brackets."
    )
    found = sortable("blocks", ["block", "nodes", "share", "inside"], rows, "Blocks", texts=(0, 2, 3))
    return Section("blocks", "Blocks", join([paragraph(words), found]))


def _matrix(model: Any) -> Section:
    mean = np.asarray(model.block_matrix())
    words = (
        "Mean rates of edges between blocks, from the block of the row to that of the column, on a logarithmic scale: "
        f"the darkest is {number(mean.max(), 3)}, the lightest {number(mean.min(), 3)}. Larger blocks have "
        "wider rows and columns."
    )
    return Section(
        "block-matrix", "Block matrix", join([paragraph(words), picture(mean, np.asarray(model.shares()))])
    )


def picture(mean: np.ndarray, shares: np.ndarray, side: int = 420) -> Html:
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


def _nodes(model: StochasticBlockModel | MixedMembership, shares: np.ndarray) -> Section:
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
