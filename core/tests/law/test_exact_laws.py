"""NUTS, `sc.laplace` and the certificate against posteriors in closed form."""

from __future__ import annotations

import math
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import helpers
import scirocco as sc
from law import laws
from scirocco.errors import InvalidValueError
from scirocco.run import request, setup
from scirocco.run.choose import set_up
from scirocco.run.sizes import RUNNING

pytestmark = pytest.mark.law

SEED = int(os.environ.get("SCIROCCO_TEST_SEED", "0"))
GAMMA = sc.Model(
    lambda rate, x: jnp.log(rate) - rate * x, lambda rate: jnp.log(rate) - rate, transforms=sc.transforms.positive
)
"""Exponential data and a gamma prior of shape 2: the posterior is a gamma law, skewed for few rows."""
NORMAL = sc.Model(lambda mu, x: -0.5 * jnp.sum((x - mu) ** 2), lambda mu: -0.5 * jnp.sum(mu**2))


@pytest.fixture(autouse=True, scope="module")
def _hurry(quick_compiler):
    """Programs that run for less than a second."""


def exponential(num_rows):
    x = np.random.default_rng([SEED, num_rows]).exponential(0.5, num_rows).astype(np.float32)
    return x, stats.gamma(2 + num_rows, scale=1 / (1 + x.astype(np.float64).sum()))


def normal(num_rows=50, dimension=3):
    x = np.random.default_rng([SEED, 5]).normal(1.0, 1.0, (num_rows, dimension)).astype(np.float32)
    return x, x.astype(np.float64).sum(axis=0) / (num_rows + 1), 1 / math.sqrt(num_rows + 1)


@pytest.mark.parametrize("sampler", [sc.NUTS(), sc.HMC(), sc.MALA()], ids=["NUTS", "HMC", "MALA"])
def test_trajectories_on_a_skewed_posterior(sampler):
    """Adapted on the logarithm, where the posterior is skewed; mean and variance of a gamma law."""
    x, exact = exponential(3)
    run = sc.sample(
        GAMMA, x, jnp.array(20.0), sampler=sampler, estimator=sc.Full(), num_samples=400, num_burnin=50,
        num_chains=64, seed=SEED, chain_method="vmap", progress=False,
    )  # fmt: skip
    draws = np.asarray(run.draws, np.float64)
    assert abs(laws.z_score(draws.mean(axis=1), exact.mean())) < 5
    assert abs(laws.z_score(((draws - exact.mean()) ** 2).mean(axis=1), exact.var())) < 5
    assert 0.4 < run.stats["acceptance_rate"].mean() < 0.99
    assert run.stats["n_steps"].mean() < 30


def test_gradients_of_nuts_are_those_at_its_draws():
    """They come from BlackJAX in other coordinates."""
    x, exact_mean, _ = normal()
    factor = 0.1 * np.tri(3, dtype=np.float32)
    run = sc.sample(
        NORMAL, x, jnp.zeros(3), sampler=sc.NUTS(0.5, factor=factor), estimator=sc.Full(), num_samples=20,
        keep_gradients=True, progress=False, seed=SEED,
    )  # fmt: skip
    exact = -(len(x) + 1) * (np.asarray(run.draws[0], np.float64) - exact_mean)
    np.testing.assert_allclose(run.gradients[0], exact, rtol=1e-3, atol=1e-2)
    # what is not said for an exact sampler: four chains, after a burn-in
    assert (len(run.draws), run.configuration["num_burnin"]) == (4, 100)


@pytest.mark.rotates(3, "resumed runs")
def test_nuts_is_resumed(tmp_path, changed):
    changed(RUNNING, second_chunk=20)

    def stop(report):
        if report.step >= 12:
            report.stop()

    problem = (helpers.MODEL, helpers.make_data(), helpers.make_params())
    options = {"num_samples": 400, "num_burnin": 5, "seed": SEED, "progress": False, "num_chains": 2}
    whole = sc.sample(*problem, **options)
    assert whole.configuration["sampler"]["name"] == "NUTS"
    part = sc.sample(*problem, **options, store=tmp_path / "run", callbacks=[stop])
    assert part.status == "stopped"
    again = sc.resume(tmp_path / "run", *problem[:2], progress=False)
    helpers.assert_equal(jax.tree.map(np.asarray, again.draws), whole.draws)
    assert sc.load(tmp_path / "run").certificate == again.certificate
    assert again.certificate is not None


def test_what_nuts_refuses(tmp_path):
    x = normal()[0]
    sc.data.write(tmp_path / "rows", x)
    random = sc.Model(lambda mu, x, key: -0.5 * jnp.sum((x - mu) ** 2))
    for arguments, words in (
        ((NORMAL, x, jnp.zeros(3), sc.Minibatch(10)), "exact gradients"),
        ((NORMAL, str(tmp_path / "rows"), jnp.zeros(3), sc.Full()), "in the memory"),
        ((random, x, jnp.zeros(3), sc.Full()), "random"),
    ):
        with pytest.raises(InvalidValueError, match=words):
            sc.sample(*arguments[:3], sampler=sc.NUTS(), estimator=arguments[3], progress=False)


@pytest.mark.parametrize("step", [1e-3, 2e-2])
def test_certificate_of_a_gaussian_is_exact(step):
    """The scores of a Gaussian lie on a line, so that bias and Monte Carlo error of the draws are known to rounding."""
    x, mean, sd = normal()
    run = sc.sample(
        NORMAL, x, jnp.asarray(mean, jnp.float32), sampler=sc.SGLD(step), estimator=sc.Minibatch(20), seed=SEED,
        num_samples=2_000, num_chains=4, progress=False,
    )  # fmt: skip
    found = sc.analysis.certify(run)
    draws = np.asarray(run.draws, np.float64).reshape(-1, 3)
    biggest_sd = np.abs(draws.std(axis=0) / sd - 1).max()
    if found.mean_error is None:  # the step is short and few draws are effective: said instead
        assert found.troubles
        return
    assert found.sd_error == pytest.approx(biggest_sd, abs=2e-3)
    # in units of the standard deviation of the draws
    assert found.mean_error == pytest.approx(np.abs((draws.mean(axis=0) - mean) / draws.std(axis=0)).max(), abs=2e-3)
    chance = 3 / math.sqrt(found.measures["ess"])
    assert found.ok == (biggest_sd < 0.1 + chance), found.words


def test_laplace_of_a_gaussian():
    """All weights are equal, and the evidence is known."""
    x, mean, sd = normal()
    fit = sc.laplace(NORMAL, x, jnp.full(3, 5.0), seed=SEED)
    np.testing.assert_allclose(fit.mode, mean, atol=1e-4)
    np.testing.assert_allclose(fit.covariance, sd**2 * np.eye(3), atol=1e-4 * sd**2)
    assert fit.ess == pytest.approx(1_000, rel=1e-3)
    wide = x.astype(np.float64)
    at_mean = -0.5 * np.sum((wide - mean) ** 2) - 0.5 * np.sum(mean**2)
    assert fit.log_evidence == pytest.approx(at_mean + 1.5 * math.log(2 * math.pi * sd**2), abs=1e-2)


def test_laplace_of_a_skewed_posterior():
    """Weighted averages are those of the gamma law; the Gaussian alone has another mean."""
    x, exact = exponential(5)
    fit = sc.laplace(GAMMA, x, jnp.array(1.0), num_samples=20_000, seed=SEED)
    values = np.asarray(fit.draws, np.float64)
    error = math.sqrt(np.sum(fit.weights**2 * (values - exact.mean()) ** 2))
    assert abs(fit.weights @ values - exact.mean()) < 5 * error
    assert abs(values.mean() - exact.mean()) > 5 * exact.std() / math.sqrt(20_000)
    assert fit.k_hat < 0.7
    summary = fit.summary(digits=None)
    np.testing.assert_allclose(summary[["5%", "95%"]].to_numpy()[0], exact.ppf([0.05, 0.95]), rtol=0.1)
    assert fit.resample(50).shape == (50,)


def test_laplace_without_a_mode():
    with pytest.raises(InvalidValueError, match=r"mode|flat"):
        sc.laplace(sc.Model(lambda p, x: -0.5 * (x - p[0]) ** 2), np.ones(10, np.float32), jnp.zeros(2))


def test_several_modes_are_named():
    """y ~ N(θ², 1): the sign of θ is unknown. Chains jump between both sides, and the run says so."""
    y = np.random.default_rng([SEED, 8]).normal(4.0, 1.0, 20).astype(np.float32)
    model = sc.Model(lambda theta, y: -0.5 * (y - theta**2) ** 2, lambda theta: -0.005 * theta**2)
    run = sc.sample(model, y, jnp.array(1.0), num_samples=250, seed=SEED, progress=False)
    assert len(run.preparation["modes"]) == 2
    assert run.preparation["modes"][0]["mass"] == pytest.approx(0.5, abs=0.02)
    assert run.certificate.ok and "at least 2 modes" in str(run.certificate)
    assert np.all(np.abs((np.asarray(run.draws) < 0).mean(axis=1) - 0.5) < 0.25)  # 5 sd of 100 independent draws


def test_one_mode_is_not_called_two():
    x, y = np.random.default_rng([SEED, 9]).normal(size=(2, 200)).astype(np.float32)
    model = sc.Model(
        lambda p, r: -jax.nn.softplus(-jnp.sign(r["y"]) * (p[0] + p[1] * r["x"])), lambda p: -0.5 * jnp.sum(p**2)
    )
    problem = setup.compose(model, {"x": x, "y": y}, sc.SGLD(1.0), sc.Full(), 0)
    mode = jnp.zeros(2)
    assert set_up.several_modes(model, problem.table, mode, mode, jax.random.key(0)) == []


def test_chains_start_apart(monkeypatch):
    """Without a sampler: around the mode, 1.5 posterior standard deviations in each direction."""
    begun = []

    def spy(problem, start, plan, devices=None):
        begun.append(start.places)
        return make_chains(problem, start, plan, devices)

    make_chains = request.make_chains
    monkeypatch.setattr(request, "make_chains", spy)
    x, mean, sd = normal(40_000, 6)
    run = sc.sample(NORMAL, x, jnp.zeros(6), num_samples=4, num_chains=200, seed=SEED, progress=False)
    assert run.configuration["sampler"]["name"] == "Preconditioned"
    squares = np.sum(((np.asarray(begun[0], np.float64) - mean) / sd / 1.5) ** 2)
    assert 1e-6 < stats.chi2(1_200).cdf(squares) < 1 - 1e-6
