"""Logistic regression against the exact posterior: by importance sampling, or Laplace's where N is large."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from law import laws

pytestmark = pytest.mark.law

CHAINS = 8


def logistic_data(seed: int, rows: int, columns: int):
    """Standard normal features, coefficients of size 0.5."""
    rng = np.random.default_rng([seed, 3])
    x = rng.standard_normal((rows, columns)).astype(np.float32)
    beta = 0.5 * rng.standard_normal(columns)
    y = (rng.random(rows) < 1 / (1 + np.exp(-x @ beta))).astype(np.float32)
    return {"x": x, "y": y}


def log_likelihood(beta, datum):
    logit = datum["x"] @ beta
    return datum["y"] * logit - jax.nn.softplus(logit)


def log_prior(beta):
    return -0.5 * jnp.sum(beta**2) / 10.0


MODEL = sc.Model(log_likelihood, log_prior)


def laplace(data):
    """Mode and inverse of the negative Hessian there, in float64."""
    x, y = data["x"].astype(np.float64), data["y"].astype(np.float64)
    beta = np.zeros(x.shape[1])
    for _ in range(8):
        p = 1 / (1 + np.exp(-x @ beta))
        hessian = (x * (p * (1 - p))[:, None]).T @ x + np.eye(len(beta)) / 10.0
        beta = beta + np.linalg.solve(hessian, x.T @ (y - p) - beta / 10.0)
    return beta, np.linalg.inv(hessian)


@pytest.fixture(scope="module")
def exact():
    """Data, and posterior mean and sd by importance sampling from a wider normal law around the mode, in float64."""
    data = logistic_data(0, 2_000, 4)
    x, y = data["x"].astype(np.float64), data["y"].astype(np.float64)
    mode, covariance = laplace(data)
    step = 1.2 * np.random.default_rng(0).standard_normal((8_000, 4))
    beta = mode + step @ np.linalg.cholesky(covariance).T
    logits = beta @ x.T
    log_density = logits @ y - np.logaddexp(0.0, logits).sum(axis=1) - 0.05 * (beta**2).sum(axis=1)
    log_weights = log_density + 0.5 * (step**2).sum(axis=1) / 1.2**2
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    assert 1 / np.sum(weights**2) > 4_000  # independent draws: means are known to 0.016 sd, sds to 1.1 %
    mean = weights @ beta
    return data, mean, np.sqrt(weights @ (beta - mean) ** 2)


@pytest.mark.rotates(3)
@pytest.mark.parametrize(
    "sampler", [sc.SGLD(1e-4), sc.SGHMC(2e-3), sc.SGNHT(2e-3, thermostat="elementwise")], ids=["sgld", "sghmc", "sgnht"]
)
def test_control_variate_samplers_have_the_posterior(exact, seed, sampler):
    """Means within 0.1 posterior sd, sds within 10 %, with small steps: at least five errors of their own."""
    data, mean, sd = exact
    run = sc.sample(
        MODEL,
        data,
        jnp.zeros(4),
        sampler=sampler,
        estimator=sc.ControlVariates(batch_size=200),
        num_samples=5_000,
        num_burnin=2_000,
        thin=4,
        num_chains=CHAINS,
        seed=seed,
        progress=False,
    )
    draws = run.draws.reshape(-1, 4)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 0.1 * sd)
    assert np.all(np.abs(draws.std(axis=0) / sd - 1) < 0.1)


@pytest.mark.rotates(2, "friction")
def test_sghmc_with_defaults_on_the_problem_that_defeats_a_fixed_small_friction(seed):
    """100,000 × 50 logistic regression, SGHMC, plain minibatches: nothing tuned, and the posterior comes out right.

    R's sgmcmc (its issue 1) has no step size that works here with its default friction.
    """
    data = logistic_data(seed, 100_000, 50)
    mode, covariance = laplace(data)
    sd = np.sqrt(np.diag(covariance))
    run = sc.sample(
        MODEL,
        data,
        jnp.zeros(50),
        sampler=sc.SGHMC(),
        estimator=sc.Minibatch(batch_size=500),
        num_samples=1_500,
        num_burnin=8_000,
        thin=10,
        num_chains=4,
        seed=seed,
        progress=False,
    )
    draws = run.draws.reshape(-1, 50)
    bias = (draws.mean(axis=0) - mode) / sd
    # Monte Carlo errors of the 50 means from the spread between the chains, which are independent
    error = run.draws.astype(np.float64).mean(axis=1).std(axis=0, ddof=1) / np.sqrt(4) / sd
    assert np.sqrt(np.mean(error**2)) < 0.2
    assert np.sqrt(np.mean(bias**2)) < 3 * np.sqrt(np.mean(error**2))
    assert abs(np.mean(draws.var(axis=0) / sd**2) - 1) < 0.1


@pytest.mark.rotates(2, "friction")
def test_too_little_friction_is_said_with_the_inflation(seed):
    """The warning's number is the worst inflation, as far as a pilot knows; the chains have the exact one."""
    num_rows, batch = 20_000, 50
    data = logistic_data(seed, num_rows, 3)
    mode, covariance = laplace(data)
    x, y = (data[name].astype(np.float64) for name in ("x", "y"))
    gradients = x * (y - 1 / (1 + np.exp(-x @ mode)))[:, None]
    noise = num_rows**2 / batch * np.cov(gradients.T, bias=True)
    eps, friction = 2e-4, 300.0
    foreseen = eps * np.diagonal(noise) / (2 * friction)
    # the pilot's variance is that of 8 batches
    unsure = 5 * np.max((gradients**2).std(axis=0) / (gradients**2).mean(axis=0)) / np.sqrt(8 * batch)
    with pytest.warns(sc.errors.SciroccoWarning, match="inflated by about") as caught:
        run = sc.sample(
            MODEL,
            data,
            jnp.zeros(3),
            sampler=sc.SGHMC(eps, friction=friction),
            estimator=sc.Minibatch(batch_size=batch, sampling="with_replacement"),
            num_samples=1_500,
            num_burnin=4_000,
            thin=20,
            num_chains=8,
            seed=seed,
            progress=False,
        )
    message = next(str(w.message) for w in caught if "inflated" in str(w.message))
    promised = float(message.split("about ")[1].split(" %")[0]) / 100
    assert promised == pytest.approx(foreseen.max(), rel=unsure, abs=0.005)
    exact = laws.sghmc_variances(eps, friction, np.linalg.inv(covariance), noise)
    assert np.max(exact / np.diagonal(covariance)) > 1.2
    parts = (np.asarray(run.draws, np.float64) - mode).reshape(8 * 5, -1, 3)  # of 6,000 steps, 16 relaxation times
    scores = [laws.z_score((parts[..., j] ** 2).mean(axis=1), exact[j]) for j in range(3)]
    assert np.max(np.abs(scores)) < 5, scores
