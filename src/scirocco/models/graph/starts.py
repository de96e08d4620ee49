"""Where chains of a block model start: clusters of a spectral embedding, improved by short chains."""

from __future__ import annotations

import threading

import numpy as np
from scipy import sparse

from scirocco.models.fits.chains import BlockPurpose
from scirocco.models.graph.edges import Array
from scirocco.models.graph.gibbs import Blocks, Network, Prior

_POWERS, _EXTRA, _MOST_DIMENSIONS = 6, 8, 64
_SWEEPS = (6, 20)
_ROUNDS = 12


class Starts:
    """Starts of all chains: they share the embedding of the network, and differ in the clusters."""

    def __init__(self, prior: Prior, net: Network, num_starts: int, seed: int):
        self.prior, self.net, self.num_starts, self.seed = prior, net, num_starts, seed
        self._lock, self._embedding = threading.Lock(), np.empty((0, 0))

    def begin(self, seed: int) -> tuple[Blocks, Array]:
        """Blocks and a block matrix: the best of several short chains, by their density."""
        rng = np.random.default_rng([seed, BlockPurpose.START])
        if not self.num_starts:  # the prior, for tests
            return self._first(rng, rng.integers(0, self.prior.num_blocks, self.net.num_nodes))
        with self._lock:
            if not len(self._embedding):
                self._embedding = embedding(self.net, self.prior, np.random.default_rng(self.seed))
        racing = [
            self._first(rng, clusters(self._embedding, self.prior.num_blocks, rng))
            for _ in range(self.num_starts)
        ]
        for sweeps in _SWEEPS:
            moved = list[tuple[float, Blocks, Array]]()
            for blocks, rates in racing:
                for _ in range(sweeps):
                    words = (seed, int(rng.integers(2**62)))
                    everyone = rng.permutation(self.net.num_nodes)
                    blocks.move(everyone, rates, words)
                    blocks.impute(everyone, rates, (seed, words[1] + 1))
                    rates = blocks.draw(rng)
                moved.append((blocks.log_joint(), blocks, rates))
            moved.sort(key=lambda one: -one[0])
            racing = [(blocks, rates) for _, blocks, rates in moved[: -(-len(moved) // 4)]]
        return racing[0]

    def _first(self, rng: np.random.Generator, z: Array) -> tuple[Blocks, Array]:
        blocks = Blocks(self.prior, self.net, z)
        return blocks, blocks.draw(rng)


def embedding(net: Network, prior: Prior, rng: np.random.Generator) -> Array:
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
        sums = (
            sparse.csr_array((np.ones(len(rows)), labels, np.arange(len(rows) + 1)), shape=(len(rows), num)).T
            @ rows
        )
        centres = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
    return labels
