"""What `sc.sample` returns: draws of the posterior, gradients that belong to them, advice after a divergence."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

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
