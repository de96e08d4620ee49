"""Block models: the enumerated posterior of small networks, and their joint distribution with the prior's draws."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.special import betaln, gammaln, logsumexp

pytest.importorskip("numba", reason="block models need numba (the extra `compiled`)")

from scirocco_latent.graph.edges import read
from scirocco_latent.graph.gibbs import BlockChain, BlockPrior, NodeBlocks, network
from scirocco_latent.graph.starts import Starts, merge_gains

pytestmark = pytest.mark.law

N, K, BATCHES = 5, 2, 40
EDGES = {
    "undirected": [(0, 1), (0, 2), (1, 2), (3, 4), (2, 3)],
    "directed": [(0, 1), (1, 0), (2, 0), (1, 2), (3, 4), (4, 2)],
    "weighted": [(0, 1, 3), (0, 2, 1), (1, 2, 2), (3, 4, 2), (2, 3, 1)],
}
UNSEEN = np.array([[0, 3], [1, 4]])
KINDS = {
    "bernoulli": (BlockPrior(3, False, False, 0.7, 0.8, 2.5, 1.0), "undirected", False, None),
    "bernoulli directed, unseen pairs": (BlockPrior(K, False, False, 0.7, 0.8, 2.5, 1.0), "directed", True, UNSEEN),
    "poisson": (BlockPrior(K, True, False, 0.7, 0.8, 0.9, 1.0), "weighted", False, UNSEEN),
    "degree-corrected": (BlockPrior(K, True, True, 0.7, 0.8, 0.9, 0.6), "weighted", False, UNSEEN),
    "degree-corrected, directed": (BlockPrior(K, True, True, 0.7, 0.8, 0.9, 0.6), "directed", True, None),
    "process": (BlockPrior(N, False, False, 1.3, 0.8, 2.5, 1.0, True), "undirected", False, None),
    "degree-corrected process": (BlockPrior(N, True, True, 1.3, 0.8, 0.9, 0.6, True), "weighted", False, UNSEEN),
}


def problem(kind):
    prior, name, directed, unseen = KINDS[kind]
    graph = read(EDGES[name], directed=directed, nodes=N)
    return prior, graph, unseen


def adjacency(graph):
    matrix = np.zeros((N, N))
    matrix[graph.source, graph.target] = graph.weight
    return matrix


def observed(graph, unseen):
    """Pairs that count: each once, without those of a node with itself and without the unseen ones."""
    pairs = [(i, j) for i in range(N) for j in range(N) if (i < j or graph.directed) and i != j]
    hidden = {tuple(pair) if graph.directed else tuple(sorted(pair)) for pair in (unseen if unseen is not None else [])}
    return np.array([pair for pair in pairs if pair not in hidden])


def log_marginals(prior, graph, unseen, rng):
    """log p(edges | blocks) of all partitions: in closed form, or (degree-corrected) by quasi-exact sums over draws."""
    pairs, values = observed(graph, unseen), adjacency(graph)
    counts = values[pairs[:, 0], pairs[:, 1]]
    num = prior.num_blocks
    partitions = np.array(list(itertools.product(range(num), repeat=N)))
    if prior.process:  # each partition once: blocks in the order of their first nodes
        partitions = np.array([z for z in partitions if all(k <= max(z[:i], default=-1) + 1 for i, k in enumerate(z))])
    logs = []
    columns = 2 if graph.directed else 1
    for z in partitions:
        sizes = np.bincount(z, minlength=num)
        theta = [np.ones((1, N))] * 2
        if prior.corrected:
            theta = [propensities(rng, z, prior.shape, 4_000) for _ in range(columns)]
        outer = theta[0][:, pairs[:, 0]] * theta[-1][:, pairs[:, 1]]
        total = np.zeros(len(outer))
        if prior.corrected:
            total += (counts * np.log(outer)).sum(axis=1)
        low, high = z[pairs].T if graph.directed else np.sort(z[pairs], axis=1).T
        for r, s in itertools.product(range(num), repeat=2):
            if r > s and not graph.directed:
                continue
            own = (low == r) & (high == s)
            m, n = counts[own].sum(), outer[:, own].sum(axis=1)
            c, d = prior.edges, prior.pairs
            if prior.poisson:
                total += gammaln(c + m) - (c + m) * np.log(d + n) + c * np.log(d) - gammaln(c)
            else:
                total += betaln(c + m, d - c + n - m) - betaln(c, d - c)
        mass = gammaln(prior.concentration + sizes).sum()
        if prior.process:
            mass = (np.log(prior.concentration) + gammaln(sizes[sizes > 0])).sum()
        logs.append(logsumexp(total) - np.log(len(total)) + mass)
    return partitions, np.array(logs)


def propensities(rng, z, shape, count):
    """n times a Dirichlet distribution in each block."""
    g = rng.gamma(shape, size=(count, N))
    out = np.empty_like(g)
    for k in set(z):
        own = z == k
        out[:, own] = own.sum() * g[:, own] / g[:, own].sum(axis=1, keepdims=True)
    return out


def blocks_of_prior(rng, prior):
    """Blocks of all nodes, one after the other."""
    z = []
    for _ in range(N):
        sizes = np.bincount(z, minlength=prior.num_blocks).astype(float)
        if prior.process:
            sizes[np.flatnonzero(sizes == 0)[0]] = prior.concentration
        else:
            sizes += prior.concentration
        z.append(int(rng.choice(prior.num_blocks, p=sizes / sizes.sum())))
    return np.array(z)


def features(prior, z):
    """Blocks (labels of a Dirichlet process have no meaning), pairs in the same block, and the number of blocks."""
    same = np.stack([z[:, i] == z[:, j] for i, j in itertools.combinations(range(N), 2)], axis=1)
    number = (np.diff(np.sort(z, axis=1), axis=1) != 0).sum(axis=1)
    labels = z[:, :0] if prior.process else z
    return np.column_stack([labels, same, number == 0, number, number**2])


def chain_of(prior, graph, unseen, seed, batch=3):
    net = network(graph, prior, unseen)
    chain = BlockChain(prior, net, Starts(prior, net, 0, 0), batch, seed, 0)
    chain.proposals = 6  # enough for five nodes
    return chain


def test_merges_change_the_density_by_what_starts_expect(seed):
    rng = np.random.default_rng(seed)
    for kind in KINDS:
        prior, graph, unseen = problem(kind)
        prior = prior._replace(num_blocks=4)
        blocks = NodeBlocks(prior, network(graph, prior, unseen), rng.permutation([0, 1, 2, 3, 1]))
        before, gains = blocks.log_joint(), merge_gains(blocks, 2)
        for s in (0, 1, 3):
            other = NodeBlocks(prior, blocks.net, blocks.z)
            other.merge(2, s)
            again = NodeBlocks(prior, blocks.net, other.z)
            np.testing.assert_array_equal(other.edges, again.edges)
            assert again.log_joint() - before == pytest.approx(gains[s], abs=1e-9)


@pytest.mark.rotates(2)
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_have_their_enumerated_posterior(kind, seed):
    prior, graph, unseen = problem(kind)
    repeats = 10 if prior.corrected else 1
    tables = []
    for number in range(repeats):
        partitions, logs = log_marginals(prior, graph, unseen, np.random.default_rng([seed, number]))
        shares = np.exp(logs - logsumexp(logs))
        tables.append(shares @ features(prior, partitions))
    expected = np.mean(tables, axis=0)
    error = np.std(tables, axis=0, ddof=1) / np.sqrt(repeats) if repeats > 1 else 0.0
    chain = chain_of(prior, graph, unseen, seed)
    chain.advance(50)
    drawn = np.empty((4_000, N))
    for step in range(len(drawn)):
        chain.advance(1)
        drawn[step] = chain.blocks.z
    batches = features(prior, drawn).reshape(BATCHES, -1, len(expected)).mean(axis=1)
    spread = np.sqrt(batches.var(axis=0, ddof=1) / BATCHES + error**2)
    assert np.abs((batches.mean(axis=0) - expected) / spread).max() < 5


@pytest.mark.parametrize("kind", ["degree-corrected", "degree-corrected process"])
def test_joint_distribution_is_the_prior_times_the_likelihood(kind, seed):
    """Independent copies: everything from the prior, edges, then two steps of the chain."""
    prior, graph, unseen = problem(kind)
    a, c, d, num = prior.concentration, prior.edges, prior.pairs, prior.num_blocks
    rng = np.random.default_rng([seed, 5])
    chain = chain_of(prior, graph, unseen, seed)
    net, (i, j) = chain.net, observed(graph, unseen).T
    halves = np.where(net.first == net.second, 0.5, 1.0)
    found = np.empty((2_000, 5))
    for number in range(len(found)):
        z = blocks_of_prior(rng, prior)
        theta = propensities(rng, z, prior.shape, 1)[0]
        rates = prior.draw(rng, np.zeros((num, num)), np.zeros((num, num)), False)
        edges = rng.poisson(theta[i] * theta[j] * rates[z[i], z[j]])
        hidden = theta[net.first] * theta[net.second] * rates[z[net.first], z[net.second]] * halves
        chain.net = network(graph._replace(source=i, target=j, weight=edges), prior, unseen)
        done = {"steps": np.array([2 * number]), "splits": np.zeros(2, np.int64)}
        chain.restore({"blocks": z, "counts": rng.poisson(hidden), "rates": rates, **done})
        chain.advance(2)
        z = chain.blocks.z
        within, alone = chain.rates[z[0], z[0]], np.bincount(z, minlength=num).max() == N
        found[number] = [z[0] == z[1], alone, within, within**2, chain.rates[z[0], z[1]]]
    if prior.process:
        together, whole = 1 / (1 + a), np.log(a) + gammaln(N) + gammaln(a) - gammaln(a + N)
    else:
        together = (a + 1) / (num * a + 1)
        whole = np.log(num) + gammaln(num * a) - gammaln(num * a + N) + gammaln(a + N) - gammaln(a)
    expected = [together, np.exp(whole), c / d, c * (c + 1) / d**2, c / d]
    z = (found.mean(axis=0) - expected) / (found.std(axis=0, ddof=1) / np.sqrt(len(found)))
    assert np.abs(z).max() < 5
