"""Mixed memberships of all kinds: posteriors of small networks by weighted draws from the prior, exact averages."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("numba", reason="mixed memberships need numba (the extra `compiled`)")

from scirocco.diffusions.host import _random
from scirocco_latent.graph import _bernoulli
from scirocco_latent.graph.bernoulli_chains import BernoulliPrior, RoleChain, RoleLangevinChain
from scirocco_latent.graph.edges import read
from scirocco_latent.graph.gibbs import BlockPrior, network, seed_words
from scirocco_latent.graph.poisson_chains import GradientMethod, LangevinChain, MixedChain, PoissonPrior, units

N, K, BATCHES = 5, 2, 40
EDGES = [(0, 1), (0, 2), (1, 2), (2, 3), (3, 0), (3, 4)]
UNSEEN = np.array([[1, 3]])
pytestmark = pytest.mark.law


def net_of(directed, corrected=False, edges=EDGES):
    graph = read(edges, directed, nodes=N)
    return graph, network(graph, BlockPrior(K, corrected, False, 1.0, 1.0, 1.0, 1.0), UNSEEN)


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
    if isinstance(form, PoissonPrior):
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
    if directed and isinstance(form, PoissonPrior):
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
            if isinstance(form, PoissonPrior):
                logs += np.log(rate) * ((i, j) in linked) - rate
            else:
                logs += np.log(rate) if (i, j) in linked else np.log1p(-rate)
        share = np.exp(logs - logs.max())
        tables.append(share @ features(*drawn) / share.sum())
    return np.mean(tables, axis=0), np.std(tables, axis=0, ddof=1) / np.sqrt(len(tables))


GENERAL, ASSORTATIVE = PoissonPrior(K, 0.7, 1.0, 0.8, 0.9, 2.0), PoissonPrior(K, 0.7, 1.5, spread=2.0)
FORMS = {
    "general": (GENERAL, False),
    "general directed": (GENERAL, True),
    "assortative directed": (ASSORTATIVE, True),
    "bernoulli": (BernoulliPrior(K, 0.7, 0.8, 2.0, False), False),
    "general bernoulli directed": (BernoulliPrior(K, 0.7, 0.8, 2.0, True), True),
}


def drawn_by(chain, count, again):
    """Features of draws; `again`: each from a chain that begins at the one before, as in `partial_fit`."""
    chain.advance(100)
    found = []
    for _ in range(count):
        chain.advance(2)
        draws = chain.kept()[0]
        if again:
            chain.seed += 1
            chain.take_over(draws)
        matrix = draws.get("block_matrix", np.eye(K))
        found.append((draws["weights"], matrix, draws.get("receiving", np.ones(N))))
    return features(*(np.array(part) for part in zip(*found, strict=True)))


@pytest.mark.rotates(2)
@pytest.mark.parametrize("name", FORMS)
def test_small_networks_have_the_posterior_of_weighted_draws_from_the_prior(name, seed):
    form, directed = FORMS[name]
    _, net = net_of(directed, isinstance(form, PoissonPrior))
    if isinstance(form, PoissonPrior):
        chain = MixedChain(net, units(net), form, 3, seed, 0)
    else:
        chain = RoleChain(net, form, 3, seed, 0)
    expected, error = weighted(seed, form, directed)
    drawn = drawn_by(chain, 2_400, "directed" in name)
    assert np.abs(z_scores(drawn, expected, error)).max() < 5


@pytest.mark.parametrize("directed", [False, True])
def test_memberships_of_a_node_have_their_conditional_distribution(directed, seed):
    """Those of one of two communities, by quadrature, given memberships of other nodes and strong links."""
    graph, net = net_of(directed)
    chain = RoleChain(net, BernoulliPrior(K, 0.7, 0.8, 2.0, True), N, seed, 0)
    chain.pi = np.array([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.05, 0.95]])
    chain.matrix = np.array([[0.95, 0.2], [0.6 if directed else 0.2, 0.5]])
    chain.tabulate()
    x = (np.arange(20_000) + 0.5) / 20_000
    own, logs = np.stack([x, 1 - x], axis=1), -0.3 * (np.log(x) + np.log1p(-x))
    linked = set(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
    for i, j in observed(directed).tolist():
        if 0 in (i, j):
            p = own @ chain.matrix @ chain.pi[j] if i == 0 else own @ chain.matrix.T @ chain.pi[i]
            logs += np.log(p if (i, j) in linked else 1 - p)
    share = np.exp(logs - logs.max())
    expected = np.array([share @ x, share @ x**2]) / share.sum()
    drawn = np.empty((20_000, 2))
    for number in range(len(drawn)):
        chain.step = number
        chain.update(np.array([0]))
        drawn[number] = chain.pi[0, 0], chain.pi[0, 0] ** 2
    assert np.abs(z_scores(drawn, expected)).max() < 5
    expected, found = np.zeros((2, K, K)), np.zeros((2_000, 2, K, K))
    for i, j in observed(directed).tolist():
        odds = np.where((i, j) in linked, chain.matrix, 1 - chain.matrix)
        both = chain.pi[i][:, None] * odds * chain.pi[j]
        expected[int((i, j) not in linked)] += both / both.sum()
    for number, counts in enumerate(found):
        words = seed_words((seed, number))
        tables = np.zeros((2, K, K), np.int64)
        _bernoulli.roles(net.leaving, chain.unseen_arrays, chain.state_arrays, *tables, np.zeros(N, np.int64), words)
        counts[:] = tables
    if not directed:
        expected, found = (x + np.moveaxis(x, -1, -2) for x in (expected, found))
    assert np.abs(z_scores(found.reshape(2_000, -1), expected.ravel())).max() < 5


@pytest.mark.parametrize("directed", [False, True])
def test_block_matrices_are_drawn_given_units_and_pairs(directed, seed):
    """Shapes and rates, or both shapes, by loops over all pairs and their roles."""
    _, net = net_of(directed, True)
    chain = MixedChain(net, units(net), GENERAL, N, seed, 0)
    chain.advance(3)
    rng, once = np.random.default_rng(seed), np.ones((K, K)) if directed else np.triu(np.ones((K, K)))
    count, exposed = np.zeros((K, K)), np.zeros((K, K))
    for k, n in zip(chain.colours.tolist(), chain.others.tolist(), strict=True):
        count[(k, n) if directed else (min(k, n), max(k, n))] += 1
    goals = chain.weights * chain.receive[:, None] if directed else chain.weights
    linked, apart, ones, zeros = np.zeros((4, K, K))
    for i, j in observed(directed).tolist():
        for k, n in itertools.product(range(K), repeat=2):
            exposed[(k, n) if directed else (min(k, n), max(k, n))] += chain.weights[i, k] * goals[j, n]
        (k, n), is_linked = rng.integers(0, K, 2), rng.random() < 0.5
        table, true = (linked, ones) if is_linked else (apart, zeros)
        table[k, n] += 1
        true[(k, n) if directed else (min(k, n), max(k, n))] += 1
        if not directed:
            table[n, k] += 1  # from the other end
    shapes, rates = chain.shapes_and_rates(chain.pairs if directed else chain.pairs + chain.pairs.T)
    np.testing.assert_allclose(once * shapes, once * (GENERAL.edges + count))
    np.testing.assert_allclose(once * rates, once * (GENERAL.pairs + exposed))
    for general in (True, False):
        form = BernoulliPrior(K, 0.7, 0.8, 2.0, general)
        found = RoleChain(net, form, N, seed, 0).shapes_of(linked, apart)
        for shape, true, prior in zip(found, (ones, zeros), (0.8, 1.2), strict=True):
            rest = true.sum() - np.trace(true)
            expected = once * (prior + true) if general else prior + np.append(np.diag(true), rest)
            np.testing.assert_allclose(once * shape if general else shape[0], expected)


def test_chains_that_continue_draw_the_communities_of_all_edges(seed):
    _, net = net_of(True, True)
    chain = MixedChain(net, units(net), GENERAL, N, seed, 0)
    chain.advance(1)
    rng, found = np.random.default_rng([seed, 4]), np.empty((2_000, N * K + K * K))
    expected, pairs = np.zeros((N, K)), np.zeros((K, K))
    for i, j in EDGES:
        both = chain.weights[i][:, None] * chain.matrix * chain.weights[j]
        both /= both.sum()
        pairs += both
        expected[i] += both.sum(axis=1)
        expected[j] += both.sum(axis=0)
    for number in range(len(found)):
        chain.recall(rng)
        found[number] = [*chain.counts.ravel(), *chain.pairs.ravel()]
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found)) + 1e-3
    assert (np.abs(found.mean(axis=0) - [*expected.ravel(), *pairs.ravel()]) / error).max() < 5


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("sampler", ["scir", "scir_cv_counts"])
def test_counts_of_roles_from_edges_and_pairs_without_one_are_unbiased(sampler, directed, seed):
    """The average over every choice of an edge and of a pair without one is the sum over all pairs, exactly."""
    form = BernoulliPrior(3, 0.7, 0.8, 2.0, True)
    graph, net = net_of(directed)
    chain = RoleLangevinChain(net, form, N, seed, 0, method=GradientMethod(sampler, 0.1, 1, 1))
    rng = np.random.default_rng(seed)
    chain.pi, chain.matrix = rng.dirichlet([1.0] * 3, N), rng.uniform(0.1, 0.6, (3, 3))
    if not directed:
        chain.matrix = (chain.matrix + chain.matrix.T) / 2
    chain.tabulate()
    if sampler == "scir_cv_counts":
        chain.reference, chain.reference_matrix = rng.dirichlet([1.0] * 3, N), chain.matrix * 0.7
        chain.refer()
    top = chain.matrix.max()
    linked = set(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
    for i in range(N):
        expected, choices = np.zeros(3), {}
        for a, b in observed(directed).tolist():
            if i not in (a, b):
                continue
            j, is_linked, sends = (b if a == i else a), (a, b) in linked, a == i or not directed
            t = (chain.matrix if a == i else chain.matrix.T) @ chain.pi[j]
            p = chain.pi[i] @ t
            expected += chain.pi[i] * (t / p if is_linked else (top - t) / (1 - p))
            choices[sends, is_linked] = choices.get((sends, is_linked), 0) + 1
        found = np.unique(estimates(chain, i, 1_000, seed).round(9), axis=0)
        assert len(found) == np.prod(list(choices.values()))
        np.testing.assert_allclose(found.mean(axis=0), expected, rtol=1e-6, atol=1e-8)


def estimates(chain, i, count, seed):
    """Estimates from one edge and one pair without an edge of node i, in each direction."""
    net, found = chain.net, np.empty((count, 3))
    old = chain.reference_matrix
    tops = (chain.matrix.max(), old.max() if old.size else 0.0)
    out, marks, nothing = np.empty(3), np.zeros(N, np.int64), np.empty((0, 0))
    s0, s1 = _random.stream(np.uint64(seed), np.uint64(977), np.uint64(i))
    for number in range(count):
        s0, s1 = _bernoulli.estimate(
            i, net.leaving, net.entering, chain.unseen_arrays, chain.state_arrays, chain.referred, chain.totals,
            False, tops, 1, 1, out, nothing, nothing, marks, np.uint64(s0), np.uint64(s1),
        )  # fmt: skip
        found[number] = out
    return found


def test_block_matrices_move_with_unbiased_counts(seed):
    """Estimated units of edges by the communities of both ends, and weights of a node of a directed network."""
    _, net = net_of(True, True)
    chain = LangevinChain(
        net, units(net), GENERAL._replace(shape=20.0), N, seed, 0, method=GradientMethod("scir_cv_counts", 0.4, 1)
    )
    rng = np.random.default_rng([seed, 3])
    start, chain.matrix, chain.receive = (
        rng.gamma(2.0, size=(N, K)),
        rng.gamma(2.0, size=(K, K)),
        rng.gamma(9.0, size=N),
    )
    chain.reference, chain.reference_matrix = rng.gamma(2.0, size=(N, K)), rng.gamma(2.0, size=(K, K))
    chain.refer()
    receive, found = chain.receive.copy(), np.empty((4_000, K + K * K))
    for number in range(len(found)):
        chain.weights, chain.receive, chain.step = start.copy(), receive.copy(), 20 * number + 1
        chain.tabulate()
        chain.update(np.array([3]))
        pairs = chain.pairs + chain.total_pairs
        found[number] = [*chain.weights[3], *pairs.ravel()]
    counts, pairs = np.zeros(K), np.zeros((K, K))
    for i, j in EDGES:
        for now, sign in (((start, chain.matrix), 1), ((chain.reference, chain.reference_matrix), 0)):
            weights, matrix = now
            both = weights[i][:, None] * matrix * weights[j]
            both /= both.sum()
            if sign and 3 in (i, j):
                counts += both.sum(axis=1 if i == 3 else 0)
            if (i == 3) == bool(sign):  # the reference for all other nodes
                pairs += both
    others = np.arange(N) != 3
    out = start @ chain.matrix.T * receive[:, None]
    into = (start @ chain.matrix)[others & (np.arange(N) != 1)]  # the pair (1, 3) was not observed
    rate = 1.0 + out[others].sum(axis=0) + receive[3] * into.sum(axis=0)
    expected = start[3] * np.exp(-0.4) + (20.0 + counts) / rate * -np.expm1(-0.4)
    assert np.abs(z_scores(found, [*expected, *pairs.ravel()])).max() < 5
