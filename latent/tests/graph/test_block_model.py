"""Block models: forms of networks, results, stores, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import scirocco as sc
from scirocco import report
from scirocco.errors import InvalidTypeError, InvalidValueError

pytest.importorskip("numba", reason="block models need numba (the extra `compiled`)")

from scirocco_latent.graph.edges import read
from scirocco_latent.graph.results import blocks_in_one_order

pytestmark = [pytest.mark.compile, pytest.mark.filterwarnings("ignore::scirocco.errors.SciroccoWarning")]

RNG = np.random.default_rng(3)
TRUTH = np.repeat([0, 1, 2], [16, 14, 10])
CHANCE = np.where(TRUTH[:, None] == TRUTH, 0.6, 0.05)
MATRIX = np.triu(RNG.random((40, 40)) < CHANCE, 1)
EDGES = np.argwhere(MATRIX)
NAMES = [f"node {k}" for k in range(40)]
SHORT = {"num_chains": 2, "num_samples": 20, "num_starts": 2, "seed": 1}


def fitted(graph, how=None, **options):
    return sc.models.StochasticBlockModel(**({"num_blocks": 3} | SHORT | options)).fit(
        graph, **({"num_epochs": 40, "progress": False, "nodes": 40} | (how or {}))
    )


@pytest.fixture(scope="module")
def model():
    named = [(NAMES[i], NAMES[j]) for i, j in EDGES]
    return fitted(named, {"nodes": NAMES})


@pytest.mark.parametrize("options", [{}, {"degree_corrected": False}, {"directed": True}, {"num_blocks": None}])
def test_blocks_are_found_and_results_have_their_shapes(options):
    found = fitted(EDGES, **options)
    shares = found.memberships()
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    same = found.co_membership()
    np.testing.assert_allclose(same, same.T)
    assert ((same > 0.5) == (TRUTH[:, None] == TRUTH)).mean() > 0.95
    np.testing.assert_allclose(found.co_membership([(0, 1), (0, 39)]), [same[0, 1], same[0, 39]])
    mean, low, high = found.block_matrix(0.9)
    np.testing.assert_array_equal(mean, found.block_matrix_)
    assert ((low <= mean) & (mean <= high)).all()
    assert np.all(np.diff(found.shares_) < 0) and len(found.blocks()) == len(np.unique(found.labels_))
    assert (found.shares_ > 0.1).sum() == 3  # a Dirichlet process also has a few blocks of one or two nodes
    linked = found.predict_proba(np.argwhere(~np.eye(40, dtype=bool)))
    own = (TRUTH[:, None] == TRUTH)[~np.eye(40, dtype=bool)]
    assert ((linked >= 0) & (linked <= 1)).all() and linked[own].mean() > 2 * linked[~own].mean()
    assert "exact Gibbs sampler" in found.run_.preparation["chosen"]
    means = found.summary(digits=None)["mean"]
    assert means.index.is_unique and means["shares[0]"] == pytest.approx(found.shares_[0])
    assert means["block_matrix[0, 1]"] == pytest.approx(found.block_matrix_[0, 1])
    assert ("number of blocks" in means.index) == (found.num_blocks is None)


def test_labels_come_in_one_call():
    how = {"num_epochs": 40, "progress": False, "nodes": 40}
    labels = sc.models.StochasticBlockModel(3, **SHORT).fit_predict(EDGES, **how)
    np.testing.assert_array_equal(labels, fitted(EDGES).labels_)


def test_scores_are_those_of_the_rates_of_single_draws():
    pairs, counts = sc.models.held_out_links(EDGES, 0.2, seed=2, nodes=40)
    assert len(pairs) == 2 * round(0.2 * len(EDGES)) and counts.sum() == len(pairs) / 2
    one = fitted(EDGES, {"held_out": pairs}, num_chains=1, num_samples=1)
    z, rates = one.draws_["blocks"][0, 0], one.draws_["block_matrix"][0, 0]
    theta = one.draws_["propensities"][0, 0, :, 0]
    i, j = np.array(pairs).T
    expected = rates[z[i], z[j]] * theta[i] * theta[j]
    np.testing.assert_allclose(one.predict_proba(pairs), -np.expm1(-expected), rtol=1e-6)
    logs = counts * np.log(expected) - expected
    np.testing.assert_allclose(one.score(pairs, counts), logs.mean(), rtol=1e-6)
    np.testing.assert_allclose(one.perplexity(pairs, counts), np.exp(-logs.mean()), rtol=1e-6)
    above = expected[counts > 0][:, None] > expected[counts == 0]
    np.testing.assert_allclose(one.auc(pairs, counts), above.mean())


def test_all_forms_of_networks_are_the_same_network(model, tmp_path):
    named = [(NAMES[i], NAMES[j]) for i, j in EDGES]
    expected = read(EDGES, nodes=40)
    pd.DataFrame(EDGES, columns=["a", "b"]).to_csv(tmp_path / "edges.csv", index=False)
    both = np.concatenate([EDGES, EDGES[:, ::-1]])
    forms = {
        "list": [tuple(edge) for edge in EDGES.tolist()],
        "table": pd.DataFrame(EDGES),
        "file": tmp_path / "edges.csv",
        "floats": EDGES.astype(float),
        "weights": np.column_stack([EDGES, np.ones(len(EDGES), int)]),
        "twice": both,
        "loops": np.concatenate([EDGES, [[3, 3]]]),
        "matrix": sparse.csr_array(MATRIX | MATRIX.T),
    }
    for name, form in forms.items():
        found = read(form, nodes=None if name == "matrix" else 40)
        for part in ("source", "target", "weight"):
            np.testing.assert_array_equal(getattr(found, part), getattr(expected, part), err_msg=name)
        assert not found.directed and found.names is None and not found.has_weights
    assert read(sparse.csr_array(MATRIX)).directed
    assert model.node_names_ == NAMES and model.nodes().index[7] == "node 7"
    by_number = fitted(EDGES)
    np.testing.assert_array_equal(by_number.draws_["blocks"], model.draws_["blocks"])
    np.testing.assert_array_equal(by_number.predict_proba(EDGES[:9]), model.predict_proba(named[:9]))


class Drawn:
    """What is used of a graph of networkx."""

    def __init__(self, edges, nodes, directed=False):
        self.nodes, self._edges, self._directed = nodes, edges, directed

    def is_directed(self):
        return self._directed

    def is_multigraph(self):
        return False

    @property
    def edges(self):
        return lambda data: [(a, b, w) for a, b, w in self._edges]


def test_graphs_of_networkx_keep_isolated_nodes_names_and_weights():
    found = read(Drawn([("b", "a", 2), ("a", 3, None)], ["a", "b", 3, "alone"], directed=True))
    assert found.names == ("a", "b", 3, "alone") and found.directed and found.has_weights
    assert list(zip(found.source, found.target, found.weight, strict=True)) == [(0, 2, 1), (1, 0, 2)]


def test_networks_are_cleaned_by_stated_rules():
    with pytest.warns(sc.errors.SciroccoWarning, match="1 self-loop was dropped"):
        read([(0, 0), (0, 1)])
    with pytest.warns(sc.errors.SciroccoWarning, match="1 of 3 edges repeat a pair"):
        read([(0, 1), (1, 0), (1, 2)])
    summed = read([(0, 1, 2), (1, 0, 3), (1, 2, 0)])
    assert summed.weight.tolist() == [5] and summed.num_nodes == 3


@pytest.mark.parametrize(
    "graph, options, words",
    [
        ([], {}, "it has no edges"),
        (np.empty((0, 2), int), {}, "the network has no edges"),
        ([(0, 0)], {}, "the network has no edges"),
        ([(0, 1, -1)], {}, "1 of 1 are negative"),
        ([(0, 1, 0.5)], {}, "not a whole number"),
        ([(0, 1, np.nan)], {}, "missing or infinite"),
        ([(0, np.nan)], {}, "target of edge 0 is missing"),
        ([("a", None)], {}, "target of edge 0 is missing"),
        ([("a", "b")], {"nodes": ["a", "b", None]}, "`nodes` contains a missing name"),
        (np.zeros((4, 4)), {}, "adjacency matrix as scipy.sparse"),
        (sparse.csr_array(np.ones((2, 3))), {}, "must be square"),
        ([(0, 1), (1, 5)], {"nodes": 3}, "node 5 has an edge"),
        ("no/such/file.csv", {}, "there is no file"),
    ],
)
def test_bad_networks_are_refused(graph, options, words):
    with pytest.raises((InvalidValueError, InvalidTypeError), match=words):
        read(graph, **options)


def test_bad_settings_are_refused(model):
    cases = [
        ({"num_blocks": 41}, "at most 2,000 and the number of nodes"),
        ({"likelihood": "bernoulli"}, "degree_corrected=False"),
        ({"prior": {"rate": 1}}, "It has edges and pairs"),
        ({"prior": {"pairs": 0.1}, "degree_corrected": False}, "more pairs than edges"),
        ({"degree_corrected": "yes"}, "True or False"),
        ({"directed": "no"}, "True, False or None"),
    ]
    for options, words in cases:
        with pytest.raises((InvalidValueError, InvalidTypeError), match=words):
            sc.models.StochasticBlockModel(**({"num_blocks": 3} | options)).fit(EDGES, nodes=40, progress=False)
    with pytest.raises(InvalidValueError, match="there is no node 'nobody'"):
        model.predict_proba([("node 1", "nobody")])
    with pytest.raises(sc.errors.NotFittedError):
        sc.models.StochasticBlockModel(2).memberships()


def test_a_stored_fit_is_resumed_bit_for_bit(tmp_path):
    how = {"store": tmp_path / "part", "held_out": [(0, 1), (3, 30)]}
    options = {"num_burnin": 0, "batch_size": 11, "num_blocks": None}
    part = fitted(EDGES, how | {"callbacks": [lambda told: told.stop()]}, **options)
    assert part.run_.status == "stopped" and part.run_.num_draws < 20
    fitted(EDGES, how | {"resume": True}, **options)
    again = sc.models.load(tmp_path / "part")
    whole = fitted(EDGES, {"held_out": [(0, 1), (3, 30)]}, **options)
    for name, values in whole.draws_.items():
        np.testing.assert_array_equal(again.draws_[name], values)
    with pytest.raises(InvalidValueError):
        fitted(EDGES[1:], how | {"resume": True}, **options)


def test_a_saved_model_and_its_report(model, tmp_path):
    model.save(tmp_path / "saved")
    again = sc.models.load(tmp_path / "saved")
    assert again.get_params() == model.get_params() and again.node_names_ == NAMES
    np.testing.assert_array_equal(again.memberships(), model.memberships())
    report.show(again, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "Block matrix" in text and "least certain" in text and text.count("<rect") >= 9
    unsure = int((model.memberships().max(axis=1) < 0.9).sum())
    assert text.count("<title>node ") == 40 and text.count('class="unsure"') == unsure + 1  # and in the key
    assert again.plot().axes[0].get_title(loc="left") == f"{unsure} of 40 nodes uncertain"
    assert model.to_arviz().posterior["blocks"].shape == (2, 20, 40)


def test_labels_do_not_matter():
    rng = np.random.default_rng(0)
    z = np.where(rng.random((2, 9, 40)) < 0.05, rng.integers(0, 3, (2, 9, 40)), TRUTH).astype(np.int16)
    raw = {"blocks": z, "shares": rng.random((2, 9, 3)), "block_matrix": rng.random((2, 9, 3, 3))}
    other = {name: values.copy() for name, values in raw.items()}
    for place in np.ndindex(2, 9):
        order = rng.permutation(3)
        other["blocks"][place] = np.argsort(order)[z[place]]
        other["shares"][place] = raw["shares"][place][order]
        other["block_matrix"][place] = raw["block_matrix"][place][order][:, order]
    found = blocks_in_one_order(other)
    for name, values in raw.items():
        np.testing.assert_array_equal(found[name], values)
