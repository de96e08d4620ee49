"""What all models of networks share: reading the network, a program of chains, and chains that continue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self, Unpack

import numpy as np

from scirocco import _checks
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models._core.chain import Chain, Spec
from scirocco.models._core.program import FitOptions, OwnChains, fingerprint
from scirocco.run.result import Run
from scirocco_latent.graph.edges import Array, EdgeGraph, GraphLike, joined, pair_numbers, read
from scirocco_latent.graph.gibbs import num_batches
from scirocco_latent.graph.inputs import is_empty
from scirocco_latent.graph.links import LinkResults, Nodes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LIKELIHOODS = ("poisson", "bernoulli")
_BATCH = 10_000
"""Nodes of a step."""
_LEAST_EPOCHS, _MOST_EPOCHS, _WORK = 100, 4_000, 10**9
"""Default passes: as many as visit this number of edges times blocks, within limits."""
_MOST_DRAWN = 500, 10_000
"""Nodes and edges of a network that is small enough for a picture."""
_NEW_EPOCHS = 20
"""Default passes of `partial_fit`."""


class GraphModel(LinkResults):
    """A model of a network with chains of its own."""

    directed: bool | None
    batch_size: int | None
    prior: Mapping[str, float] | None

    # -- a model writes these -----------------------------------------------------------------------------------------

    def _program(self, graph: EdgeGraph, unseen: Array | None) -> OwnChains:
        """The chains of a network; `unseen` are pairs that are not used."""
        raise NotImplementedError

    def _in_one_order(self, raw: dict[str, Array], arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Draws (chain, draw, ...) with blocks or communities in the same order in all of them."""
        raise NotImplementedError

    # -- and has these ------------------------------------------------------------------------------------------------

    def fit(
        self,
        graph: GraphLike,
        y: object = None,
        *,
        nodes: Any = None,
        held_out: Any = None,
        **options: Unpack[FitOptions],
    ) -> Self:
        """Sample from the posterior given a network.

        Parameters
        ----------
        graph
            Edges (edges, 2), or (edges, 3) with weights, as an array, a list, an iterator, a data frame, a CSV file or
            a data folder with columns source, target and perhaps weight; a SciPy sparse adjacency matrix; a networkx or
            igraph graph. Nodes are texts or integers. Self-loops are dropped.
            Pairs that occur several times count once, unless there are weights, which are added: whole numbers >= 0.
        y
            Ignored.
        nodes
            The names of all nodes (or their number, for 0 to n - 1), if some have no edge and the input does not name
            them. A node without edges belongs to the blocks with few edges.
        held_out
            Pairs (pairs, 2) that are not used: whether they have an edge is treated as unknown.
        num_steps, num_epochs, max_seconds
            The length of the run, including burn-in; give at most one of the three. An epoch draws all blocks once. By
            default `num_samples` times `thin` steps after the burn-in if `thin` is given, otherwise 100 epochs, up to
            4,000 for small networks.
        store, resume, overwrite, callbacks, progress
            As for `sc.sample`.
        """
        network = read(graph, self.directed, nodes)
        return self._drawn(network, None if held_out is None else _unseen(held_out, network), options)

    def fit_predict(self, graph: GraphLike, y: object = None, **options: Any) -> Array:
        """The labels of the nodes, `fit(graph, **options).labels_`, in the order of `node_names_`."""
        labels: Array = self.fit(graph, **options).labels_
        return labels

    def plot(self, interval: float = 0.9) -> Figure:
        """A matplotlib figure: the network with the colours of its blocks if it is small, and the shares of the blocks.

        Uncertain nodes have a ring, in the colour of the second block. Save it with `figure.savefig("blocks.pdf")`.
        """
        from scirocco_latent.graph import view

        self._check_fitted()
        return view.plot(self, interval)

    # -- what a fitted model is ---------------------------------------------------------------------------------------

    def _results(self, run: Run, told: dict[str, Any], arrays: Mapping[str, Array]) -> dict[str, Array]:
        names = None if told["names"] is None else tuple(told["names"])
        self.nodes_ = Nodes(**(told | {"names": names}))
        raw = {name: np.asarray(values) for name, values in run.draws.items()}
        return self._in_one_order(raw, arrays)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _drawn(self, graph: EdgeGraph, unseen: Array | None, options: FitOptions) -> Self:
        return self._run(self._program(graph, unseen), options)

    def _batch(self) -> int:
        return _BATCH if self.batch_size is None else _checks.positive_int(self.batch_size, "batch_size")

    def _pseudo_counts(self, mean: float, poisson: bool = True) -> tuple[float, float]:
        """c edges among d pairs that the prior of a rate with this mean is worth."""
        if self.prior is not None and not isinstance(self.prior, Mapping):
            raise InvalidTypeError(f"`prior` must be a dict, got {type(self.prior).__name__}.")
        own = dict(self.prior or {})
        for name, value in own.items():
            if name not in ("edges", "pairs"):
                raise InvalidValueError(f"the prior has no {name!r}. It has edges and pairs.")
            _checks.positive(value, f"the prior's {name}")
        edges = float(own.get("edges", 0.5))
        pairs = float(own.get("pairs", edges / mean))
        if not poisson and pairs <= edges:
            raise InvalidValueError(
                f"the prior must have more pairs than edges, got edges={edges:g} and pairs={pairs:g}."
            )
        return edges, pairs

    def _own_chains(
        self,
        graph: EdgeGraph,
        unseen: Array | None,
        words: str,
        settings: dict[str, Any],
        spec: Spec,
        make: Callable[[int], Chain],
        *,
        width: int,
        poisson: bool,
        arrays: Mapping[str, Array] | None = None,
    ) -> OwnChains:
        """The program of these chains; `width` is the number of blocks for which a pass is counted."""
        edges = {"source": graph.source, "target": graph.target, "weight": graph.weight}
        hidden = np.empty((0, 2), np.int64) if unseen is None else unseen
        nodes = Nodes(graph.names, graph.num_nodes, graph.directed, poisson, _to_draw(graph))
        return OwnChains(
            words,
            {"sampler": "gibbs", **settings, "directed": graph.directed, "num_nodes": graph.num_nodes},
            lambda: fingerprint({**edges, "unseen": hidden}),
            len(graph.source),
            spec,
            make,
            nodes._asdict(),
            arrays or {},
            epoch=(num_batches(graph.num_nodes, self._batch()), 1),
            default_epochs=min(_MOST_EPOCHS, max(_LEAST_EPOCHS, _WORK // (len(graph.source) * width))),
            capacity=8 if graph.num_nodes < 10_000 else 1,
        )


class Former(NamedTuple):
    """Where chains continue."""

    draws: dict[str, Array]
    """The last draw of each chain."""
    calls: int
    """Calls of `partial_fit` so far."""

    def seed(self, seed: int) -> int:
        """The seed of the chains that continue."""
        return int(np.random.SeedSequence([seed, self.calls]).generate_state(1)[0])

    def of(self, number: int) -> dict[str, Array]:
        """The draw from which a chain continues."""
        return {name: values[number % len(values)] for name, values in self.draws.items()}

    def memberships(self) -> Array:
        """Mean memberships (nodes, communities) in these draws."""
        weights = self.draws["weights"]
        mean: Array = (weights / weights.sum(axis=-1, keepdims=True)).mean(axis=0)
        return mean


class Growing(GraphModel):
    """A model of a network whose chains continue with more edges, from their last draws."""

    _network: tuple[EdgeGraph, Array | None] | None = None
    """The network that was fitted, and its pairs that are not used."""
    _calls = 0
    """Calls of `partial_fit` since `fit`."""

    def _program(self, graph: EdgeGraph, unseen: Array | None, former: Former | None = None) -> OwnChains:
        raise NotImplementedError

    def _drawn(self, graph: EdgeGraph, unseen: Array | None, options: FitOptions, former: Former | None = None) -> Self:
        self._run(self._program(graph, unseen, former), options)
        self._network, self._calls = (graph, unseen), 0 if former is None else former.calls
        return self

    def partial_fit(
        self,
        edges: GraphLike,
        y: object = None,
        *,
        nodes: Any = None,
        num_epochs: float = _NEW_EPOCHS,
        progress: bool = False,
    ) -> Self:
        """Add edges, and nodes, to the network, and continue the chains.

        The edges are added to those of earlier calls, which are stored. Each chain continues from its last draw, in
        which new nodes have the memberships of their neighbours, with `num_epochs` passes over the network; the draws
        after the burn-in replace the earlier ones. The first call is `fit` with its own length. Edges without weights
        that are known already are dropped, weights are added. An edge between nodes that were known is new
        information: before, the pair counted as one without an edge.

        Parameters
        ----------
        edges
            As for `fit`.
        y
            Ignored.
        nodes
            The names of all new nodes, if some have no edge.
        num_epochs, progress
            As for `fit`.
        """
        if "run_" not in vars(self):
            return self.fit(edges, nodes=nodes, progress=progress)
        if self._network is None:
            raise InvalidValueError(
                "the network of this model is not available (edges are not saved): call fit with all edges first."
            )
        if is_empty(edges):
            return self
        before, unseen = self._network
        whole = joined(before, read(edges, before.directed, nodes))  # nodes keep their numbers
        former = Former({name: values[:, -1] for name, values in self.draws_.items()}, self._calls + 1)
        return self._drawn(whole, unseen, {"num_epochs": num_epochs, "progress": progress}, former)


def _to_draw(graph: EdgeGraph) -> list[list[int]] | None:
    """Edges of a small network."""
    if graph.num_nodes > _MOST_DRAWN[0] or len(graph.source) > _MOST_DRAWN[1]:
        return None
    return [graph.source.tolist(), graph.target.tolist()]


def _unseen(held_out: Any, graph: EdgeGraph) -> Array:
    pairs = pair_numbers(held_out, graph.names, graph.num_nodes)
    if np.any(pairs[:, 0] == pairs[:, 1]):
        raise InvalidValueError("`held_out` contains a pair of a node with itself.")
    return pairs
