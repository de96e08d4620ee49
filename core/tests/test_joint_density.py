"""Posteriors that are no sum over rows: `sc.Model(log_density=...)`, whose data are None."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc

pytestmark = pytest.mark.compile

CORRELATION = 0.8
PRECISION = np.linalg.inv([[1.0, CORRELATION], [CORRELATION, 1.0]]).astype(np.float32)
START = {"scale": 1.0, "where": np.zeros(2, np.float32)}


def log_density(params):
    """A correlated normal pair, and a scale that is exponential."""
    return -0.5 * params["where"] @ PRECISION @ params["where"] - params["scale"]


MODEL = sc.Model(log_density=log_density, transforms={"scale": sc.transforms.positive})


def draw(**options):
    arguments = {"num_samples": 30, "num_chains": 2, "sampler": sc.NUTS(), "progress": False}
    return sc.sample(MODEL, None, START, **(arguments | options))


@pytest.fixture(autouse=True, scope="module")
def _hurry(quick_compiler):
    """Programs of a few steps."""


def test_the_plain_call_draws_from_it(seed):
    run = sc.sample(MODEL, None, START, seed=seed, progress=False)
    assert run.preparation["chosen"].startswith("NUTS, Full (the whole density at every step)")
    assert run.certificate.ok, run.certificate
    pair, scale = np.asarray(run.draws["where"], float).reshape(-1, 2), np.asarray(run.draws["scale"], float)
    assert np.all(np.abs(pair.mean(axis=0)) < 5 / np.sqrt(800))
    assert abs(scale.mean() - 1.0) < 5 / np.sqrt(800)
    assert abs(np.corrcoef(pair.T)[0, 1] - CORRELATION) < 5 * (1 - CORRELATION**2) / np.sqrt(800)


def test_it_is_stored_and_resumed_and_diagnosed(tmp_path, seed):
    folder = tmp_path / "run"
    draw(store=folder, seed=seed)
    more = sc.resume(folder, MODEL, None, num_samples=60, progress=False)
    whole = draw(num_samples=60, seed=seed)
    for name in START:
        np.testing.assert_array_equal(more.draws[name], whole.draws[name])
    assert "pass model=" not in str(sc.analysis.diagnose(sc.load(folder), model=MODEL))
    other = sc.Model(log_density=lambda params: 2 * log_density(params), transforms=MODEL.transforms)
    with pytest.raises(sc.errors.InvalidValueError, match="cannot be resumed with this model"):
        sc.resume(folder, other, None, num_samples=90, progress=False)


@pytest.mark.parametrize("sampler", [sc.HMC(), sc.SGLD(1e-2)], ids=["HMC", "SGLD"])
def test_every_sampler_gets_the_whole_density(sampler):
    assert draw(sampler=sampler, num_samples=5).configuration["estimator"] == {"name": "Full"}


def test_the_density_is_in_the_users_units():
    assert float(MODEL.log_density(START)) == -1.0
    assert repr(MODEL) == "Model(log_density=log_density)"
    assert MODEL == sc.Model(log_density=log_density, transforms=MODEL.transforms)


REFUSED = {
    "minibatches": (lambda: draw(estimator=sc.Minibatch(1)), "Minibatch reads batches of rows.*has none"),
    "data": (lambda: sc.sample(MODEL, np.zeros(3), START), r"has no rows: its data are None"),
    "no data": (lambda: sc.sample(sc.Model(lambda p, x: 0.0), None, START), r"`data` is None.*log_density=\.\.\."),
    "both": (lambda: sc.Model(lambda p, x: 0.0, log_density=log_density), "pass it alone"),
    "neither": (lambda: sc.Model(), "`log_likelihood` must be a function"),
    "number": (lambda: sc.Model(log_density=3.0), "`log_density` must be a function"),
    "vector": (
        lambda: sc.sample(sc.Model(log_density=lambda p: p["where"]), None, START),
        r"log_density\(params\) must return a scalar",
    ),
    "not finite": (
        lambda: sc.sample(sc.Model(log_density=lambda p: jnp.log(-p["scale"])), None, START, progress=False),
        "the log density is nan at the starting point",
    ),
    "bounds": (lambda: draw(sampler=sc.ZigZag()), "requires a bound on the curvature"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_has_a_sentence(case):
    attempt, words = REFUSED[case]
    with pytest.raises(sc.errors.SciroccoError, match=words):
        attempt()
