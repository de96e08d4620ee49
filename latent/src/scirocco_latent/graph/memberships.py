"""Results of mixed memberships: memberships with intervals, communities in one order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from scirocco.diagnostics.intervals import central
from scirocco_latent.graph.base import Growing
from scirocco_latent.graph.edges import Array
from scirocco_latent.graph.links import with_interval

_ROUNDS = 5
"""Most rounds of assignments and averages."""


class Memberships(Growing):
    """Results from draws of weights (nodes, communities), and of a block matrix if edges lead between communities."""

    def _in_one_order(self, raw: dict[str, Array], arrays: Mapping[str, Array]) -> dict[str, Array]:
        return in_one_order(raw, arrays.get("former"))

    def _coordinates(self) -> dict[str, Sequence[Any]]:
        return {"weights_dim_0": self.nodes_.listed()}

    def memberships(self, interval: float | None = None) -> Any:
        """Memberships (nodes, communities), which sum to 1: posterior means, or `(mean, low, high)`."""
        self._check_fitted()
        weights = self.draws_["weights"]
        return with_interval(weights / weights.sum(axis=-1, keepdims=True), interval)

    @property
    def memberships_(self) -> Array:
        """Posterior mean memberships (nodes, communities)."""
        found: Array = self.memberships()
        return found

    def nodes(self) -> Any:
        """One row per node, as a pandas data frame: its largest membership, and all memberships."""
        import pandas as pd

        mean = self.memberships_
        found = {"community": mean.argmax(axis=1), "membership": mean.max(axis=1)}
        found |= {f"membership_{k}": mean[:, k] for k in range(mean.shape[1])}
        return pd.DataFrame(found, index=pd.Index(self.nodes_.listed(), name="node"))

    def co_membership(self, pairs: Any) -> Array:
        """P(two nodes act in the same community), Σ_k π_ik π_jk, of pairs (pairs, 2), averaged over draws."""
        self._check_fitted()
        i, j = self._numbers(pairs).T
        total = np.zeros(len(i))
        for weights in self._flat("weights"):
            shares = weights / weights.sum(axis=1, keepdims=True)
            total += (shares[i] * shares[j]).sum(axis=1)
        return total / self._num_draws

    def communities(self, interval: float = 0.9) -> Any:
        """One row per community, as a pandas data frame: share of the edges, nodes for which it is the largest."""
        import pandas as pd

        self._check_fitted()
        draws = self.draws_["shares"]
        low, high = central(draws, interval, (0, 1))
        mean = self.memberships_
        table = {
            "share": draws.mean(axis=(0, 1)),
            "share_low": low,
            "share_high": high,
            "nodes": np.bincount(mean.argmax(axis=1), minlength=mean.shape[1]),
            "members": (mean >= 0.1).sum(axis=0),
        }
        return pd.DataFrame(table, index=pd.Index(range(mean.shape[1]), name="community"))

    def block_matrix(self, interval: float | None = None) -> Any:
        """Rates of edges between communities (K, K), from row to column: posterior means, or `(mean, low, high)`.

        They are those of two nodes that belong to one community each, and have the average propensity of all nodes.
        """
        self._check_fitted()
        weights = self.draws_["weights"]
        size = weights.sum(axis=-1, dtype=np.float64).mean(axis=-1)
        if "receiving" in self.draws_:
            into = (weights.sum(axis=-1) * self.draws_["receiving"]).mean(axis=-1)
            scale = size * into
        else:
            scale = size**2
        matrix = self.draws_.get("block_matrix", np.eye(weights.shape[-1]))
        return with_interval(scale[..., None, None] * matrix, interval)

    def _rates(self, pairs: Array, chosen: Array) -> Iterator[Array]:
        i, j = pairs.T
        matrices = self._flat("block_matrix") if "block_matrix" in self.draws_ else None
        factors = self._flat("receiving") if "receiving" in self.draws_ else None
        for number, weights in zip(chosen, self._flat("weights")[chosen], strict=True):
            to = weights if matrices is None else weights @ matrices[number].T
            rates = np.einsum("pk,pk->p", weights[i], to[j], dtype=np.float64)
            yield rates if factors is None else rates * factors[number][j]


def in_one_order(raw: dict[str, Array], former: Array | None = None) -> dict[str, Array]:
    """Draws (chain, draw, ...) with the communities of each in the same order, that with most edges first.

    Communities are compared by the memberships of all nodes. With `former`, mean memberships (nodes, communities) of
    the first nodes, the order is that of these.
    """
    shape = raw["shares"].shape[:2]
    weights = raw["weights"].reshape(-1, *raw["weights"].shape[2:])
    shares = raw["shares"].reshape(len(weights), -1)
    pi = weights / weights.sum(axis=-1, keepdims=True)
    reference, order = pi[-1], np.zeros(shares.shape, np.int64)
    for _ in range(_ROUNDS):
        before = order.copy()
        for number, one in enumerate(pi):
            order[number] = linear_sum_assignment(-(reference.T @ one))[1]
        if np.array_equal(before, order):
            break
        reference = np.mean([one[:, place] for one, place in zip(pi, order, strict=True)], axis=0)
    if former is None:
        ranked = np.argsort(-np.take_along_axis(shares, order, axis=1).mean(axis=0), kind="stable")
    else:
        ranked = linear_sum_assignment(-(former.T @ reference[: len(former)]))[1]
    order = order[:, ranked]
    found = {
        "weights": np.stack([one[:, place] for one, place in zip(weights, order, strict=True)]),
        "shares": np.take_along_axis(shares, order, axis=1),
    }
    if "block_matrix" in raw:
        matrices = raw["block_matrix"].reshape(len(weights), *raw["block_matrix"].shape[2:])
        found["block_matrix"] = np.stack([m[np.ix_(p, p)] for m, p in zip(matrices, order, strict=True)])
    ordered = {name: values.reshape(*shape, *values.shape[1:]) for name, values in found.items()}
    return raw | ordered
