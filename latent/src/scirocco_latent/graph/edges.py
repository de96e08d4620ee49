"""Networks: edges between numbered nodes.

Rules, the same for all inputs: self-loops are dropped, with a warning. A pair that occurs several times is one edge if
there are no weights; weights of the same pair are added. Weights are whole numbers >= 0, and 0 is no edge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from scirocco import _checks
from scirocco.data.values import EXACT, Sparse, as_numpy, missing
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco_latent.graph.inputs import Array as Array
from scirocco_latent.graph.inputs import GraphLike as GraphLike
from scirocco_latent.graph.inputs import Raw, raw_edges

_MOST_WEIGHT = 2**31  # sums of weights must fit in 64 bits
_MOST_NODES = 2**31 - 1  # their numbers are 32-bit integers


class EdgeGraph(NamedTuple):
    """A network: edges between numbered nodes, each pair once, sorted."""

    source: Array
    """The first node of each edge; the smaller number if edges have no direction."""
    target: Array
    weight: Array
    """Counts >= 1."""
    names: tuple[Any, ...] | None
    """Names of the nodes: str or int; None: their numbers."""
    num_nodes: int
    directed: bool
    has_weights: bool
    """Whether the user gave weights that are not all 1."""

    def name(self, number: int) -> Any:
        """The name of a node."""
        return number if self.names is None else self.names[number]

    @property
    def num_pairs(self) -> float:
        """Number of pairs of different nodes."""
        ordered = self.num_nodes * (self.num_nodes - 1.0)
        return ordered if self.directed else ordered / 2


def read(graph: GraphLike | EdgeGraph, directed: bool | None = None, nodes: Any = None) -> EdgeGraph:
    """Read a network.

    `directed`: None for what a networkx or igraph graph says; a matrix is directed if it is not symmetric; edge lists
    are not. `nodes`: the names of all nodes, if some of them have no edge and the input does not name them.
    """
    if isinstance(graph, EdgeGraph):
        return graph
    if directed is not None and not isinstance(directed, (bool, np.bool_)):
        raise InvalidTypeError(f"`directed` must be True, False or None, got {directed!r}.")
    raw = raw_edges(graph)
    known = raw.nodes if nodes is None else _given_nodes(nodes)
    source, target, names, total = _numbered(raw, known)
    weight = _weights(raw.weight, len(source))
    is_directed = raw.directed if directed is None else bool(directed)
    if isinstance(graph, Sparse) and directed is False and raw.directed:
        raise InvalidValueError("the matrix is not symmetric: pass directed=True, or `matrix + matrix.T`.")
    return _simplified(source, target, weight, names, total, is_directed, isinstance(graph, Sparse))


def joined(first: EdgeGraph, second: EdgeGraph) -> EdgeGraph:
    """Both networks as one; the nodes of the first keep their numbers, new ones follow."""
    names = list(first.names or range(first.num_nodes))
    place = {name: number for number, name in enumerate(names)}
    others = _resolved(second.names or range(second.num_nodes), place)
    for name in others:
        if name not in place:
            place[name] = len(names)
            names.append(name)
    numbers = np.array([place[name] for name in others], np.int64)
    source = np.concatenate([first.source, numbers[second.source]])
    target = np.concatenate([first.target, numbers[second.target]])
    counted = first.has_weights or second.has_weights
    weight = np.concatenate([first.weight, second.weight]) if counted else None
    told = None if names == list(range(len(names))) else tuple(names)
    return _simplified(source, target, weight, told, len(names), first.directed, False)


# -- nodes and weights -------------------------------------------------------------------------------------------------


def _given_nodes(nodes: Any) -> list[Any]:
    if isinstance(nodes, (int, np.integer)) and not isinstance(nodes, bool):
        if _checks.positive_int(nodes, "nodes") > _MOST_NODES:
            raise InvalidValueError(f"`nodes` must be at most {_MOST_NODES:,}, got {nodes:,}.")
        return list(range(int(nodes)))
    names = as_numpy(nodes, "`nodes`")
    if names.ndim != 1:
        raise InvalidValueError(f"`nodes` must be a number, or a list of names, got the shape {names.shape}.")
    return [_plain(name, "`nodes`") for name in names.tolist()]


def _plain(name: Any, where: str) -> Any:
    if missing(name):
        raise InvalidValueError(f"{where} contains a missing name (None or NaN).")
    if isinstance(name, (bool, np.bool_)) or not isinstance(name, (int, str, np.integer, float, np.floating)):
        raise InvalidTypeError(f"names of nodes must be texts or integers, got {name!r} in {where}.")
    if isinstance(name, (float, np.floating)):
        if not float(name).is_integer():
            raise InvalidValueError(f"names of nodes must be texts or integers, got {name!r} in {where}.")
        return int(name)
    return name if isinstance(name, str) else int(name)


def _ends(values: Array, which: str) -> Array:
    """Ends of edges as int64 or as objects that are str and int."""
    if values.dtype.kind in "iu" and (values.dtype != np.uint64 or not np.any(values >= 2**63)):
        return values.astype(np.int64)
    if values.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            raise InvalidValueError(f"the {which} of edge {bad[0]} is missing ({values[bad[0]]}).")
        large = np.flatnonzero(np.abs(values) >= EXACT)
        if large.size:
            raise InvalidValueError(
                f"the {which} of edge {large[0]} is {values[large[0]]:.17g} in a column of {values.dtype}, which does "
                "not hold all whole numbers of this size: different nodes may have become one. Pass integers or texts."
            )
        if np.all(values == np.floor(values)):
            return values.astype(np.int64)
    out = np.empty(len(values), object)
    for number, name in enumerate(values.tolist()):
        if missing(name):
            raise InvalidValueError(f"the {which} of edge {number} is missing ({name}).")
        out[number] = _plain(name, f"the {which} of edge {number}")
    return out


def _numbered(raw: Raw, known: list[Any] | None) -> tuple[Array, Array, tuple[Any, ...] | None, int]:
    """Numbers of the ends of edges; names of the nodes, None if they are 0 to n - 1; the number of nodes."""
    source, target = _ends(raw.source, "source"), _ends(raw.target, "target")
    if known is None and source.dtype == target.dtype == np.int64:
        found, inverse = np.unique(np.concatenate([source, target]), return_inverse=True)
        names: list[Any] = found.tolist()
        ends = inverse.reshape(-1)
    else:
        both = [*source.tolist(), *target.tolist()]
        names = [] if known is None else [_plain(name, "the nodes") for name in known]
        both, names = _of_one_type(both, names, raw)
        names = list(dict.fromkeys(both)) if known is None else names
        place = {name: number for number, name in enumerate(names)}
        if len(place) < len(names):
            twice = next(name for number, name in enumerate(names) if place[name] != number)
            raise InvalidValueError(f"two nodes have the name {twice!r}: names must be different.")
        absent = next((name for name in both if name not in place), None)
        if absent is not None:
            raise InvalidValueError(f"node {absent!r} has an edge, but is not one of `nodes`.")
        ends = np.array([place[name] for name in both], np.int64)
    total = len(names)
    plain = names == list(range(total))
    half = len(source)
    return ends[:half], ends[half:], None if plain else tuple(names), total


def _of_one_type(both: list[Any], names: list[Any], raw: Raw) -> tuple[list[Any], list[Any]]:
    """The names of ends and of nodes: 1 and "1" are one node of a table; in Python's lists they are two."""
    if not raw.is_table or not any(isinstance(name, str) for name in chain(both, names)):
        return both, names
    if any(part.dtype.kind == "f" for part in (raw.source, raw.target)):
        raise InvalidTypeError(
            "one column of edges has decimal numbers, the other texts: write the names of nodes in one way."
        )
    return list(map(str, both)), list(map(str, names))


def _resolved(names: Sequence[Any], place: Mapping[Any, int]) -> list[Any]:
    """Names as those of a network: a number that it does not have is the text, and the other way round."""
    texts = all(isinstance(name, str) for name in place)
    found = list[Any]()
    for name in names:
        other = str(name) if not isinstance(name, str) else _as_whole(name)
        found.append(other if name not in place and (other in place or (texts and name is not other)) else name)
    return found


def _as_whole(name: str) -> Any:
    """The whole number that a text is; the text if it is none."""
    try:
        return int(name) if str(int(name)) == name else name
    except ValueError:
        return name


def _weights(weight: Array | None, count: int) -> Array | None:
    if weight is None:
        return None
    if weight.dtype.kind not in "biuf":
        try:
            weight = weight.astype(np.float64)
        except (TypeError, ValueError) as error:
            bad = next(value for value in weight.tolist() if not _is_number(value))
            raise InvalidTypeError(
                f"weights of edges (the third column) must be whole numbers, got {bad!r}. If it is not a "
                "weight, pass the first two columns only."
            ) from error
    for bad, words in (
        (~np.isfinite(weight), "missing or infinite"),
        (weight < 0, "negative"),
        (weight != np.floor(weight), "not a whole number"),
        (weight >= _MOST_WEIGHT, "too large"),
    ):
        if np.any(bad):
            first = int(np.flatnonzero(bad)[0])
            raise InvalidValueError(
                f"weights of edges must be whole numbers >= 0 (counts), but {int(np.sum(bad)):,} of {count:,} are "
                f"{words}; the first is {weight[first]} of edge {first}. Round or scale them, or drop the column."
            )
    return weight.astype(np.int64)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _simplified(
    source: Array,
    target: Array,
    weight: Array | None,
    names: tuple[Any, ...] | None,
    total: int,
    directed: bool,
    is_matrix: bool,
) -> EdgeGraph:
    """Each pair once, without loops and edges of weight 0."""
    loops = int(np.sum(source == target))
    if loops:
        _checks.warn(f"{loops:,} self-loop{'s were' if loops > 1 else ' was'} dropped.")
    keep = source != target if weight is None else (source != target) & (weight > 0)
    source, target = source[keep], target[keep]
    if not directed:
        source, target = np.minimum(source, target), np.maximum(source, target)
    counts = np.ones(len(source), np.int64) if weight is None else weight[keep]
    if not len(source):
        raise InvalidValueError(f"the network has no edges ({total:,} nodes): there is nothing to learn blocks from.")
    pairs, inverse = np.unique(source * total + target, return_inverse=True)
    summed = np.bincount(inverse.reshape(-1), weights=counts, minlength=len(pairs)).astype(np.int64)
    if weight is None:
        again = len(source) - len(pairs)
        if again:
            _checks.warn(
                f"{again:,} of {len(source):,} edges repeat a pair{'' if directed else ' (in either direction)'} and "
                "were dropped. Pass weights to count them."
            )
        summed = np.ones(len(pairs), np.int64)
    many = weight is not None and bool(np.any(summed != 1))
    return EdgeGraph(pairs // total, pairs % total, summed, names, total, directed, many)


def pair_numbers(pairs: Any, names: tuple[Any, ...] | None, num_nodes: int) -> Array:
    """Pairs of nodes (pairs, 2) by name as numbers."""
    if isinstance(pairs, (list, tuple)) and not pairs:
        return np.empty((0, 2), np.int64)
    raw = raw_edges(pairs)
    if raw.weight is not None:
        raise InvalidValueError("`pairs` must have two columns.")
    ends = [_ends(raw.source, "first node"), _ends(raw.target, "second node")]
    place = None if names is None else {name: number for number, name in enumerate(names)}
    out = np.empty((len(ends[0]), 2), np.int64)
    for column, values in enumerate(ends):
        if place is None:
            if values.dtype == object:
                values = np.array([*map(_as_whole, map(str, values.tolist())), None], object)[:-1]
            bad = [v for v in values.tolist() if not isinstance(v, int) or not 0 <= v < num_nodes]
            if bad:
                raise InvalidValueError(
                    f"there is no node {bad[0]!r}: the nodes of the network are 0 to {num_nodes - 1:,}."
                )
            out[:, column] = values
        else:
            given = _resolved(values.tolist(), place)
            absent = next((name for name in given if name not in place), None)
            if absent is not None:
                raise InvalidValueError(f"there is no node {absent!r} in the network that was fitted.")
            out[:, column] = [place[name] for name in given]
    return out
