"""Mixed memberships of all kinds: posteriors of small networks by weighted draws from the prior, exact averages."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("numba", reason="mixed memberships need numba (the extra `compiled`)")

from scirocco.models.graph import _mmsb
from scirocco.models.graph.edges import read
from scirocco.models.graph.gibbs import Prior, network
from scirocco.models.graph.mixed_chains import Form, MixedChain, units
from scirocco.models.graph.mmsb import RoleChain, RoleLangevinChain, Roles, _tables
from scirocco.models.graph.mixed_chains import LangevinChain, Method

N, K, BATCHES = 5, 2, 40
EDGES = [(0, 1), (0, 2), (1, 2), (2, 3), (3, 0), (3, 4)]
UNSEEN = np.array([[1, 3]])
pytestmark = pytest.mark.law


def net_of(directed, corrected=False, edges=EDGES):
    graph = read(edges, directed, nodes=N)
    return graph, network(graph, Prior(K, corrected, False, 1.0, 1.0, 1.0, 1.0), UNSEEN)


def observed(directed):
    pairs = itertools.permutations(range(N), 2) if directed else itertools.combinations(range(N), 2)
    return np.array([pair for pair in pairs if pair != (1, 3)])


def features(weights, matrix, receive):
    """Quantities (draws, 5) that do not depend on labels."""
    pi = weights / weights.sum(axis=-1, keepdims=True)
    rates = [
        np.einsum("dk,dkl,dl->d", weights[:, i], matrix, weights[:, j]) * receive[:, j]
        for i, j in ((0, 1), (1, 3), (4, 2))
    ]
    spread = np.trace(matrix, axis1=1, axis2=2) / matrix.sum(axis=(1, 2))
    return np.stack([*rates, (pi[:, 0] * pi[:, 4]).sum(axis=-1), spread], axis=1)


def z_scores(drawn, expected, error=0.0):
    batches = drawn.reshape(BATCHES, -1, drawn.shape[1]).mean(axis=1)
    return (batches.mean(axis=0) - expected) / np.sqrt(batches.var(axis=0, ddof=1) / BATCHES + error**2)


def from_prior(rng, size, form, directed):
    """Weights, block matrices and factors from the prior."""
    if isinstance(form, Form):
        rate = 1.0 if form.general else rng.gamma(1.0, form.scale, size)
        weights = rng.gamma(form.shape, size=(size, N, K)) / np.reshape(rate, (-1, 1, 1))
        matrix = np.broadcast_to(np.eye(K), (size, K, K))
        if form.general:
            matrix = rng.gamma(form.edges, size=(size, K, K)) / form.pairs
    else:
        weights = rng.dirichlet([form.shape] * K, (size, N))
        matrix = rng.beta(form.edges, form.pairs - form.edges, (size, K, K))
        if not form.general:
            matrix = np.where(np.eye(K, dtype=bool), matrix, matrix[:, :1, 1:])
    if not directed:
        matrix = np.triu(matrix) + np.triu(matrix, 1).transpose(0, 2, 1)
    receive = np.ones((size, N))
    if directed and isinstance(form, Form):
        receive = rng.gamma(form.spread, size=(size, N)) / form.spread
    return weights, matrix, receive


def weighted(seed, form, directed):
    """Posterior means by weighted draws from the prior, and their errors."""
    graph, _ = net_of(directed)
    linked = set(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
    rng, tables = np.random.default_rng([seed, 1]), []
    for _ in range(20):
        drawn = from_prior(rng, 10_000, form, directed)
        weights, matrix, receive = drawn
        logs = np.zeros(len(weights))
        for i, j in observed(directed).tolist():
            rate = np.einsum("dk,dkl,dl->d", weights[:, i], matrix, weights[:, j]) * receive[:, j]
            if isinstance(form, Form):
                logs += np.log(rate) * ((i, j) in linked) - rate
            else:
                logs += np.log(rate) if (i, j) in linked else np.log1p(-rate)
        share = np.exp(logs - logs.max())
        tables.append(share @ features(*drawn) / share.sum())
    return np.mean(tables, axis=0), np.std(tables, axis=0, ddof=1) / np.sqrt(len(tables))


GENERAL, ASSORTATIVE = Form(K, 0.7, 1.0, 0.8, 0.9, 2.0), Form(K, 0.7, 1.5, spread=2.0)
FORMS = {
    "general": (GENERAL, False),
    "general directed": (GENERAL, True),
    "assortative directed": (ASSORTATIVE, True),
    "bernoulli": (Roles(K, 0.7, 0.8, 2.0, False), False),
    "general bernoulli directed": (Roles(K, 0.7, 0.8, 2.0, True), True),
}


def drawn_by(chain, count):
    chain.advance(100)
    found = []
    for _ in range(count):
        chain.advance(2)
        draws = chain.kept()[0]
        matrix = draws.get("block_matrix", np.eye(K))
        found.append((draws["weights"], matrix, draws.get("receiving", np.ones(N))))
    return features(*(np.array(part) for part in zip(*found, strict=True)))


@pytest.mark.parametrize("name", FORMS)
def test_small_networks_have_the_posterior_of_weighted_draws_from_the_prior(name, seed):
    form, directed = FORMS[name]
    _, net = net_of(directed, isinstance(form, Form))
    if isinstance(form, Form):
        chain = MixedChain(net, units(net), form, 3, seed, 0)
    else:
        chain = RoleChain(net, form, 3, seed, 0)
    expected, error = weighted(seed, form, directed)
    assert np.abs(z_scores(drawn_by(chain, 4_000), expected, error)).max() < 5


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("sampler", ["scir", "scir_cv"])
def test_counts_of_roles_from_edges_and_pairs_without_one_are_unbiased(sampler, directed, seed):
    """The average over every choice of an edge and of a pair without one is the sum over all pairs, exactly."""
    form = Roles(3, 0.7, 0.8, 2.0, True)
    graph, net = net_of(directed)
    chain = RoleLangevinChain(net, form, N, seed, 0, method=Method(sampler, 0.1, 1, 1))
    rng = np.random.default_rng(seed)
    chain.pi, chain.matrix = rng.dirichlet([1.0] * 3, N), rng.uniform(0.1, 0.6, (3, 3))
    if not directed:
        chain.matrix = (chain.matrix + chain.matrix.T) / 2
    chain._tabulate()
    if sampler == "scir_cv":
        chain.reference, chain.reference_matrix = rng.dirichlet([1.0] * 3, N), chain.matrix * 0.7
        chain._refer()
    top = chain.matrix.max()
    linked = set(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
    for i in range(N):
        expected = np.zeros(3)
        for a, b in observed(directed).tolist():
            if i not in (a, b) or (directed and False):
                continue
            j = b if a == i else a
            t = (chain.matrix if a == i else chain.matrix.T) @ chain.pi[j]
            p = chain.pi[i] @ t
            expected += chain.pi[i] * (t / p if (a, b) in linked else (top - t) / (1 - p))
        found = estimates(chain, i, 4_000, seed)
        assert np.abs(z_scores(found, expected)).max() < 5


def estimates(chain, i, count, seed):
    net, found = chain.net, np.empty((count, 3))
    old = chain.reference_matrix
    tops = (chain.matrix.max(), old.max() if old.size else 0.0)
    out, marks = np.empty(3), np.zeros(N, np.int64)
    s0, s1 = np.uint64(seed + 1), np.uint64(977)
    nothing = np.empty((0, 0))
    for number in range(count):
        s0, s1 = _mmsb.estimate(
            i, net.leaving, net.entering, chain._unseen, chain._state, chain._referred, chain.totals, tops, 1, 1, out,
            nothing, nothing, marks, s0, s1,
        )  # fmt: skip
        s0, s1 = np.uint64(s0), np.uint64(s1)
        found[number] = out
    return found
