"""Pictures of small networks: positions of the nodes by a force-directed layout, and the drawing as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import shortest_path

from scirocco.drawing import svg
from scirocco.drawing.markup import Html, join, legend, shorten, spot, tag

Array = np.ndarray[Any, np.dtype[Any]]

_ROUNDS, _GRAVITY = 200, 1.0  # of the layout, and the pull to the middle
_WIDTH, _HEIGHT = 340.0, 300.0
"""Of the picture: the width of a phone, so that its names can be read there."""
_NAMED, _KEYED, _SLICES = 60, 24, 4  # nodes with names, groups in the key, slices of a node
SURE = 0.9
"""Nodes whose largest share is smaller are uncertain."""


def positions(num: int, source: Array, target: Array) -> Array:
    """Positions (nodes, 2) in the unit square by springs along edges and repulsion between all nodes.

    Fruchterman and Reingold's forces with cooling, from classical scaling of the distances in steps; the same network
    has the same positions. O(nodes²) a round: for up to about 1,000 nodes.
    """
    if num < 3:
        return np.stack([np.linspace(0.25, 0.75, num), np.full(num, 0.5)], axis=1)
    place = _scaled(num, source, target) + 1e-3 * np.random.default_rng(0).standard_normal((num, 2))
    ideal = 1.0 / math.sqrt(num)
    for heat in np.linspace(0.1, 0.002, _ROUNDS):
        apart = place[:, None] - place[None]
        squares = np.einsum("ijk,ijk->ij", apart, apart) + 1e-9
        push = np.einsum("ijk,ij->ik", apart, ideal**2 / squares)
        along = place[target] - place[source]
        pull = along * (np.linalg.norm(along, axis=1, keepdims=True) / ideal)
        push -= _GRAVITY * ideal * (place - 0.5)  # keeps the parts of a network together that have no edges in common
        for axis in (0, 1):
            push[:, axis] += np.bincount(source, pull[:, axis], num) - np.bincount(target, pull[:, axis], num)
        length = np.linalg.norm(push, axis=1, keepdims=True) + 1e-12
        place = place + push / length * np.minimum(length, heat)
    low, high = place.min(axis=0), place.max(axis=0)
    found: Array = (place - low) / np.maximum(high - low, 1e-9)
    return found


def _scaled(num: int, source: Array, target: Array) -> Array:
    """Classical scaling of the distances between nodes, in the unit square."""
    links = coo_array((np.ones(len(source)), (source, target)), shape=(num, num)).tocsr()
    steps = shortest_path(links, directed=False, unweighted=True)
    near = np.isfinite(steps)
    steps[~near] = steps[near].max() + 1.0
    squares = steps**2
    squares -= squares.mean(axis=0)
    squares -= squares.mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(-0.5 * squares)
    found = vectors[:, :-3:-1] * np.sqrt(np.maximum(values[:-3:-1], 0.0))
    found *= np.sign(found[np.abs(found).argmax(axis=0), (0, 1)])  # eigenvectors have no sign of their own
    found -= found.min(axis=0)
    placed: Array = found / max(float(found.max()), 1e-9)
    return placed


def radius(num: int) -> float:
    """The radius of a node, in units of the picture."""
    return min(max(55.0 / math.sqrt(max(num, 1)), 2.2), 7.5)


def network(
    source: Array, target: Array, shares: Array, names: Sequence[object], label: str, words: tuple[str, str]
) -> Html:
    """A network whose nodes have the colours of their groups; those of uncertain nodes are slices in a ring.

    `shares` (nodes, groups) sum to 1; `words` are those for a group and for an uncertain node.
    """
    group = words[0]
    num, best = len(shares), shares.argmax(axis=1)
    size = radius(num)
    room = 2.2 * size
    place = room + positions(num, source, target) * (_WIDTH - 2 * room, _HEIGHT - 2 * room)
    parts = _edges(place, source, target, best)
    for node in np.argsort(-shares.max(axis=1), kind="stable").tolist():  # uncertain ones on top
        order = np.argsort(-shares[node], kind="stable")[:_SLICES]
        told = ", ".join(f"{group} {k}: {shares[node, k]:.2f}" for k in order if shares[node, k] >= 0.005)
        drawn = _node(place[node], size, shares[node])
        parts.append(tag("g", tag("title", f"{names[node]}: {told}"), *drawn))
    if num <= _NAMED:
        parts += [_name(at, size, str(name)) for at, name in zip(place, names, strict=True)]
    elif shares.shape[1] > svg.NUM_COLOURS:  # colours repeat
        found = {k: np.median(place[best == k], axis=0) for k in np.unique(best).tolist()}
        parts += [_name(at, 0.0, f"{group} {k}") for k, at in found.items()]
    drawing = tag("svg", *parts, viewBox=f"0 0 {_WIDTH:g} {_HEIGHT:g}", role="img", aria_label=label)
    return join([tag("figure", drawing, class_="map net"), _key(best, shares.shape[1], words)])


def _edges(place: Array, source: Array, target: Array, best: Array) -> list[Html]:
    """Lines, those inside a group in its colour."""
    dim = f"{min(max(18.0 / math.sqrt(max(len(source), 1)), 0.15), 0.7):.2f}"
    inside = np.where(best[source] == best[target], best[source] % svg.NUM_COLOURS, svg.NUM_COLOURS)
    parts = []
    for kind in np.unique(inside)[::-1].tolist():  # those between groups below
        ends = np.concatenate([place[source], place[target]], axis=1)[inside == kind]
        path = "".join(f"M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}" for a, b, c, d in ends.tolist())
        colour = "between" if kind == svg.NUM_COLOURS else f"c{kind}"
        parts.append(tag("path", d=path, class_=f"line {colour}", stroke_opacity=dim))
    return parts


def _node(at: Array, size: float, shares: Array) -> list[Html]:
    x, y = at.tolist()
    order = np.argsort(-shares, kind="stable")[:_SLICES]
    if shares[order[0]] >= SURE:
        kind = f"spot c{order[0] % svg.NUM_COLOURS}"
        return [tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=f"{size:.1f}", class_=kind)]
    parts, begin = [], 0.0
    for k in order.tolist():
        end = begin + float(shares[k]) / float(shares[order].sum())
        if end - begin > 0.01:
            parts.append(tag("path", d=_slice(x, y, size, begin, end), class_=f"spot c{k % svg.NUM_COLOURS}"))
        begin = end
    ring = {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": f"{1.11 * size:.1f}", "stroke_width": f"{0.22 * size:.1f}"}
    return [*parts, tag("circle", class_="unsure", **ring)]


def _slice(x: float, y: float, size: float, begin: float, end: float) -> str:
    end = min(end, begin + 0.999)
    ends = [
        f"{x + size * math.sin(2 * math.pi * turn):.2f} {y - size * math.cos(2 * math.pi * turn):.2f}"
        for turn in (begin, end)
    ]
    return f"M{x:.1f} {y:.1f}L{ends[0]}A{size:.1f} {size:.1f} 0 {int(end - begin > 0.5)} 1 {ends[1]}z"


def _name(at: Array, size: float, name: str) -> Html:
    short = len(name) <= 2
    height = at[1] + 2.8 if short else at[1] - size - 2.5
    return tag(
        "text",
        shorten(name, 14),
        x=f"{min(max(at[0], 20.0), _WIDTH - 20.0) if not short else at[0]:.1f}",
        y=f"{height:.1f}",
        text_anchor="middle",
        class_="inside" if short else "above",
    )


def _key(best: Array, num: int, words: tuple[str, str]) -> Html:
    """Colours of the groups, with their numbers of nodes."""
    counts = np.bincount(best, minlength=num).tolist()
    told = [(f"spot c{k % svg.NUM_COLOURS}", f"{words[0]} {k} ({counts[k]:,})") for k in range(min(num, _KEYED))]
    told.append(("unsure", words[1]))
    return legend((spot(kind), text) for kind, text in told)
