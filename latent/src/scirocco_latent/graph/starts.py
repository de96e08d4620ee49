"""Where chains of a block model start: clusters of a spectral embedding, improved by short chains."""

from __future__ import annotations

import threading

import numpy as np
from scipy import sparse

from scirocco.models._core.chain import BlockPurpose
from scirocco_latent.graph.edges import Array
from scirocco_latent.graph.gibbs import BlockPrior, Network, NodeBlocks

# power iterations, vectors more than wanted, most dimensions of the embedding
_POWERS, _EXTRA, _MOST_DIMENSIONS = 6, 8, 64
_SWEEPS = (6, 20)  # of a short chain before the others are left out, and of those that stay
_ROUNDS = 12  # of k-means
# clusters per block, share of blocks merged at a time, sweeps between merges
_WIDER, _MERGED, _BETWEEN = 2, 0.25, 2


class Starts:
    """Starts of all chains: they share the embedding of the network, and differ in the clusters."""

    def __init__(self, prior: BlockPrior, net: Network, num_starts: int, seed: int):
        self.prior, self.net, self.num_starts, self.seed = prior, net, num_starts, seed
        self._lock, self._embedding = threading.Lock(), np.empty((0, 0))

    @property
    def rows(self) -> Array:
        """The embedding (N, d), computed when it is first used."""
        with self._lock:
            if not len(self._embedding):
                self._embedding = embedding(self.net, self.prior, np.random.default_rng(self.seed))
        return self._embedding

    def begin(self, seed: int) -> tuple[NodeBlocks, Array]:
        """Blocks and a block matrix: the best of several short chains, by their density."""
        rng = np.random.default_rng([seed, BlockPurpose.START])
        if not self.num_starts:  # the prior, for tests
            blocks = NodeBlocks(self.prior, self.net, rng.integers(0, self.prior.num_blocks, self.net.num_nodes))
            return blocks, blocks.draw(rng)
        racing = [self._first(rng) for _ in range(self.num_starts)]
        racing = sorted(racing, key=lambda blocks: -blocks.log_joint())[: -(-len(racing) // 4)]
        moved = [(blocks, sweeps(blocks, _SWEEPS[1], rng)) for blocks in racing]
        return max(moved, key=lambda one: one[0].log_joint())

    def _first(self, rng: np.random.Generator) -> NodeBlocks:
        """Blocks from more clusters than wanted, which are merged where that costs least."""
        num = self.prior.num_blocks
        wide = num if self.prior.process else min(_WIDER * num, self.net.num_nodes)
        prior = self.prior._replace(num_blocks=wide, process=True)  # blocks that were merged stay empty
        blocks = NodeBlocks(prior, self.net, clusters(self.rows, wide, rng))
        sweeps(blocks, _SWEEPS[0], rng)
        agglomerate(blocks, None if self.prior.process else num, rng)
        return NodeBlocks(self.prior, self.net, np.unique(blocks.z, return_inverse=True)[1], blocks.counts)


def sweeps(blocks: NodeBlocks, count: int, rng: np.random.Generator) -> Array:
    """Draw the blocks of all nodes several times; returns the last block matrix."""
    rates = blocks.draw(rng)
    for _ in range(count):
        first, second = (int(word) for word in rng.integers(2**62, size=2))
        everyone = rng.permutation(len(blocks.z))
        blocks.move(everyone, rates, (first, second))
        blocks.impute(everyone, rates, (first, second + 1))
        rates = blocks.draw(rng)
    return rates


def agglomerate(blocks: NodeBlocks, num: int | None, rng: np.random.Generator) -> None:
    """Merge the pairs of blocks whose merge costs least, some at a time, with sweeps in between.

    It ends with `num` blocks; if None, where no merge raises the density.
    """
    while len(occupied := blocks.occupied) > (least := 1 if num is None else num):
        gains = np.stack([merge_gains(blocks, r) for r in occupied])
        first, second = np.triu_indices(len(occupied), 1)
        left = min(len(occupied) - least, max(1, int(_MERGED * len(occupied))))
        free, before = np.ones(len(occupied), bool), left
        for best in np.argsort(-gains[first, second], kind="stable"):
            r, s = first[best], second[best]
            if left == 0 or (num is None and gains[r, s] <= 0):
                break
            if free[r] and free[s]:
                free[[r, s]] = False
                blocks.merge(occupied[r], occupied[s])
                left -= 1
        if left == before:
            return
        sweeps(blocks, _BETWEEN, rng)


def merge_gains(blocks: NodeBlocks, r: int) -> Array:
    """Change of the log joint density if block r were merged with each block that has nodes (0 for itself)."""
    prior, occupied, directed = blocks.prior, blocks.occupied, blocks.net.directed
    own = int(np.searchsorted(occupied, r))
    every = np.ix_(occupied, occupied)
    edges, pairs = blocks.edges[every].astype(np.float64), blocks.pairs()[every]
    each = np.arange(len(occupied))
    found = np.zeros(len(occupied))
    logs = prior.marginal(edges, pairs)
    for m, n, f in ((edges, pairs, logs), (edges.T, pairs.T, logs.T))[: 2 if directed else 1]:
        change = prior.marginal(m + m[own], n + n[own]) - f - f[own]
        change[each, each] = change[:, own] = 0.0
        found += change.sum(axis=1)
    inside = [edges[own, own] + np.diag(edges) + edges[own], pairs[own, own] + np.diag(pairs) + pairs[own]]
    apart = logs[own].copy()
    if directed:
        inside = [inside[0] + edges[:, own], inside[1] + pairs[:, own]]
        apart += logs[:, own]
    found += prior.marginal(inside[0], inside[1]) - logs[own, own] - np.diag(logs) - apart
    sizes, sums = blocks.sizes[occupied], blocks.sums[occupied]
    alone, nobody = prior.of_block(sizes, sums), prior.of_block(np.zeros(1, np.int64), 0 * sums[:1])
    found += prior.of_block(sizes + sizes[own], sums + sums[own]) + nobody - alone - alone[own]
    found += prior.of_number(len(occupied) - 1) - prior.of_number(len(occupied))
    found[own] = 0.0
    return found


def embedding(net: Network, prior: BlockPrior, rng: np.random.Generator) -> Array:
    """Rows of the leading singular vectors of the adjacency matrix, divided by the roots of degrees plus their mean."""
    pointers, ends, weights = net.leaving
    num = net.num_nodes
    matrix = sparse.csr_array((np.log1p(weights.astype(np.float64)), ends, pointers), shape=(num, num))
    out, into = matrix.sum(axis=1), matrix.sum(axis=0)
    mean = out.mean()
    left = 1.0 / np.sqrt(out + mean)
    right = 1.0 / np.sqrt(into + mean)
    wide = min(num, prior.num_blocks, _MOST_DIMENSIONS)
    extra = min(num, wide + _EXTRA)

    def forward(x: Array) -> Array:
        return left[:, None] * (matrix @ (right[:, None] * x))

    def backward(x: Array) -> Array:
        return right[:, None] * (matrix.T @ (left[:, None] * x))

    basis = np.linalg.qr(forward(rng.standard_normal((num, extra))))[0]
    for _ in range(_POWERS):
        basis = np.linalg.qr(forward(backward(basis)))[0]
    u, values, _ = np.linalg.svd(backward(basis).T, full_matrices=False)
    found = (basis @ u[:, :wide]) * values[:wide]
    if net.directed:
        found = np.concatenate([found, backward(basis @ u[:, :wide])], axis=1)
    norms = np.linalg.norm(found, axis=1, keepdims=True)
    return found / np.maximum(norms, 1e-12) if prior.corrected else found


def clusters(rows: Array, num: int, rng: np.random.Generator) -> Array:
    """K-means, from centres that lie far from each other (k-means++)."""
    centres = rows[[int(rng.integers(len(rows)))]]
    nearest = ((rows - centres[0]) ** 2).sum(axis=1)
    for _ in range(1, num):
        total = nearest.sum()
        chance = nearest / total if total > 0 else None
        new = rows[[int(rng.choice(len(rows), p=chance))]]
        centres = np.concatenate([centres, new])
        nearest = np.minimum(nearest, ((rows - new[0]) ** 2).sum(axis=1))
    labels = np.zeros(len(rows), np.int64)
    for _ in range(_ROUNDS):
        labels = (rows @ centres.T - 0.5 * (centres**2).sum(axis=1)).argmax(axis=1)
        sizes = np.bincount(labels, minlength=num)
        sums = sparse.csr_array((np.ones(len(rows)), labels, np.arange(len(rows) + 1)), shape=(len(rows), num)).T @ rows
        centres = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
    return labels
