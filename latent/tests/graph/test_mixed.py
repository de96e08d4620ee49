"""Mixed memberships: the posterior of a small network by weighted draws, the joint distribution, results."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import scirocco as sc
from scirocco import report
from scirocco.errors import DivergenceError, InvalidValueError

pytest.importorskip("numba", reason="mixed memberships need numba (the extra `compiled`)")

from scirocco_latent.graph.edges import read
from scirocco_latent.graph.gibbs import BlockPrior, network
from scirocco_latent.graph.poisson_chains import GradientMethod, LangevinChain, MixedChain, PoissonPrior, units
from scirocco_latent.graph.results import communities_in_one_order

N, K, SHAPE, SCALE, BATCHES = 4, 2, 0.7, 1.5, 40
EDGES = [(0, 1, 2), (0, 2, 1), (1, 2, 1), (2, 3, 1)]
UNSEEN = np.array([[1, 3]])
PAIRS = np.array([pair for pair in itertools.combinations(range(N), 2) if pair != (1, 3)])
quiet = pytest.mark.filterwarnings("ignore::scirocco.errors.SciroccoWarning")


def chain_of(graph, seed):
    net = network(graph, BlockPrior(K, True, False, 1.0, 1.0, 1.0, 1.0), UNSEEN)
    return MixedChain(net, units(net), PoissonPrior(K, SHAPE, SCALE), 3, seed, 0)


def features(weights):
    """Quantities (draws, 4) of weights (draws, N, K) that do not depend on labels."""
    pi = weights / weights.sum(axis=-1, keepdims=True)
    rates = [(weights[:, i] * weights[:, j]).sum(axis=-1) for i, j in ((0, 1), (1, 3))]
    return np.stack([*rates, (pi[:, 0] * pi[:, 3]).sum(axis=-1), weights[:, 2].sum(axis=-1)], axis=1)


def z_scores(drawn, expected, error=0.0):
    batches = drawn.reshape(BATCHES, -1, drawn.shape[1]).mean(axis=1)
    spread = np.sqrt(batches.var(axis=0, ddof=1) / BATCHES + error**2)
    return (batches.mean(axis=0) - expected) / spread


@pytest.mark.law
def test_weights_have_the_posterior_of_weighted_draws_from_the_prior(seed):
    graph = read(EDGES, nodes=N)
    rng = np.random.default_rng([seed, 1])
    tables = []
    for _ in range(20):
        rate = rng.gamma(1.0, SCALE, 10_000)
        weights = rng.gamma(SHAPE, size=(10_000, N, K)) / rate[:, None, None]
        seen = dict(zip(zip(graph.source, graph.target, strict=True), graph.weight, strict=True))
        logs = np.zeros(len(rate))
        for i, j in PAIRS:
            mean = (weights[:, i] * weights[:, j]).sum(axis=-1)
            logs += seen.get((i, j), 0) * np.log(mean) - mean
        share = np.exp(logs - logs.max())
        tables.append(share @ features(weights) / share.sum())
    chain = chain_of(graph, seed)
    chain.advance(100)
    drawn = np.empty((4_000, N, K))
    for step in range(len(drawn)):
        chain.advance(1)
        drawn[step] = chain.weights
    error = np.std(tables, axis=0, ddof=1) / np.sqrt(len(tables))
    assert np.abs(z_scores(features(drawn), np.mean(tables, axis=0), error)).max() < 5
    np.testing.assert_allclose(chain.sums, chain.weights.sum(axis=0))


@pytest.mark.law
def test_joint_distribution_is_the_prior_times_the_likelihood(seed):
    """Independent copies: weights from the prior, edges and their communities, then two steps of the chain."""
    graph = read(EDGES, nodes=N)
    rng = np.random.default_rng([seed, 2])
    chain = chain_of(graph, seed)
    i, j = PAIRS.T
    found = np.empty((2_400, 4))
    for number in range(len(found)):
        rate = rng.exponential(SCALE)
        weights = rng.gamma(SHAPE, size=(N, K)) / rate
        colours = rng.poisson(weights[i] * weights[j])  # (pairs, K)
        if colours.sum() < 10_000:  # edges alone decide, so that no step leaves the posterior unchanged, too
            kept = colours.sum(axis=1) > 0
            edges = graph._replace(source=i[kept], target=j[kept], weight=colours[kept].sum(axis=1))
            net = network(edges, BlockPrior(K, True, False, 1.0, 1.0, 1.0, 1.0), UNSEEN)
            chain.net, chain.units = net, units(net)
            chain.restore(
                chain.state()
                | {
                    "colours": np.repeat(np.tile(np.arange(K), kept.sum()), colours[kept].ravel()),
                    "weights": weights,
                    "sums": weights.sum(axis=0),
                    "rate": np.array(rate),
                    "steps": np.array([2 * number]),
                }
            )
            chain.advance(2)
            rate, weights = chain.rate, chain.weights
        scaled = rate * weights
        found[number] = [rate, scaled.mean(), (scaled**2).mean(), (scaled[0] / scaled[0].sum())[0] ** 2]
    half = SHAPE * (SHAPE + 1)
    expected = np.array([SCALE, SHAPE, half, half / (K * SHAPE * (K * SHAPE + 1))])
    z = (found.mean(axis=0) - expected) / (found.std(axis=0, ddof=1) / np.sqrt(len(found)))
    assert np.abs(z).max() < 5


@pytest.mark.law
@pytest.mark.parametrize("sampler", ["scir", "scir_cv_counts"])
def test_weights_move_by_exact_transitions_with_unbiased_counts(sampler, seed):
    """The mean of a CIR transition is linear in the counts, so that estimated counts do not change it."""
    graph = read([(0, 1, 2), (0, 2, 1), (0, 3, 4), (1, 2, 1)], nodes=N)
    net = network(graph, BlockPrior(K, True, False, 1.0, 1.0, 1.0, 1.0), UNSEEN)
    step, start = 0.4, np.array([[3.0, 0.5], [2.0, 0.4], [1.5, 0.6], [1.0, 0.8]])
    chain = LangevinChain(
        net, units(net), PoissonPrior(K, 20.0, SCALE), N, seed, 0, method=GradientMethod(sampler, step, 1)
    )
    if sampler == "scir_cv_counts":
        chain.reference = start[:, ::-1].copy()
        chain.refer()
    found = np.empty((4_000, K))
    for number in range(len(found)):
        chain.weights, chain.step = start.copy(), 20 * number + 1
        chain.tabulate()
        chain.update(np.array([0]))
        found[number] = chain.weights[0]
    counts = np.zeros(K)
    for j, times in ((1, 2), (2, 1), (3, 4)):
        counts += times * start[0] * start[j] / (start[0] @ start[j])
    rate = chain.rate + start[1:].sum(axis=0)
    expected = start[0] * np.exp(-step) + (20.0 + counts) / rate * -np.expm1(-step)
    assert np.abs(z_scores(found, expected)).max() < 5


# -- the model --------------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(3)
TRUTH = np.repeat([0, 1], 15)
GRAPH = np.argwhere(np.triu(RNG.random((30, 30)) < np.where(TRUTH[:, None] == TRUTH, 0.6, 0.05), 1))


def fitted(how=None, **options):
    given = {"num_chains": 2, "num_samples": 20, "seed": 1} | options
    model = sc.models.MixedMembership(2, **given)
    return model.fit(GRAPH, **({"num_epochs": 100, "progress": False, "nodes": 30} | (how or {})))


@quiet
@pytest.mark.compile
@pytest.mark.parametrize(
    "kind",
    [
        {"sampler": "scir_cv"},
        {"kind": "general", "directed": True},
        {"kind": "general", "sampler": "scir_cv"},
        {"degree_corrected": False},
        {"degree_corrected": False, "kind": "general", "sampler": "scir_cv"},
    ],
)
def test_chains_of_all_kinds_are_resumed_bit_for_bit(kind, tmp_path):
    how, options = {"store": tmp_path / "part"}, {"num_burnin": 0, "batch_size": 11} | kind
    fitted(how | {"callbacks": [lambda told: told.stop()]}, **options)
    fitted(how | {"resume": True}, **options)
    whole = fitted(**options)
    again = sc.models.load(tmp_path / "part")
    for name, values in whole.draws_.items():
        np.testing.assert_array_equal(again.draws_[name], values)
    right = (whole.labels_ == TRUTH).mean()
    assert max(right, 1 - right) > 0.8
    assert whole.block_matrix(0.9).mean.shape == (2, 2)


@quiet
@pytest.mark.compile
def test_communities_are_found_stored_resumed_and_reported(tmp_path):
    how = {"store": tmp_path / "part", "held_out": [(0, 1), (3, 20)]}
    options = {"num_burnin": 0, "batch_size": 11}
    part = fitted(how | {"callbacks": [lambda told: told.stop()]}, **options)
    assert part.run_.status == "stopped" and part.run_.num_draws < 20
    fitted(how | {"resume": True}, **options)
    again = sc.models.load(tmp_path / "part")
    whole = fitted({"held_out": [(0, 1), (3, 20)]}, **options)
    for name, values in whole.draws_.items():
        np.testing.assert_array_equal(again.draws_[name], values)
    mean, low, high = whole.memberships(0.9)
    np.testing.assert_allclose(mean.sum(axis=1), 1.0, rtol=1e-5)
    assert ((low <= mean + 1e-6) & (mean <= high + 1e-6)).all()
    right = (whole.labels_ == TRUTH).mean()
    assert max(right, 1 - right) > 0.9
    assert whole.co_membership([(0, 1)])[0] > whole.co_membership([(0, 29)])[0]
    pairs, counts = sc.models.held_out_links(GRAPH, 0.2, nodes=30)
    assert 0.5 < whole.auc(pairs, counts) <= 1 < whole.perplexity(pairs, counts)
    p, known = whole.predict_proba(pairs), np.asarray(counts) > 0  # as many linked pairs as others
    given = 0.8 * p / (0.8 * p + 0.2 * (1 - p))
    expected = np.log(np.where(known, given, 1 - given)).mean()
    assert whole.score(pairs, counts, density=0.2) == pytest.approx(expected)
    whole.save(tmp_path / "saved")
    assert sc.models.load(tmp_path / "saved").get_params() == whole.get_params()
    report.show(whole, tmp_path / "page.html")
    assert "least certain" in (tmp_path / "page.html").read_text()
    means = whole.summary(digits=None)["mean"]
    np.testing.assert_allclose(means[["shares[0]", "shares[1]"]], whole.communities()["share"])
    assert len(whole.communities()) == 2 and whole.to_arviz().posterior["weights"].shape == (2, 20, 30, 2)


@quiet
@pytest.mark.compile
def test_folders_and_streams_are_the_same_network_and_networks_grow(tmp_path):
    weight = 1 + np.arange(len(GRAPH)) % 2
    table = {"source": GRAPH[:, 0], "target": GRAPH[:, 1], "weight": weight}
    sc.data.write(tmp_path / "edges", table)
    triples = np.column_stack([GRAPH, weight])
    how = {"num_epochs": 20, "progress": False, "nodes": 30}
    draws = [
        sc.models.MixedMembership(2, num_chains=1, seed=1).fit(graph, **how).draws_["weights"]
        for graph in (triples, tmp_path / "edges", iter([triples[:50], [], triples[50:]]), iter(triples.tolist()))
    ]
    for other in draws[1:]:
        np.testing.assert_array_equal(draws[0], other)
    names = [[f"n{end}" for end in pair] for pair in GRAPH.tolist()]
    early = [pair for pair, ends in zip(names, GRAPH, strict=True) if ends.max() < 28]
    late = [pair for pair, ends in zip(names, GRAPH, strict=True) if ends.max() >= 28]
    for options in ({}, {"degree_corrected": False, "kind": "general", "sampler": "scir_cv"}):
        model = sc.models.MixedMembership(2, num_chains=2, num_samples=20, seed=1, **options)
        model.fit(early, held_out=[("n0", "n20")], num_epochs=100, progress=False)
        before = model.memberships_[:28]
        assert model.partial_fit(late).partial_fit([]) is model
        assert set(model.node_names_) == {f"n{i}" for i in range(30)}
        truth = TRUTH[[int(name[1:]) for name in model.node_names_]]
        right = (model.labels_ == truth).mean()
        assert max(right, 1 - right) > 0.9
        assert np.abs(model.memberships_[:28] - before).mean() < 0.3  # communities keep their numbers
        assert len(model._network[1]) == 1 and model.predict_proba([("n0", "n29")]).shape == (1,)
        labels = model.labels_
        model.save(tmp_path / "saved", overwrite=True)
        np.testing.assert_array_equal(sc.models.load(tmp_path / "saved").labels_, labels)
    with pytest.raises(InvalidValueError, match="negative"):
        model.partial_fit([("n0", "n1", -1)])
    np.testing.assert_array_equal(model.labels_, labels)  # as it was
    with pytest.raises(InvalidValueError, match="edges are not saved"):
        sc.models.load(tmp_path / "saved").partial_fit(late)
    sc.data.write(tmp_path / "other", dict.fromkeys(("from", "to", "kind", "year"), GRAPH[:, 0]))
    for graph, words in (
        (tmp_path / "other", "Choose them"),
        (iter([]), "no edges"),
        (iter([GRAPH, triples]), "some batches"),
    ):
        with pytest.raises(InvalidValueError, match=words):
            model.fit(graph, progress=False)


@quiet
@pytest.mark.unit
def test_bad_settings_are_refused_and_labels_do_not_matter():
    for options, words in (
        ({"num_communities": 31}, "at most"),
        ({"concentration": 0.0}, "concentration"),
        ({"step_size": 0.1}, "has no `step_size`"),
        ({"kind": "other"}, "kind"),
        ({"prior": {"edges": 1.0}}, "no block matrix"),
        ({"likelihood": "bernoulli"}, "degree_corrected=False"),
        ({"sampler": "scir", "num_pairs": 3}, "remove `num_pairs`"),
        ({"degree_corrected": False, "prior": {"edges": 2.0, "pairs": 1.0}}, "more pairs than edges"),
    ):
        with pytest.raises(InvalidValueError, match=words):
            sc.models.MixedMembership(**({"num_communities": 2} | options)).fit(GRAPH, progress=False, nodes=30)
    for options in ({}, {"degree_corrected": False}):
        with pytest.raises(DivergenceError, match="ten times smaller"):
            fitted(sampler="sgrld", step_size=10.0, **options)
    rng = np.random.default_rng(0)
    pi = np.eye(3)[np.arange(30) % 3] + 0.1
    raw = {"weights": pi * rng.gamma(9.0, size=(2, 4, 30, 3)), "shares": np.tile([0.5, 0.3, 0.2], (2, 4, 1))}
    other = {name: values.copy() for name, values in raw.items()}
    for place in np.ndindex(2, 4):
        order = rng.permutation(3)
        other["weights"][place] = raw["weights"][place][:, order]
        other["shares"][place] = raw["shares"][place][order]
    for name, values in communities_in_one_order(other).items():
        np.testing.assert_array_equal(values, raw[name])
