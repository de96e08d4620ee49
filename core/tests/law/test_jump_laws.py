"""Jumps between modes and swaps between temperatures leave the posterior as it is, and visit all modes."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from law import laws
from scirocco.diagnostics.measures import ess
from scirocco.samplers import Gradient, Jumps

pytestmark = pytest.mark.law

DRAWS, Z = 200_000, 5.0
SHARES = np.array([0.5, 0.3, 0.2])
CENTRES = np.array([[0.0, 0.0], [6.0, 1.0], [-2.0, 7.0]])
FACTORS = np.array([[[1.0, 0.0], [0.5, 0.7]], [[0.4, 0.0], [-0.3, 2.0]], [[2.0, 0.0], [0.0, 0.5]]])


def log_density(theta):
    """Of a mixture of three Gaussians of different shapes."""
    scaled = jnp.stack([jnp.linalg.solve(L, theta - c) for L, c in zip(FACTORS, CENTRES, strict=True)])
    volumes = np.log(FACTORS[:, 0, 0] * FACTORS[:, 1, 1])
    return jax.scipy.special.logsumexp(np.log(SHARES) - volumes - 0.5 * jnp.sum(scaled**2, axis=1))


def exact_draws(seed):
    random = np.random.default_rng([seed, 21])
    which = random.choice(3, DRAWS, p=SHARES)
    normals = random.standard_normal((DRAWS, 2))
    return (CENTRES[which] + np.einsum("nij,nj->ni", FACTORS[which], normals)).astype(np.float32)


def test_a_jump_leaves_the_law_unchanged_though_modes_are_known_badly(seed):
    jumps = Jumps(
        (CENTRES + np.array([[0.3, -0.2], [0.1, 0.4], [-0.5, 0.1]])).astype(np.float32),
        (FACTORS * np.array([1.3, 0.8, 1.1])[:, None, None]).astype(np.float32),
        np.array([0.0, 1.0, -0.5], np.float32),
    )

    def evaluate(theta):
        return Gradient(jnp.zeros(2), value=log_density(theta))

    begin = exact_draws(seed)
    keys = jax.random.split(jax.random.key(seed), DRAWS)
    end, _ = jax.jit(jax.vmap(lambda x, key: jumps.move(x, evaluate(x), evaluate, key)))(begin, keys)
    end = np.asarray(end, float)
    moved = np.any(end != begin, axis=1)
    assert moved.mean() > 0.2
    cells = np.argmin(np.linalg.norm(end[:, None] - CENTRES, axis=2), axis=1)
    exact = np.argmin(np.linalg.norm(exact_draws(seed + 1_000)[:, None] - CENTRES, axis=2), axis=1)
    for measured, expected in [
        *((cells == k, exact == k) for k in range(3)),
        *zip(end.T, exact_draws(seed + 1_000).T, strict=True),
        *zip((end**2).T, (exact_draws(seed + 1_000) ** 2).T, strict=True),
    ]:
        error = np.sqrt((np.var(measured) + np.var(expected)) / DRAWS)
        assert abs(np.mean(measured) - np.mean(expected)) < Z * error


def two_modes():
    """Thirty rows of .4 N(μ₁, 1) + .6 N(μ₂, 1) with N(0, 3²) priors: rows, model, and the posterior mass of μ₁ < μ₂."""
    random = np.random.default_rng(5)
    y = (np.where(random.random(30) < 0.4, -1.2, 1.2) + random.standard_normal(30)).astype(np.float32)

    def log_likelihood(mu, row):
        return jnp.logaddexp(jnp.log(0.4) - 0.5 * (row - mu[0]) ** 2, jnp.log(0.6) - 0.5 * (row - mu[1]) ** 2)

    def log_prior(mu):
        return -jnp.sum(mu**2) / 18

    grid = np.linspace(-4, 4, 401, dtype=np.float32)
    points = jnp.array(list(itertools.product(grid, grid)))
    values = jax.lax.map(
        lambda mu: jnp.sum(jax.vmap(lambda row: log_likelihood(mu, row))(y)) + log_prior(mu), points, batch_size=4_000
    )
    mass = np.exp(np.asarray(values, float) - float(jnp.max(values)))
    return y, sc.Model(log_likelihood, log_prior), mass[points[:, 0] < points[:, 1]].sum() / mass.sum()


def test_the_plain_call_visits_both_modes_from_the_saddle_between_them(seed):
    y, model, share = two_modes()
    run = sc.sample(model, y, np.zeros(2, np.float32), seed=seed, progress=False)
    modes = run.preparation["modes"]
    assert len(modes) == 2
    below = np.asarray(run.draws[..., 0] < run.draws[..., 1], float)
    error = np.sqrt(share * (1 - share) / ess(below[..., None]))
    assert abs(below.mean() - share) < Z * float(np.max(error))
    assert "2 modes" in str(run.certificate) and run.certificate.trustworthy


def test_replicas_visit_all_of_25_modes_in_a_tenth_of_the_gradients_that_parallel_chains_make(seed):
    centres = 4.0 * np.array(list(itertools.product(range(5), range(5))), np.float32)
    model = sc.Model(
        lambda x, y: 0.0 * y, lambda x: jax.scipy.special.logsumexp(-0.5 * jnp.sum((x - centres) ** 2, axis=1) / 0.2**2)
    )
    inner = sc.HMC(0.5, factor=np.full(2, 0.2, np.float32))

    def modes(sampler, num_samples):
        run = sc.sample(
            model,
            np.zeros(1),
            np.zeros(2),
            sampler=sampler,
            num_samples=num_samples,
            num_chains=4,
            seed=seed,
            progress=False,
        )
        near = np.argmin(np.sum((np.asarray(run.draws)[:, :, None] - centres) ** 2, axis=-1), axis=-1)
        return near, sampler

    near, sampler = modes(sc.ReplicaExchange(inner), 4_000)
    assert len(np.unique(near)) == 25
    shares = np.stack([near == k for k in range(25)], axis=-1).astype(float)
    errors = np.sqrt(0.04 * 0.96 / ess(shares))
    assert np.all(np.abs(shares.mean(axis=(0, 1)) - 0.04) < Z * errors)
    copies = len(sampler.ladder(2))
    assert len(np.unique(modes(inner, 10 * copies * 4_000)[0])) == 1


def test_swaps_by_noisy_energies_leave_the_variance_of_the_coldest_copy(seed):
    """Without the penalty hot places would be handed down too often: by a fifth more variance."""
    x = np.random.default_rng([seed, 22]).normal(1.0, 0.5, laws.NUM_ROWS).astype(np.float32)
    precision, batch, chains = laws.NUM_ROWS + laws.PRIOR_PRECISION, 20, 64
    step = 0.02 / precision
    noise = laws.NUM_ROWS**2 / batch * x.astype(float).var()
    run = sc.sample(
        laws.MODEL,
        x,
        np.float32(1.0),
        sampler=sc.ReplicaExchange(sc.SGLD(step), temperatures=(1, 4)),
        estimator=sc.Minibatch(batch, sampling="with_replacement"),
        num_samples=200,
        num_burnin=500,
        thin=20,
        num_chains=chains,
        chain_method="vmap",
        seed=seed,
        progress=False,
    )
    assert run.stats["swaps"].mean() > 0.1
    exact = laws.sgld_variance(step, precision, noise)
    squares = np.mean((np.asarray(run.draws, float) - x.astype(float).sum() / precision) ** 2, axis=1)
    error = squares.std(ddof=1) / np.sqrt(chains)
    assert abs(squares.mean() - exact) < Z * error + 0.01 * exact  # the hot copy's own discretisation
