"""`sc.Blocks`: the sweep has the joint law, exactly where its parts are exact, and the known one where they are not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg, stats

import scirocco as sc

pytestmark = pytest.mark.law

CHAINS = 1_200
RHO = 0.8
PRECISION = np.linalg.inv(np.array([[1.0, RHO], [RHO, 1.0]]))


@pytest.fixture(autouse=True, scope="module")
def _hurry(quick_compiler):
    """Programs of a few hundred steps."""


def _last(model, data, params, sampler, estimator, seed, burnin):
    run = sc.sample(
        model,
        data,
        params,
        sampler=sampler,
        estimator=estimator,
        num_samples=1,
        num_burnin=burnin,
        num_chains=CHAINS,
        chain_method="vmap",
        seed=seed,
        progress=False,
    )
    return {name: np.asarray(values[:, 0], np.float64) for name, values in run.draws.items()}


def _joint(params, x):
    """The whole density of a correlated pair, and N rows that push x towards their mean."""
    return -0.5 * (x - params["x"]) ** 2


def _prior(params):
    x, y = params["x"], params["y"]
    return -0.5 * (PRECISION[0, 0] * x * x + 2 * PRECISION[0, 1] * x * y + PRECISION[1, 1] * y * y)


def _draw_y(key, params):
    return RHO * params["x"] + np.sqrt(1 - RHO**2) * jax.random.normal(key)


def _stationary(eps, num_rows, gradient_variance):
    """Covariance of x' = x + ε ĝ + √2ε ξ, y' = ρ x' + √(1-ρ²) η: a linear recursion."""
    curvature = PRECISION[0, 0] + num_rows
    move = np.array([[1 - eps * curvature, -eps * PRECISION[0, 1]], [0.0, 0.0]])
    move[1] = RHO * move[0]
    noise_x = 2 * eps + eps**2 * gradient_variance
    noise = noise_x * np.outer([1, RHO], [1, RHO]) + np.diag([0.0, 1 - RHO**2])
    return linalg.solve_discrete_lyapunov(move, noise)


@pytest.mark.parametrize("estimator", ["full", "minibatch"])
def test_langevin_and_gibbs_have_the_joint_law_of_their_recursion(seed, estimator):
    rows = np.random.default_rng([seed, 1]).normal(0.0, 2.0, 12)
    rows -= rows.mean()  # the posterior mean is then 0
    eps, size = 0.02, 4
    variance = 0.0 if estimator == "full" else len(rows) ** 2 / size * rows.var()
    chosen = sc.Full() if estimator == "full" else sc.Minibatch(size, sampling="with_replacement")
    draws = _last(
        sc.Model(_joint, _prior),
        jnp.asarray(rows, jnp.float32),
        {"x": jnp.array(0.0), "y": jnp.array(0.0)},
        sc.Blocks({"x": sc.SGLD(eps), "y": sc.Gibbs(_draw_y)}),
        chosen,
        seed,
        250,
    )
    pair = np.stack([draws["x"], draws["y"]])
    exact = _stationary(eps, len(rows), variance)
    whitened = linalg.solve_triangular(np.linalg.cholesky(exact), pair, lower=True)
    # each product has mean 0 or 1; fourth moments of a Gaussian give its spread (batch noise is nearly Gaussian here)
    products = np.stack([whitened[0] ** 2 - 1, whitened[1] ** 2 - 1, whitened[0] * whitened[1]])
    z = products.mean(axis=1) / (products.std(axis=1) / np.sqrt(CHAINS))
    assert np.all(np.abs(z) < 5), (z, np.cov(pair), exact)
    if estimator == "full":  # a small step: near the posterior itself
        posterior = np.linalg.inv(PRECISION + np.diag([len(rows), 0.0]))
        assert np.allclose(exact, posterior, rtol=0.2)


def _draw_mean(key, params, total):
    spread = 1.0 / jnp.sqrt(total["count"] * params["precision"] + 1.0)
    return total["sum"] * params["precision"] * spread**2 + spread * jax.random.normal(key)


def _draw_precision(key, params, total):
    return jax.random.gamma(key, 2.0 + 0.5 * total["count"]) / (1.0 + 0.5 * total["squares"])


def test_two_gibbs_blocks_with_statistics_draw_from_the_posterior(seed):
    """x ~ N(μ, 1/τ), μ ~ N(0, 1), τ ~ Gamma(2, 1): against quadrature over τ."""
    rows = np.random.default_rng([seed, 2]).normal(1.0, 0.7, 8).astype(np.float32)
    model = sc.BlockModel(
        sc.Model(lambda params, x: 0.0 * x, transforms={"mean": None, "precision": sc.transforms.positive}),
        mean=sc.Statistics(lambda params, x: {"sum": x, "count": jnp.ones(())}),
        precision=sc.Statistics(lambda params, x: {"squares": (x - params["mean"]) ** 2, "count": jnp.ones(())}),
    )
    sampler = sc.Blocks({"mean": sc.Gibbs(_draw_mean), "precision": sc.Gibbs(_draw_precision)})
    draws = _last(model, rows, {"mean": jnp.array(0.0), "precision": jnp.array(1.0)}, sampler, sc.Full(), seed, 60)
    grid = np.linspace(1e-3, 20, 20_000)
    n, mean = len(rows), rows.mean(dtype=np.float64)
    # μ integrated out: x̄ | τ ~ N(0, 1 + 1/(nτ)), and the spread about x̄ on its own
    log_density = (
        stats.gamma.logpdf(grid, 2.0)
        + 0.5 * (n - 1) * np.log(grid)
        - 0.5 * grid * np.sum((rows - mean) ** 2)
        + stats.norm.logpdf(mean, scale=np.sqrt(1 + 1 / (n * grid)))
    )
    cdf = np.cumsum(np.exp(log_density - log_density.max()))
    ranks = np.interp(draws["precision"], grid, cdf / cdf[-1])
    assert stats.kstest(ranks, "uniform").pvalue > 1e-6
    spread = 1 / np.sqrt(1 + n * draws["precision"])
    standard = (draws["mean"] - n * mean * draws["precision"] * spread**2) / spread
    assert stats.kstest(standard, "norm").pvalue > 1e-6  # μ given τ, across chains: the joint law
    for moment in (standard, standard**2):  # and independent of τ: an update that saw an old μ would not leave it so
        assert abs(np.corrcoef(moment, np.log(draws["precision"]))[0, 1]) < 5 / np.sqrt(CHAINS)


def _logits(params, x):
    return jnp.log(params["weights"]) - 0.5 * (x - params["shift"] - jnp.array([-1.0, 1.0])) ** 2


def _label(params, x, key):
    return jax.nn.one_hot(jax.random.categorical(key, _logits(params, x)), 2)


def test_weights_by_scir_and_a_mean_by_langevin(seed):
    """A mixture whose weights and common shift are unknown: against two-dimensional quadrature."""
    rng = np.random.default_rng([seed, 3])
    rows = (np.where(rng.random(10) < 0.3, -1.0, 1.0) + rng.normal(size=10)).astype(np.float32)
    joint = sc.Model(lambda p, x: jax.nn.logsumexp(_logits(p, x)), lambda p: -0.5 * p["shift"] ** 2)
    model = sc.BlockModel(joint, weights=sc.CountModel(2.0, _label))
    draws = _last(
        model,
        rows,
        {"shift": jnp.array(0.0), "weights": jnp.array([0.5, 0.5])},
        sc.Blocks({"weights": sc.SCIR(1.0), "shift": sc.SGLD(0.006)}),
        sc.Full(),
        seed,
        250,
    )
    w, m = np.linspace(1e-3, 1 - 1e-3, 400), np.linspace(-5, 5, 400)
    density = w * (1 - w) * np.exp(-0.5 * m[:, None] ** 2)
    for x in rows.astype(float):
        density = density * (
            w * np.exp(-0.5 * (x - m[:, None] + 1) ** 2) + (1 - w) * np.exp(-0.5 * (x - m[:, None] - 1) ** 2)
        )
    for values, grid, axis in ((draws["weights"][:, 0], w, 0), (draws["shift"], m, 1)):
        marginal = density.sum(axis=axis)
        marginal = marginal / marginal.sum()
        mean, second = marginal @ grid, marginal @ grid**2
        z = (values.mean() - mean) / (values.std() / np.sqrt(CHAINS))
        assert abs(z) < 5
        spread = values.std() / np.sqrt(second - mean**2)
        assert abs(spread - 1) < 5 / np.sqrt(2 * CHAINS) + 0.02  # ε = 0.006 adds about 1 % to the shift's
