"""The log predictive density of a model: against the definition, for all forms of a model, in blocks."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import scirocco as sc
from helpers import compiled
from scirocco.analysis.scores import log_predictive
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.run import Run

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("quick_compiler")]


def log_density(params, x):
    return -0.5 * ((x - params["mean"]) / params["sd"]) ** 2 - jnp.log(params["sd"]) - 0.5 * math.log(2 * math.pi)


def total(params, rows):
    return jnp.sum(log_density(params, rows))


TRANSFORMS = {"mean": None, "sd": sc.transforms.positive}
MODELS = {
    "datum": sc.Model(log_density, lambda params: -1e6 * params["mean"] ** 2),
    "rows": sc.Model(log_density, vectorized=True),
    "total": sc.Model.from_total(total),
    "transformed": sc.Model(log_density, transforms=TRANSFORMS),
}


def sample(seed, num_chains=2, num_draws=75):
    rng = np.random.default_rng(seed)
    draws = {"mean": rng.normal(size=(num_chains, num_draws)), "sd": rng.gamma(5.0, 0.2, (num_chains, num_draws))}
    return {name: leaf.astype(np.float32) for name, leaf in draws.items()}, rng.normal(size=150).astype(np.float32)


def by_definition(draws, x):
    mean, sd = (draws[name].reshape(-1, 1).astype(float) for name in ("mean", "sd"))
    return logsumexp(norm.logpdf(x.astype(float), mean, sd), axis=0) - math.log(mean.size)


@pytest.mark.parametrize("form", MODELS)
def test_definition(form, seed):
    """150 draws in blocks of 64, 150 rows in blocks of 40: both with a rest."""
    draws, x = sample(seed)
    found = log_predictive(MODELS[form], draws, x, chunk=40, each=True)
    exact = by_definition(draws, x)
    np.testing.assert_allclose(found.each, exact, rtol=2e-5, atol=2e-5)
    assert found.value == pytest.approx(exact.mean(), rel=2e-5)
    assert found.standard_error == pytest.approx(exact.std(ddof=1) / math.sqrt(150), rel=1e-4)
    assert log_predictive(MODELS[form], draws, x).each is None


def test_draws_are_used_as_they_are(seed):
    """A scale of exactly 0 has no place on the real line; it has a density all the same."""
    model = sc.Model(lambda scale, x: -((x - scale) ** 2), transforms=sc.transforms.positive)
    found = log_predictive(model, np.zeros((1, 3), np.float32), np.array([1.0, 2.0], np.float32), each=True)
    np.testing.assert_allclose(found.each, [-1.0, -4.0], rtol=1e-6)


def test_impossible_under_some_draws(seed):
    """Uniform on [0, θ]: draws below x give it none, and a row above all of them has the log density -∞."""
    model = sc.Model(lambda theta, x: jnp.where(x <= theta, -jnp.log(theta), -jnp.inf))
    draws = np.array([[1.0, 2.0, 4.0]], np.float32)
    found = log_predictive(model, draws, np.array([0.5, 3.0, 5.0], np.float32), each=True)
    np.testing.assert_allclose(found.each, [math.log((1 + 0.5 + 0.25) / 3), math.log(0.25 / 3), -np.inf], rtol=1e-6)


def test_a_run_is_as_its_draws(seed):
    draws, x = sample(seed)
    run = Run(draws, None, {}, {}, {}, {}, "complete", [])
    assert log_predictive(MODELS["datum"], run, x) == log_predictive(MODELS["datum"], draws, x)
    with pytest.raises(InvalidValueError, match=r"has no draws \(status: diverged\)"):
        log_predictive(MODELS["datum"], Run(None, None, {}, {}, {}, {}, "diverged", []), x)


def test_one_program_serves_all_blocks(seed):
    draws, x = sample(seed)
    model = sc.Model(lambda params, row: log_density(params, row))
    with compiled() as programs:
        log_predictive(model, draws, x, chunk=40)
    assert sum("_log_sum" in name for name in programs) == 1
    again = sc.Model(model.log_likelihood)
    with compiled() as programs:
        log_predictive(again, draws, x[::-1].copy(), chunk=40)
    assert not any("_log_sum" in name for name in programs)


def test_wrong_inputs():
    x, model = np.ones(3, np.float32), sc.Model(lambda mu, x: jnp.log(mu) * x)
    with pytest.raises(InvalidTypeError, match=r"sc\.Model"):
        log_predictive(lambda mu, x: x, np.ones((1, 2)), x)
    for draws in (np.ones(4), np.ones((1, 0)), {"a": np.ones((1, 2)), "b": np.ones((1, 3))}, 1.0):
        with pytest.raises(InvalidValueError, match=r"leaves \(chain, draw, ...\)"):
            log_predictive(model, draws, x)
    with pytest.raises(InvalidValueError, match="row 0 is NaN"):
        log_predictive(model, -np.ones((1, 2), np.float32), x)
    with pytest.raises(InvalidValueError, match="chunk"):
        log_predictive(model, np.ones((1, 2), np.float32), x, chunk=0)
