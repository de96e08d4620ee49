"""A community of one of a node's 120 links, which most steps miss, has its exact weight, in both kinds of networks."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba", reason="mixed memberships need numba (the extra `compiled`)")

from scirocco_latent.graph.bernoulli_chains import BernoulliPrior, RoleLangevinChain
from scirocco_latent.graph.edges import read
from scirocco_latent.graph.gibbs import BlockPrior, network
from scirocco_latent.graph.poisson_chains import GradientMethod, LangevinChain, PoissonPrior, units

COMMON, NUM_RARE, USED, A = 80, 40, 4, 0.5
K, N = 1 + NUM_RARE, 1 + COMMON + NUM_RARE
OTHERS = np.concatenate([np.zeros(COMMON, int), np.arange(1, K)])
"""The only community of each neighbour of node 0, so that the communities of its links are certain."""
CASES = [(sampler, step) for sampler in ("scir", "scir_cv") for step in (0.1, 0.5, 3.0)] + [("sgrld", 0.3)]
pytestmark = pytest.mark.law


def variance_of_estimate(count):
    """Of the links of a community among USED of all links, drawn with replacement, scaled up."""
    share = count / (N - 1)
    return (N - 1) ** 2 / USED * share * (1 - share)


def compare(theta, count, variance, slack=0.0):
    """Means over steps of each column, against mean and variance."""
    mean = A + count
    for values, expected in ((theta, mean), ((theta - mean) ** 2, variance)):
        batches = values.reshape(40, -1).mean(axis=1) if values.ndim == 1 else values.mean(axis=0)
        error = batches.std(ddof=1) / np.sqrt(batches.size)
        assert abs(batches.mean() - expected) < 5 * error + slack * expected, (batches.mean(), expected, error)


@pytest.mark.parametrize(("sampler", "step"), CASES)
def test_weights_of_a_node(sampler, step, seed):
    """φ_k times its rate is Gamma(a + n_k), but for the noise of the links of a step; SGRLD has Euler's variance."""
    graph = read([(0, j) for j in range(1, N)], nodes=N)
    net = network(graph, BlockPrior(K, True, False, 1.0, 1.0, 1.0, 1.0), None)
    chain = LangevinChain(
        net, units(net), PoissonPrior(K, A, 1.0), N, seed, 0, method=GradientMethod(sampler, step, USED)
    )
    chain.weights = np.full((N, K), 1e-200)
    chain.weights[np.arange(1, N), OTHERS] = 1.0
    chain.weights[0] = 1.0
    chain.tabulate()
    rates = chain.rate + np.bincount(OTHERS)
    burn_in, num = max(60, round(8 / step)), 1_200
    theta = np.empty((num, K))
    for number in range(-burn_in, num):
        chain.step = number + burn_in
        chain.update(np.array([0]))
        if number >= 0:
            theta[number] = chain.weights[0] * rates
    if sampler == "sgrld":
        variance = (A + COMMON + step / 2 * variance_of_estimate(COMMON)) / (1 - step / 2)
        compare(theta[:, 0], COMMON, variance)
        assert theta[:, 1:].mean() > 1.05 * (A + 1)  # reflection at 0
        return
    compare(theta[:, 1:], 1, A + 1 + np.tanh(step / 2) * variance_of_estimate(1))


@pytest.mark.parametrize(("sampler", "step"), CASES)
def test_roles_of_a_node(sampler, step, seed):
    """θ_k of memberships is Gamma(a + n_k) as well, where all pairs of the node are linked."""
    graph = read([(0, j) for j in range(1, N)], nodes=N)
    net = network(graph, BlockPrior(K, False, False, 1.0, 1.0, 1.0, 1.0), None)
    form = BernoulliPrior(K, A, 0.5, 2.0, False)
    chain = RoleLangevinChain(net, form, N, seed, 0, method=GradientMethod(sampler, step, USED, 1))
    chain.pi = np.full((N, K), 1e-12)
    chain.pi[np.arange(1, N), OTHERS] = 1.0
    chain.pi[0] = 1.0 / K
    chain.matrix = np.where(np.eye(K, dtype=bool), 0.01, 1e-12)
    chain.tabulate()
    chain.spread_out()
    chain.weight[0] = N - 1
    burn_in, num = max(60, round(8 / step)), 1_200
    theta = np.empty((num, K))
    for number in range(-burn_in, num):
        chain.step = number + burn_in
        chain.update(np.array([0]))
        if number >= 0:
            theta[number] = chain.theta[0]
    if sampler == "sgrld":
        total = theta.sum(axis=1).mean() / (A * K + N - 1)  # counts do not move it, reflections do
        assert 0.95 < total < 1.15 and theta[:, 1:].mean() > 1.05 * (A + 1)
        return
    compare(theta[:, 1:], 1, A + 1 + np.tanh(step / 2) * variance_of_estimate(1), slack=0.01)
