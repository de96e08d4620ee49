"""Results of a fitted block model: blocks of nodes in one order, and the rates of edges between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from scirocco.diagnostics.intervals import central
from scirocco.errors import InvalidValueError
from scirocco_latent.graph.base import GraphModel, Growing
from scirocco_latent.graph.edges import Array
from scirocco_latent.graph.links import with_interval

_MOST_NODES = 5_000
"""Nodes of a matrix of all pairs."""
_ROUNDS = 4
"""Most rounds of assignments and averages."""


class BlockResults(GraphModel):
    """Results computed from the draws, with the blocks of all draws and chains in one order."""

    num_blocks: int | None

    def _in_one_order(self, raw: dict[str, Array], arrays: Mapping[str, Array]) -> dict[str, Array]:
        return blocks_in_one_order(raw)

    def _coordinates(self) -> dict[str, Sequence[Any]]:
        names = self.nodes_.listed()
        return {f"{key}_dim_0": names for key in ("blocks", "propensities") if key in self.draws_}

    # -- nodes --------------------------------------------------------------------------------------------------------

    def memberships(self) -> Array:
        """P(block of node) (nodes, blocks): the share of draws in which the node is in the block."""
        self._check_fitted()
        num = self.draws_["shares"].shape[-1]
        labels = self._flat("blocks")
        total = np.zeros(labels.shape[1] * num)
        places = np.arange(labels.shape[1], dtype=np.int64) * num
        for z in labels:
            total[places + z] += 1
        return total.reshape(-1, num) / len(labels)

    def nodes(self) -> Any:
        """One row per node, as a pandas data frame: its most probable block, and the probability of that block."""
        import pandas as pd

        shares = self.memberships()
        found = {"block": shares.argmax(axis=1), "probability": shares.max(axis=1)}
        if "propensities" in self.draws_:
            means = self.draws_["propensities"].mean(axis=(0, 1))
            columns = ("propensity",) if means.shape[1] == 1 else ("propensity_out", "propensity_in")
            found |= {name: means[:, k] for k, name in enumerate(columns)}
        return pd.DataFrame(found, index=pd.Index(self.nodes_.listed(), name="node"))

    def propensities(self, interval: float | None = None) -> Any:
        """Posterior means of the propensities (nodes, 1), or (nodes, 2) out and in; or `(mean, low, high)`.

        The mean over a block is 1: a node with 2 has twice as many edges as others of its block.
        """
        self._check_fitted()
        if "propensities" not in self.draws_:
            raise InvalidValueError("only a degree-corrected model has propensities of nodes.")
        return with_interval(self.draws_["propensities"], interval)

    def co_membership(self, pairs: Any = None) -> Array:
        """P(two nodes are in the same block): of pairs (pairs, 2), or (nodes, nodes) of all; free of block labels."""
        self._check_fitted()
        labels = self._flat("blocks")
        if pairs is not None:
            numbers = self._numbers(pairs)
            total = np.zeros(len(numbers))
            for z in labels:
                total += z[numbers[:, 0]] == z[numbers[:, 1]]
            return total / len(labels)
        if labels.shape[1] > _MOST_NODES:
            raise InvalidValueError(
                f"the matrix of {labels.shape[1]:,} nodes is too large: pass the pairs you need, co_membership(pairs)."
            )
        num = self.draws_["shares"].shape[-1]
        found = np.zeros((labels.shape[1], labels.shape[1]))
        for z in labels:
            rows = np.eye(num, dtype=np.float32)[z]
            found += rows @ rows.T
        return found / len(labels)

    # -- blocks -------------------------------------------------------------------------------------------------------

    def block_matrix(self, interval: float | None = None) -> Any:
        """Rates (blocks, blocks) of edges, of a pair of nodes: posterior means, or `(mean, low, high)`.

        Probabilities of an edge if edges are not counts. Of a directed network from the block of the row to that of the
        column. Degree-corrected: of two nodes of propensity 1.
        """
        self._check_fitted()
        return with_interval(self.draws_["block_matrix"], interval)

    def blocks(self, interval: float = 0.9) -> Any:
        """One row per block, as a pandas data frame: share of nodes, rate inside, and the most linked other block.

        If the number of blocks was drawn: of the blocks that are the most probable of some node.
        """
        import pandas as pd

        self._check_fitted()
        labels, matrix = self.labels_, self.draws_["block_matrix"]
        num = matrix.shape[-1]
        inside = np.diagonal(matrix, axis1=-2, axis2=-1)
        table: dict[str, Any] = {"nodes": np.bincount(labels, minlength=num)}
        for name, values in {"share": self.draws_["shares"], "inside": inside}.items():
            table[name] = values.mean(axis=(0, 1))
            table[f"{name}_low"], table[f"{name}_high"] = central(values, interval, (0, 1))
        found = pd.DataFrame(table, index=pd.Index(range(num), name="block"))
        if self.num_blocks is None:
            found = found[found["nodes"] > 0]
        kept = np.array(found.index)
        if len(kept) > 1:
            mean = matrix.mean(axis=(0, 1))[np.ix_(kept, kept)]
            np.fill_diagonal(mean, -1.0)
            found = found.assign(next=kept[mean.argmax(axis=1)], to_next=mean.max(axis=1))
        return found

    # -- inside -------------------------------------------------------------------------------------------------------

    def _rates(self, pairs: Array, chosen: Array) -> Iterator[Array]:
        labels, matrices = self._flat("blocks"), self._flat("block_matrix")
        spread = self._flat("propensities") if "propensities" in self.draws_ else None
        i, j = pairs.T
        for number in chosen:
            z = labels[number]
            rates = matrices[number][z[i], z[j]]
            if spread is not None:
                rates = rates * spread[number][i, 0] * spread[number][j, -1]
            yield rates


def blocks_in_one_order(raw: dict[str, Array]) -> dict[str, Array]:
    """Draws (chain, draw, ...) with the blocks of each in the same order, the largest first.

    A Dirichlet process has blocks without nodes, whose share is 0: results have as many blocks as the draw with most.
    """
    shape = raw["blocks"].shape[:2]
    flat = {name: values.reshape(-1, *values.shape[2:]) for name, values in raw.items()}
    num = int((flat["shares"] > 0).sum(axis=1).max())
    if num < flat["shares"].shape[1]:
        flat = _ordered(flat, np.argsort(flat["shares"] == 0, axis=1, kind="stable"), num)
    flat = _ordered(flat, same_order(flat["blocks"], num), num)
    return {name: values.reshape(*shape, *values.shape[1:]) for name, values in flat.items()}


def _ordered(flat: dict[str, Array], order: Array, num: int) -> dict[str, Array]:
    """Draws (draws, ...) with their blocks in an order (draws, K), of which the first are kept."""
    places = np.argsort(order, axis=1).astype(flat["blocks"].dtype)
    out = dict(flat)
    out["blocks"] = np.stack([place[z] for place, z in zip(places, flat["blocks"], strict=True)])
    out["shares"] = np.take_along_axis(flat["shares"], order[:, :num], axis=1)
    rows = np.take_along_axis(flat["block_matrix"], order[:, :num, None], axis=1)
    out["block_matrix"] = np.take_along_axis(rows, order[:, None, :num], axis=2)
    return out


def same_order(labels: Array, num: int) -> Array:
    """For each draw of labels (draws, nodes) the order of its blocks that agrees best with the other draws.

    `order[d, k]` is the block of draw d that is number k. Assignments and the most frequent label of each node in turn,
    from the last draw. Blocks are numbered by their size.
    """
    reference = labels[-1]
    found = np.zeros((len(labels), num), np.int64)
    for _ in range(_ROUNDS):
        before = found.copy()
        votes = np.zeros(labels.shape[1] * num, np.int32)
        places = np.arange(labels.shape[1], dtype=np.int64) * num
        for number, z in enumerate(labels):
            common = np.bincount(reference.astype(np.int64) * num + z, minlength=num * num).reshape(num, num)
            found[number] = linear_sum_assignment(-common)[1]
            votes[places + np.argsort(found[number])[z]] += 1
        if np.array_equal(before, found):
            break
        reference = votes.reshape(-1, num).argmax(axis=1)
    sizes = np.mean([np.bincount(z, minlength=num)[order] for z, order in zip(labels, found, strict=True)], axis=0)
    return found[:, np.argsort(-sizes, kind="stable")]


# -- memberships in communities


_ASSIGNMENTS = 5
"""Most rounds of assignments and averages."""


class Memberships(Growing):
    """Results from draws of weights (nodes, communities), and of a block matrix if edges lead between communities."""

    def _in_one_order(self, raw: dict[str, Array], arrays: Mapping[str, Array]) -> dict[str, Array]:
        return communities_in_one_order(raw, arrays.get("former"))

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


def communities_in_one_order(raw: dict[str, Array], former: Array | None = None) -> dict[str, Array]:
    """Draws (chain, draw, ...) with the communities of each in the same order, that with most edges first.

    Communities are compared by the memberships of all nodes. With `former`, mean memberships (nodes, communities) of
    the first nodes, the order is that of these.
    """
    shape = raw["shares"].shape[:2]
    weights = raw["weights"].reshape(-1, *raw["weights"].shape[2:])
    shares = raw["shares"].reshape(len(weights), -1)
    pi = weights / weights.sum(axis=-1, keepdims=True)
    reference, order = pi[-1], np.zeros(shares.shape, np.int64)
    for _ in range(_ASSIGNMENTS):
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
