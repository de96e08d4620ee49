"""Networks that grow after a fit: `partial_fit`, which continues the chains with more edges and nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np

from scirocco.errors import InvalidValueError
from scirocco.models.graph.base import GraphModel
from scirocco.models.graph.edges import Array, Graph, GraphLike, joined, read
from scirocco.models.graph.inputs import is_empty

_EPOCHS = 20


class Former(NamedTuple):
    """Where chains continue."""

    draws: dict[str, Array]
    """The last draw of each chain."""
    calls: int
    """Calls of `partial_fit` so far."""


class Growing(GraphModel):
    """A model of a network whose chains continue with more edges, from their last draws."""

    _network: tuple[Graph, Array | None] | None = None
    """The network that was fitted, and its pairs that are not used."""
    _former: Former | None = None
    _calls = 0

    def partial_fit(
        self,
        edges: GraphLike,
        y: object = None,
        *,
        nodes: Any = None,
        num_epochs: float = _EPOCHS,
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
        if "run_" not in self.__dict__:
            return self.fit(edges, nodes=nodes, progress=progress)
        self._check_fitted()
        if self._network is None:
            raise InvalidValueError(
                "the network of this model is not available (edges are not saved): call fit with all edges first."
            )
        known, unseen = self._network
        if is_empty(edges):
            return self
        whole = joined(known, read(edges, known.directed, nodes))
        hidden = (
            None if unseen is None else [tuple(whole.name(end) for end in pair) for pair in unseen.tolist()]
        )
        last = {name: values[:, -1] for name, values in self.draws_.items()}
        self._former = Former(last, self._calls + 1)
        try:
            self.fit(whole, held_out=hidden, num_epochs=num_epochs, progress=progress)
        finally:
            calls, self._former = self._former.calls, None
        self._calls = calls
        return self

    def _continued(self, make: Callable[[int, int], Any], seed: int) -> Callable[[int], Any]:
        """Make the chain with a number: new, or from where an earlier one stopped."""
        former = self._former
        self._calls = 0
        if former is None:
            return lambda number: make(seed, number)
        again = int(np.random.SeedSequence([seed, former.calls]).generate_state(1)[0])

        def continued(number: int) -> Any:
            chain = make(again, number)
            chain.take_over({name: values[number % len(values)] for name, values in former.draws.items()})
            return chain

        return continued
