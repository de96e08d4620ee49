r"""The exact sampler of block models: blocks of a batch of nodes, then the block matrix.

The block of each node is stored, with the numbers of edges between blocks. A step draws the blocks of a batch of nodes,
one after the other, with the shares of the blocks and (degree-corrected) the propensities of the nodes integrated out,
and then the block matrix given all blocks:

.. math:: ω_{rs} ~ Gamma(c + m_{rs}, d + n_{rs}), \quad \text{or} \quad Beta(c + m_{rs}, d - c + n_{rs} - m_{rs}),

where m are edges and n pairs of nodes. Pairs without an edge enter through n alone, so that a pass over all nodes costs
O(edges · K). Pairs that were not observed, among them in the degree-corrected model those of a node with itself, have a
count that is drawn along with the rest. Every step is a Gibbs update of the joint posterior. Whole blocks are split and
merged in between (`_splits`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaln, gammaln

from scirocco._extras import later
from scirocco.models._core.chain import BlockPurpose, Chain
from scirocco_latent.graph.edges import Array, EdgeGraph

_LEAST = 1e-300  # avoids log 0
_RUN = 64  # nodes in a row of memory
_SPLITS = 20  # proposals in a pass to split and merge whole blocks, at most
kernels = later("scirocco_latent.graph._kernels")
"""The compiled kernels."""
split_kernels = later("scirocco_latent.graph._splits")
"""The compiled splits and merges."""


class BlockPrior(NamedTuple):
    """The prior of a block model, and the distribution of edges."""

    num_blocks: int
    poisson: bool
    """Counts of edges are Poisson; otherwise an edge is there or not."""
    corrected: bool
    """Whether nodes have propensities (degree-corrected)."""
    concentration: float
    """a of the Dirichlet distribution of shares."""
    edges: float
    """c: prior edges between two blocks, among so many pairs:"""
    pairs: float
    shape: float
    """γ of the Dirichlet distribution of propensities in a block."""
    process: bool = False
    """Blocks come from a Dirichlet process, whose α is `concentration`; at most `num_blocks` have nodes."""

    def draw(self, rng: np.random.Generator, edges: Array, pairs: Array, directed: bool) -> Array:
        """Draw the block matrix given the edges and pairs between blocks."""
        if self.poisson:
            found = rng.gamma(self.edges + edges) / (self.pairs + pairs)
        else:
            found = rng.beta(self.edges + edges, self.pairs - self.edges + pairs - edges)
        return found if directed else np.triu(found) + np.triu(found, 1).T

    def tables(self, rates: Array, some: Array, directed: bool) -> tuple[Array, ...]:
        """What edges and pairs of a node in some of the blocks add to the log likelihood, see `_kernels.Tables`."""
        (to, pair), (back, other) = self._terms(rates[some].T), self._terms(rates[:, some])
        own = (some, np.arange(len(some)))
        both = pair + other if directed else pair
        tables = (to, back, both, to[own], (1.0 if directed else 0.5) * pair[own])
        return tuple(np.ascontiguousarray(table) for table in tables)

    def _terms(self, rates: Array) -> tuple[Array, Array]:
        """What an edge and what a pair adds to the log likelihood."""
        if self.poisson:
            return np.log(np.maximum(rates, _LEAST)), -rates
        nothing = np.log1p(-np.minimum(rates, 1 - 1e-16))
        return np.log(np.maximum(rates, _LEAST)) - nothing, nothing

    def marginal(self, edges: Array, pairs: Array) -> Array:
        """Log probabilities of the edges between blocks with the block matrix integrated out, up to a constant."""
        if self.poisson:
            total = gammaln(self.edges + edges) - (self.edges + edges) * np.log(self.pairs + pairs)
            return np.asarray(total - gammaln(self.edges) + self.edges * np.log(self.pairs))
        rest = self.pairs - self.edges
        return np.asarray(betaln(self.edges + edges, rest + pairs - edges) - betaln(self.edges, rest))

    def of_block(self, sizes: Array, sums: Array) -> Array:
        """Log of what blocks with these sizes and degrees (..., D) add: their share and propensities integrated out."""
        full = np.maximum(sizes, 1)
        found = np.where(sizes > 0, gammaln(full), 0.0) if self.process else gammaln(self.concentration + sizes)
        if self.corrected:
            total = full[..., None] * self.shape
            each = sums * np.log(full[..., None]) + gammaln(total) - gammaln(total + sums)
            found = found + np.where(sizes > 0, each.sum(axis=-1), 0.0)
        return np.asarray(found)

    def of_number(self, occupied: int) -> float:
        """Log of what the number of blocks with nodes adds to the probability of a partition."""
        if self.process:
            return occupied * float(np.log(self.concentration))
        return -float(gammaln(self.num_blocks - occupied + 1.0))


class Network(NamedTuple):
    """A network in the form of the kernels, shared by all chains."""

    leaving: tuple[Array, Array, Array]
    entering: tuple[Array, Array, Array]
    degrees: Array
    """(N, 1), or (N, 2) of a directed network."""
    first: Array
    """Ends of the pairs that were not observed, sorted by the first."""
    second: Array
    numbers: Array
    """Numbers of these pairs by node."""
    pointers: Array
    owned: Array
    """Pointers to the pairs of which a node is the first."""

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.degrees)

    @property
    def directed(self) -> bool:
        """Whether edges have a direction."""
        return self.degrees.shape[1] == 2

    @property
    def sources(self) -> Array:
        """The node that each edge of `leaving` leaves."""
        return np.repeat(np.arange(self.num_nodes), np.diff(self.leaving[0]))

    def over_pairs(self, first: Array, second: Array) -> Array:
        """Sums of products of rows of two tables over all pairs of nodes that were observed, in both directions."""
        unseen = first[self.first].T @ second[self.second]
        if not self.directed:
            unseen = unseen + unseen.T
        found: Array = np.outer(first.sum(axis=0), second.sum(axis=0)) - first.T @ second - unseen
        return found

    def symmetric(self, drawn: Array) -> Array:
        """A block matrix; of an undirected network that of its upper triangle."""
        return drawn if self.directed else np.triu(drawn) + np.triu(drawn, 1).T


def network(graph: EdgeGraph, prior: BlockPrior, unseen: Array | None) -> Network:
    """The arrays of a network; `unseen` are pairs (pairs, 2) without an observation."""
    num, source, target, weight = graph.num_nodes, graph.source, graph.target, graph.weight
    if unseen is not None and len(unseen):  # whatever they are, they are not used
        low, high = (unseen[:, 0], unseen[:, 1]) if graph.directed else (unseen.min(axis=1), unseen.max(axis=1))
        hidden = np.unique(low * num + high)
        seen = ~np.isin(source * num + target, hidden)
        source, target, weight = source[seen], target[seen], weight[seen]
    else:
        hidden = np.empty(0, np.int64)
    if not prior.poisson:
        weight = np.ones_like(weight)
    if prior.corrected:
        hidden = np.sort(np.concatenate([hidden, np.arange(num) * (num + 1)]))
    first, second = hidden // num, hidden % num
    if graph.directed:
        leaving, entering = _rows(source, target, weight, num), _rows(target, source, weight, num)
        ends = [source, target]
    else:
        leaving = _rows(np.append(source, target), np.append(target, source), np.append(weight, weight), num)
        entering = (np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32))
        ends = [np.append(source, target)]
        weight = np.append(weight, weight)
    degrees = np.stack([np.bincount(end, weight, num) for end in ends], axis=1).astype(np.int64)
    apart = first != second
    every = np.arange(len(first))
    by = np.concatenate([first, second[apart]])
    order = np.argsort(by, kind="stable")
    numbers = np.concatenate([every, every[apart]])[order]
    pointers = np.concatenate([[0], np.cumsum(np.bincount(by, minlength=num))])
    owned = np.concatenate([[0], np.cumsum(np.bincount(first, minlength=num))])
    return Network(leaving, entering, degrees, first, second, numbers, pointers, owned)


def _rows(source: Array, target: Array, weight: Array, num: int) -> tuple[Array, Array, Array]:
    order = np.argsort(source, kind="stable")
    pointers = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=num))]).astype(np.int64)
    return pointers, target[order].astype(np.int32), weight[order].astype(np.int32)


class NodeBlocks:
    """Blocks of all nodes, counts of pairs that were not observed, and the sums that follow from them."""

    def __init__(self, prior: BlockPrior, net: Network, z: Array, counts: Array | None = None):
        self.prior, self.net = prior, net
        self.z = np.array(z, np.int32)
        self.counts = np.zeros(len(net.first), np.int64) if counts is None else np.array(counts, np.int64)
        self._drawn = np.full(net.degrees.shape, -1.0)
        self.count()

    def count(self) -> None:
        """Count edges and degrees from the blocks."""
        num, net, z = self.prior.num_blocks, self.net, self.z
        _, ends, weights = net.leaving
        flat = np.bincount(z[net.sources] * num + z[ends], weights, num * num)
        edges = flat.reshape(num, num).astype(np.int64)
        own = np.bincount(z[net.first] * num + z[net.second], self.counts, num * num)
        unseen = own.reshape(num, num).astype(np.int64)
        last = net.degrees.shape[1] - 1
        if not net.directed:
            edges[np.diag_indices(num)] //= 2
            unseen = unseen + unseen.T - np.diag(np.diag(unseen))
        self.edges = edges + unseen
        self.degrees = net.degrees.copy()
        np.add.at(self.degrees[:, 0], net.first, self.counts)
        np.add.at(self.degrees[:, last], net.second, self.counts)
        self.sizes = np.bincount(z, minlength=num).astype(np.int64)
        self.sums = np.stack([np.bincount(z, column, num) for column in self.degrees.T], axis=1).astype(np.int64)

    @property
    def state_arrays(self) -> tuple[Array, ...]:
        """The current state, as kernels take it."""
        return self.z, self.sizes, self.edges, self.degrees, self.sums

    @property
    def unseen_arrays(self) -> tuple[Array, ...]:
        """Pairs that were held out, as kernels take them."""
        net = self.net
        return net.first, net.second, self.counts, net.numbers, net.pointers

    def pairs(self) -> Array:
        """Numbers of pairs of nodes between blocks (K, K)."""
        sizes = self.sizes.astype(np.float64)
        found = np.outer(sizes, sizes)
        np.fill_diagonal(found, sizes**2 if self.prior.corrected else sizes * (sizes - 1))
        if not self.net.directed:
            found[np.diag_indices(len(sizes))] /= 2
        return found

    @property
    def occupied(self) -> Array:
        """Numbers of the blocks that have nodes."""
        return np.flatnonzero(self.sizes)

    def move(self, nodes: Array, rates: Array, words: tuple[int, int]) -> None:
        """Draw the blocks of nodes given the block matrix.

        Of a Dirichlet process a node may move to any block that has nodes, and blocks keep at least one: their number
        is drawn by splits and merges.
        """
        prior, net = self.prior, self.net
        some = self.occupied if prior.process else np.arange(prior.num_blocks)
        kernels().sweep(
            nodes,
            some,
            net.leaving,
            net.entering,
            self.unseen_arrays,
            self.state_arrays,
            prior.tables(rates, some, net.directed),
            prior.corrected,
            0.0 if prior.process else prior.concentration,
            prior.shape,
            seed_words(words),
        )

    def split(self, rows: Array, words: tuple[int, int]) -> bool:
        """Propose a split or merge of blocks, with the block matrix integrated out; returns whether it was accepted."""
        prior, net = self.prior, self.net
        kinds = (net.directed, prior.poisson, prior.corrected, prior.process)
        model = (*kinds, prior.concentration, prior.edges, prior.pairs, prior.shape)
        moved: tuple[Array, ...] = (self.z, self.sizes, self.edges, self.sums)
        before = [part.copy() for part in moved]
        accepted = split_kernels().propose(
            net.leaving, net.entering, self.unseen_arrays, self.state_arrays, rows, model, seed_words(words)
        )
        for part, old in zip(moved, before, strict=True):
            if not accepted:
                part[...] = old
        return bool(accepted)

    def merge(self, r: int, s: int) -> None:
        """Move all nodes of block s to block r."""
        between = self.edges[r, s]
        self.edges[r] += self.edges[s]
        self.edges[s] = 0
        self.edges[:, r] += self.edges[:, s]
        self.edges[:, s] = 0
        if not self.net.directed:
            self.edges[r, r] -= between
        for sums in (self.sizes, self.sums):
            sums[r] += sums[s]
            sums[s] = 0
        self.z[self.z == s] = r

    def impute(self, nodes: Array, rates: Array, words: tuple[int, int]) -> None:
        """Draw the counts of pairs that were not observed, those that belong to some nodes."""
        net, prior = self.net, self.prior
        if not len(net.first):
            return
        begins, ends = net.owned[nodes], net.owned[nodes + 1]
        lengths = ends - begins
        pairs = np.repeat(begins - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        kernels().impute(
            pairs,
            self.unseen_arrays,
            self.state_arrays,
            rates,
            net.directed,
            prior.poisson,
            prior.corrected,
            prior.shape,
            self._drawn,
            seed_words(words),
        )

    def draw(self, rng: np.random.Generator) -> Array:
        """Draw the block matrix given all blocks."""
        return self.prior.draw(rng, self.edges, self.pairs(), self.net.directed)

    def shares(self, rng: np.random.Generator) -> Array:
        """Draw the shares of the blocks; of a Dirichlet process what is left belongs to blocks without nodes."""
        prior = self.prior
        found = rng.standard_gamma(self.sizes + (0.0 if prior.process else prior.concentration))
        rest = rng.standard_gamma(prior.concentration) if prior.process else 0.0
        return np.asarray(found / (found.sum() + rest))

    def propensities(self, rng: np.random.Generator) -> Array:
        """Draw the propensities of all nodes, (N, 1) or (N, 2): their mean in each block is 1."""
        found = rng.standard_gamma(self.prior.shape + self.degrees)
        for column in range(found.shape[1]):
            sums = np.bincount(self.z, found[:, column], self.prior.num_blocks)
            found[:, column] *= self.sizes[self.z] / np.maximum(sums[self.z], _LEAST)
        return found

    def log_touching(self, some: Array) -> float:
        """The terms of `log_joint` that depend on some of the blocks."""
        prior, pairs, apart = self.prior, self.pairs(), np.triu_indices(len(some), 1)
        logs = prior.marginal(self.edges[some], pairs[some])
        found = float(logs.sum())
        if self.net.directed:
            found += float(prior.marginal(self.edges[:, some], pairs[:, some]).sum() - logs[:, some].sum())
        else:
            found -= float(logs[apart[0], some[apart[1]]].sum())
        found += float(prior.of_block(self.sizes[some], self.sums[some]).sum())
        return found + prior.of_number(len(self.occupied))

    def log_joint(self) -> float:
        """log p(edges, partition) with everything else integrated out, up to a constant."""
        prior = self.prior
        logs = self.log_touching(np.arange(prior.num_blocks))
        if prior.corrected:
            logs += float(gammaln(prior.shape + self.degrees).sum())
        if prior.poisson and len(self.counts):
            loops = int(self.counts[self.net.first == self.net.second].sum())
            logs -= float(gammaln(self.counts + 1.0).sum()) + (0 if self.net.directed else loops * np.log(2.0))
        return logs


def batches_of(rng: np.random.Generator, num: int, batches: int) -> list[Array]:
    """Batches of a pass over all nodes. Runs of nodes stay together, for the cache."""
    run = int(np.clip(num // (8 * batches), 1, _RUN))
    parts = np.array_split(run * rng.permutation(-(-num // run)), batches)
    nodes = [(part[:, None] + np.arange(run)).ravel() for part in parts]
    return [part[part < num] for part in nodes]


def seed_words(words: tuple[int, int]) -> tuple[Any, Any]:
    """The seed of a stream of the kernels."""
    found = np.array(words, np.uint64)
    return found[0], found[1]


def generator(words: tuple[int, int]) -> np.random.Generator:
    """A generator of NumPy that depends on the two words alone."""
    return np.random.Generator(np.random.Philox(key=np.array(words, np.uint64)))


class NodeChain(Chain):
    """A chain of a network: passes over all nodes in batches."""

    def __init__(self, net: Network, batch_size: int, seed: int, number: int):
        super().__init__(seed, number)
        self.net = net
        self.batches = num_batches(net.num_nodes, batch_size)
        self._pass: tuple[int, list[Array]] | None = None

    @property
    def unseen_arrays(self) -> tuple[Array, ...]:
        """Pairs that were held out, as kernels take them."""
        net = self.net
        return net.first, net.second, net.numbers, net.pointers

    def _batch(self) -> tuple[Array, int]:
        """The nodes of this step, and its place in the pass."""
        number, place = divmod(self.step, self.batches)
        if self._pass is None or self._pass[0] != number:
            rng = np.random.default_rng([self.seed, (number << self.PURPOSE_BITS) + BlockPurpose.ORDER])
            self._pass = (number, batches_of(rng, self.net.num_nodes, self.batches))
        return self._pass[1][place], place


class BlockChain(NodeChain):
    """One chain: a step draws the blocks of a batch of nodes, then the block matrix."""

    STATE = ("rates", "splits")

    def __init__(self, prior: BlockPrior, net: Network, starts: Any, batch_size: int, seed: int, number: int):
        super().__init__(net, batch_size, seed, number)
        self.prior, self.starts = prior, starts
        self.blocks: NodeBlocks | None = None
        self.rates = np.empty((0, 0))
        self.proposals = int(np.clip(min(prior.num_blocks, net.num_nodes // 10), 2, _SPLITS))  # in a pass
        self.splits = np.zeros(2, np.int64)  # proposed and accepted

    def begin(self) -> None:
        """Start from the best of several short chains."""
        self.blocks, self.rates = self.starts.begin(self.seed)

    def move(self) -> None:
        """The blocks of a batch of nodes, splits and merges, the block matrix."""
        assert self.blocks is not None
        nodes, place = self._batch()
        self.blocks.move(nodes, self.rates, self.words(BlockPurpose.BLOCKS))
        self.blocks.impute(nodes, self.rates, self.words(BlockPurpose.UNSEEN))
        self._split(self.blocks, place)
        self.rates = self.blocks.draw(generator(self.words(BlockPurpose.MATRIX)))

    def _split(self, blocks: NodeBlocks, place: int) -> None:
        """Propose splits and merges: so many per pass, spread over its steps."""
        count = (place + 1) * self.proposals // self.batches - place * self.proposals // self.batches
        first, second = self.words(BlockPurpose.SPLITS)
        for number in range(count):
            words = (first ^ (number << 32), second)
            self.splits += (1, blocks.split(self.starts.rows, words))

    def kept(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Blocks, their shares, the block matrix, propensities, and statistics."""
        blocks = self.blocks
        assert blocks is not None
        rng = generator(self.words(BlockPurpose.DRAW))
        shares = blocks.shares(rng)
        draws = {"blocks": blocks.z.copy(), "shares": shares, "block_matrix": self.rates}
        if self.prior.corrected:
            draws["propensities"] = blocks.propensities(rng)
        stats = {
            "log_joint": blocks.log_joint(),
            "num_blocks": float(len(blocks.occupied)),
            "splits": self.splits[1] / max(1, self.splits[0]),
            "passes": self.step / self.batches,
        }
        return draws, stats

    def state(self) -> dict[str, Array]:
        """Arrays from which `restore` resumes exactly."""
        assert self.blocks is not None
        return {"blocks": self.blocks.z, "counts": self.blocks.counts, **super().state()}

    def restore(self, state: dict[str, Array]) -> None:
        """Restore the chain from `state`."""
        super().restore(state)
        self.blocks = NodeBlocks(self.prior, self.net, state["blocks"], state["counts"])


def num_batches(num_nodes: int, batch_size: int) -> int:
    """Steps in a pass."""
    return max(1, round(num_nodes / batch_size))
