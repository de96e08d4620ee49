"""What `sc.sample` returns: draws of the posterior, gradients that belong to them, advice after a divergence."""

from __future__ import annotations

import warnings

import jax
import numpy as np
import pytest

import helpers
import scirocco as sc
from scirocco.errors import DivergenceError

pytestmark = pytest.mark.compile

ROWS = np.random.default_rng(0).normal(1.0, 1.0, 256).astype(np.float32)
MODEL = sc.Model(lambda p, x: -0.5 * (x - p["mean"]) ** 2, lambda p: -0.5 * p["other"] @ p["other"])
START = {"mean": 0.0, "other": np.zeros(3, np.float32)}


@pytest.fixture(autouse=True, scope="module")
def _quick(quick_compiler):
    """Few programs run for long."""


def run(**changes):
    arguments = {
        "sampler": sc.SGLD(1e-3),
        "estimator": sc.Minibatch(32),
        "num_samples": 40,
        "num_chains": 3,
        "progress": False,
    }
    return sc.sample(MODEL, ROWS, START, **(arguments | changes))


def test_kept_gradients_belong_to_the_draws_they_are_kept_with():
    result = run(estimator=sc.Full(), keep_gradients=True)
    assert {name: leaf.shape for name, leaf in result.draws.items()} == {"mean": (3, 40), "other": (3, 40, 3)}
    assert (result.num_chains, result.num_draws, result.status) == (3, 40, "complete")
    exact = ROWS.sum() - len(ROWS) * result.draws["mean"]
    np.testing.assert_allclose(result.gradients["mean"], exact, rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(result.gradients["other"], -result.draws["other"], rtol=1e-5)
    norm = np.sqrt(result.gradients["mean"] ** 2 + (result.gradients["other"] ** 2).sum(axis=-1))
    np.testing.assert_allclose(result.stats["gradient_norm"], norm, rtol=1e-4)


def test_a_step_that_is_far_too_large_names_the_parameter_and_a_step_that_works():
    with pytest.raises(DivergenceError, match="`mean`") as caught:
        run(sampler=sc.SGLD(10.0), num_samples=2_000)
    assert "error.run" in str(caught.value)
    advised = float(str(caught.value).split("step_size=")[1].split(" ")[0])
    assert run(sampler=sc.SGLD(advised), num_samples=2_000).status == "complete"


@pytest.mark.rotates(2, "plain calls")
def test_defaults_alone_give_the_posterior():
    """No sampler, no estimator: both are chosen, and the mean of a Gaussian comes out."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = run(sampler=None, estimator=None, num_samples=3_000, num_chains=2)
    assert abs(result.draws["mean"].mean() - ROWS.mean()) < 0.05 / np.sqrt(len(ROWS)) * 16
    assert result.draws["mean"].std() * np.sqrt(len(ROWS)) == pytest.approx(1.0, abs=0.15)


def test_zero_variance_without_keeping_draws(tmp_path):
    """On a Gaussian posterior with exact gradients every chain finds the mean; the same numbers as from kept draws."""
    reducers = {"zero": sc.reducers.ZeroVariance(), "square": sc.reducers.ZeroVariance(lambda p: p["bias"] ** 2)}
    options = {"num_samples": 60, "num_chains": 2, "reducers": reducers}
    kept = helpers.draw("SGLD", "Full", **options, keep_gradients=True)
    slim = helpers.draw("SGLD", "Full", **options, keep_draws=False, store=tmp_path / "run")
    found = slim.reduced["zero"]
    assert slim.draws is None and slim.gradients is None
    helpers.assert_equal(found, kept.reduced["zero"])
    exact = helpers.make_params(np.float64)
    for _ in range(2):  # Newton: the log posterior is quadratic
        x = helpers.make_data()["x"].reshape(helpers.NUM_ROWS, -1).astype(np.float64)
        design = np.column_stack([np.ones(len(x)), x])
        gradient = helpers.exact_gradient(exact)
        flat = np.concatenate([[gradient["bias"]], gradient["weights"].ravel()])
        step = np.linalg.solve(design.T @ design + np.eye(5), flat)
        exact = {"bias": exact["bias"] + step[0], "weights": exact["weights"] + step[1:].reshape(2, 2)}
    for name, leaf in exact.items():
        np.testing.assert_allclose(found.value[name], np.stack([leaf, leaf]), atol=2e-3)
        assert np.all(np.abs(found.plain[name] - leaf).max() > 2e-2), "plain means that are right prove nothing"
        assert np.all(found.reduction[name] > 100)
    draws, gradients = jax.tree.map(lambda leaf: leaf[:1], (kept.draws, kept.gradients))
    fitted = sc.analysis.zero_variance((draws, gradients), lambda p: p["bias"] ** 2, ridge=0.0).coefficients
    slopes = np.concatenate([np.mean(leaf, axis=(0, 1)).ravel() for leaf in jax.tree.leaves(gradients)])
    by_hand = np.mean(draws["bias"] ** 2) + slopes @ np.asarray(fitted)[:, 0]
    np.testing.assert_allclose(slim.reduced["square"].value[0], by_hand, rtol=1e-3)
    loaded = sc.load(tmp_path / "run").reduced["zero"]
    assert isinstance(loaded, sc.reducers.ZeroVarianceResult)
