"""What can be combined: arrays, trees, runs, transformed parameters; and what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from scirocco.combine.draws import read_shards
from scirocco.combine.gaussian import consensus, gaussian_product
from scirocco.combine.kdemc import kdemc
from scirocco.combine.shards import Subposteriors
from scirocco.combine.weierstrass import weierstrass
from scirocco.errors import InvalidTypeError, InvalidValueError

pytestmark = pytest.mark.unit

METHODS = (consensus, gaussian_product, kdemc, weierstrass)
RNG = np.random.default_rng(0)
GOOD = [RNG.normal(size=(40, 2)) for _ in range(3)]


def log_likelihood(params, datum):
    return -0.5 * ((datum - params["mean"]) / params["scale"]) ** 2 - jnp.log(params["scale"])


MODEL = sc.Model(log_likelihood, transforms={"mean": None, "scale": sc.transforms.positive})


@pytest.fixture(scope="module")
def runs():
    """Three short runs of two chains, of a model with a positive parameter."""
    data = np.random.default_rng(1).normal(2.0, 1.5, size=(3, 40)).astype(np.float32)
    start = {"mean": np.float32(2.0), "scale": np.float32(1.5)}
    return [
        sc.sample(
            MODEL, part, start, sampler=sc.SGLD(0.02), estimator=sc.Full(), num_samples=150, num_chains=2,
            seed=shard, progress=False,
        )
        for shard, part in enumerate(data)
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore::scirocco.errors.SciroccoWarning")
@pytest.mark.parametrize("method", METHODS)
def test_trees_keep_their_structure_and_precision(method):
    flat = np.stack(GOOD).astype(np.float32)
    trees = [{"a": part[:, 0], "b": {"c": part[:, 1:].reshape(-1, 1, 1)}} for part in flat]
    found, plain = method(trees), method(flat)
    assert found.draws["a"].shape == (found.num_draws,) == (40,)
    assert found.draws["b"]["c"].shape == (40, 1, 1)
    assert {leaf.dtype for leaf in jax.tree.leaves(found.draws)} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(found.draws["a"], plain.draws[:, 0])
    np.testing.assert_array_equal(found.draws["b"]["c"].ravel(), np.asarray(plain)[:, 1])
    with pytest.raises(InvalidTypeError, match=r"a tree of a, b\.c, not one array"):
        np.asarray(found)


@pytest.mark.rotates(2)
@pytest.mark.compile
@pytest.mark.filterwarnings("ignore::scirocco.errors.SciroccoWarning")
@pytest.mark.parametrize("method", METHODS)
def test_transformed_runs_are_combined_on_the_real_line(method, runs):
    """The same as combining (mean, log scale) by hand, so that scales stay positive; chains are joined."""
    found = method(runs).draws
    by_hand = [{"mean": np.ravel(run.draws["mean"]), "scale": np.log(np.ravel(run.draws["scale"]))} for run in runs]
    expected = method(by_hand).draws
    assert found["scale"].min() > 0
    assert len(found["mean"]) == 300
    if method is consensus:
        np.testing.assert_allclose(found["scale"], np.exp(expected["scale"]), rtol=1e-4)
        np.testing.assert_allclose(found["mean"], expected["mean"], rtol=1e-4)
    given = [jax.tree.map(lambda leaf: np.reshape(leaf, -1), run.draws) for run in runs]
    again = method(given, model=MODEL).draws
    if method is consensus:
        np.testing.assert_allclose(again["scale"], found["scale"], rtol=1e-6)


def test_an_object_with_runs_and_a_model(runs, tmp_path):
    whole = Subposteriors(runs, MODEL, [1] * len(runs))
    shards = read_shards(whole)
    assert shards.num_chains == [2, 2, 2]
    assert shards.names == ["mean", "scale"]
    np.testing.assert_allclose(shards.points[1][:, 1], np.log(np.ravel(runs[1].draws["scale"])), rtol=1e-5)
    runs[0].save(tmp_path / "run")
    loaded = sc.load(tmp_path / "run")
    with pytest.raises(InvalidValueError, match="pass model="):
        consensus([loaded, *runs[1:]])
    assert consensus([loaded, *runs[1:]], model=MODEL).num_draws == 300


def test_draws_outside_the_domain_are_refused():
    draws = [{"mean": part[:, 0], "scale": part[:, 1]} for part in GOOD]
    with pytest.raises(InvalidValueError, match=r"subposterior 0 \(`scale`\) must lie in the domain"):
        consensus(draws, model=MODEL)


def test_result():
    found = consensus(GOOD)
    assert repr(found) == "Combined(consensus: 40 draws of 2 numbers from 3 subposteriors, no warnings)"
    np.testing.assert_array_equal(np.asarray(found), found.draws)
    assert np.asarray(found, np.float32).dtype == np.float32
    assert found.diagnostics["num_subposteriors"] == 3
    assert found.method == "consensus"
    with pytest.raises(AttributeError):
        found.draws = None
    assert consensus([part[:, 0].astype(int) * 3 for part in GOOD]).draws.dtype == np.float64


nan = [GOOD[0], GOOD[1].copy(), GOOD[2]]
nan[1][7, 0] = np.nan
constant = [GOOD[0], np.column_stack([GOOD[1][:, 0], np.full(40, 0.1)])]
dependent = [part @ np.array([[1.0, 1.0], [0.0, 0.0]]) for part in GOOD]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ([], InvalidValueError, "empty"),
        ({"a": GOOD[0]}, InvalidTypeError, "one item for each subposterior"),
        (GOOD[0][:, 0], InvalidTypeError, "one item for each subposterior"),
        (3.0, InvalidTypeError, "got float"),
        ([1.0, 2.0], InvalidValueError, "single number 1.0"),
        ([["x", "y"], ["x", "z"]], InvalidTypeError, "real numbers"),
        ([np.array(["x", "y"])] * 2, InvalidTypeError, "subposterior 0 must be real numbers"),
        ([GOOD[0], {"a": GOOD[1]}], InvalidValueError, "subposterior 1 has the structure"),
        ([GOOD[0], GOOD[1][:, :1]], InvalidValueError, "one draw of subposterior 1 has the shapes"),
        ([{"a": GOOD[0], "b": GOOD[1][:30]}] * 2, InvalidValueError, r"same number of draws, got \[30, 40\]"),
        (nan, InvalidValueError, r"subposterior 1 \(`params`\) must be finite; 1 of 40 are not, the first is draw 7"),
        ([GOOD[0], GOOD[1][:1]], InvalidValueError, "subposterior 1 must have at least 2 draws, got 1"),
        (constant, InvalidValueError, r"`params\[1\]` is the same in all draws of subposterior 1"),
        (dependent, InvalidValueError, "depend on each other linearly"),
        ([np.zeros((5, 0))] * 2, InvalidValueError, "contain no numbers"),
    ],
)  # fmt: skip
def test_bad_subposteriors(method, given, error, words):
    with pytest.raises(error, match=words):
        method(given)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: consensus(GOOD, weights="full"), "one of 'matrix', 'diagonal', 'uniform'; got 'full'"),
        (lambda: weierstrass(GOOD, weights="uniform"), "`weights` must be one of 'matrix', 'diagonal'"),
        (lambda: kdemc(GOOD, moves="hmc"), "`moves` must be one of 'gibbs', 'independent'; got 'hmc'"),
        (lambda: weierstrass(GOOD, acceptance=0.0), "`acceptance` must be finite and > 0, got 0.0"),
        (lambda: weierstrass(GOOD, acceptance=1.5), "`acceptance` must be above 0 and at most 1, got 1.5"),
        (lambda: weierstrass(GOOD, acceptance="low"), "`acceptance` must be a number"),
        (lambda: kdemc(GOOD, bandwidth=0.0), "`bandwidth` must be finite and > 0, got 0.0"),
        (lambda: kdemc(GOOD, bandwidth=-1.0), "`bandwidth`"),
        (lambda: kdemc(GOOD, anneal="yes"), "`anneal` must be True or False"),
        (lambda: kdemc(GOOD, num_chains=0), "`num_chains` must be at least 1"),
        (lambda: kdemc(GOOD, num_burnin=-1), "`num_burnin` must be at least 0"),
        (lambda: gaussian_product(GOOD, num_draws=0), "`num_draws` must be at least 1"),
        (lambda: weierstrass(GOOD, num_draws=1.5), "`num_draws` must be a whole number"),
        (lambda: gaussian_product(GOOD, seed=-1), "`seed` must be at least 0"),
        (lambda: consensus(GOOD, model="logistic"), "subposteriors of an sc.Model can be combined"),
        (lambda: consensus(np.ones((2, 3, 5)) * np.arange(3)[:, None]), 'use weights="diagonal"'),
    ],
)  # fmt: skip
def test_bad_arguments(call, words):
    with pytest.raises((InvalidValueError, InvalidTypeError), match=words):
        call()


def test_a_run_among_draws(runs):
    with pytest.raises(InvalidTypeError, match="all runs or all draws"):
        consensus([runs[0], GOOD[0]])
    with pytest.raises(InvalidTypeError, match="got Run"):
        consensus(runs[0])
