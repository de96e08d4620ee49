"""The JAX kernels of `scirocco.diffusions` have exactly the laws they name."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from law.kernel_laws import (
    NON_CENTRALITIES,
    NUM_DRAWS,
    SHAPES,
    ks_bound,
    ks_distance,
    log_gamma_cdf,
    log_transition_cdf,
)
from scirocco import diffusions

pytestmark = pytest.mark.law

CELLS = len(SHAPES) * len(NON_CENTRALITIES)


@partial(jax.jit, static_argnames=("count", "log"))
def transitions(key, theta, shape, time, rate, count, log=True):
    start = jnp.full(count, theta, jnp.float32)
    return diffusions.cir(key, jnp.log(start) if log else start, shape, time, rate, log=log)


@pytest.mark.parametrize("nc", NON_CENTRALITIES)
def test_transitions_are_non_central_chi_squares(nc, seed):
    """θ' = s/2 · χ²(2a, nc), at 10⁶ draws for every shape; with time log 2, s = ½ and nc = 2θ."""
    bound = ks_bound(NUM_DRAWS, CELLS)
    for number, shape in enumerate(SHAPES):
        key = jax.random.key(1_000 * seed + number)
        log_draws = transitions(key, nc / 2, shape, np.log(2.0), 1.0, NUM_DRAWS) + np.log(2.0)
        distance = ks_distance(log_draws, lambda x, a=shape: log_transition_cdf(x, a, nc))
        assert distance < bound, (shape, nc)


@pytest.mark.parametrize("rate", [-3.0, -1e-4, 0.0, 1e-4, 0.4, 30.0])
def test_any_rate(rate, seed):
    """Mean θe^(-bt) + as and variance 2θe^(-bt)s + as², for growing, driftless and falling processes, and the law."""
    theta, time = 2.0, 0.3
    s = time if rate == 0 else -np.expm1(-rate * time) / rate
    for number, shape in enumerate((0.2, 1.7)):
        key = jax.random.key(100 * seed + number)
        draws = np.asarray(transitions(key, theta, shape, time, rate, 200_000, log=False), np.float64)
        survived = theta * np.exp(-rate * time)
        mean, variance = survived + shape * s, 2 * survived * s + shape * s**2
        assert abs(draws.mean() - mean) < 5 * np.sqrt(variance / len(draws))
        exact = partial(log_transition_cdf, shape=shape, nc=2 * survived / s)
        assert ks_distance(np.log(draws / s), exact) < ks_bound(len(draws), 12)


def test_two_steps_are_one_of_the_whole_time(seed):
    """The Markov property, which lazy updates rest on."""
    theta, shape, time = 1.5, 0.3, 0.8
    half = transitions(jax.random.key(2 * seed), theta, shape, time / 2, 1.0, 500_000, log=False)
    draws = diffusions.cir(jax.random.key(2 * seed + 1), half, shape, time / 2)
    s = -np.expm1(-time)
    exact = partial(log_transition_cdf, shape=shape, nc=2 * theta * np.exp(-time) / s)
    assert ks_distance(np.log(np.asarray(draws) / s), exact, least=-80.0) < ks_bound(500_000, 1)


def test_gammas_and_poissons(seed):
    shapes, means = (1e-3, 0.3, 0.999, 1.0, 2.5, 40.0, 1e5), (0.0, 0.02, 3.0, 9.99, 10.0, 14.0, 300.0, 5e5)
    bound = ks_bound(400_000, len(shapes) + len(means))
    for number, shape in enumerate(shapes):
        draws = diffusions.gamma(jax.random.key(50 * seed + number), jnp.full(400_000, shape), log=True)
        assert ks_distance(draws, partial(log_gamma_cdf, shape=shape)) < bound, shape
    for number, mean in enumerate(means):
        draws = np.asarray(diffusions.poisson(jax.random.key(90 * seed + number), jnp.full(400_000, mean)))
        values, times = np.unique(draws, return_counts=True)
        gaps = np.cumsum(times) / draws.size - scipy.stats.poisson.cdf(values, mean)
        assert np.max(np.abs(gaps)) < bound, mean


def test_entries_are_independent(seed):
    """Of arrays large enough to be packed: neighbours, and entries 128 apart, are uncorrelated in value and size."""
    g = np.asarray(diffusions.cir(jax.random.key(seed), jnp.full(400_000, 0.4), 0.6, 0.5), np.float64)
    levels = scipy.stats.rankdata(g) / len(g) - 0.5
    for lag in (1, 2, 127, 128, 129, 4_096):
        for values in (levels, levels**2 - np.mean(levels**2)):
            correlation = np.mean(values[:-lag] * values[lag:]) / np.mean(values**2)
            assert abs(correlation) < 5.5 / np.sqrt(len(g) - lag)


def test_ornstein_uhlenbeck_and_its_exponential(seed):
    x = diffusions.ornstein_uhlenbeck(jax.random.key(seed), jnp.full(400_000, 3.0), -1.0, 0.7, 2.0, 0.25)
    law = scipy.stats.norm(-1.0 + 4.0 * np.exp(-1.4), np.sqrt(0.25 * -np.expm1(-2.8)))
    assert ks_distance(x, law.cdf) < ks_bound(400_000, 2)
    y = diffusions.log_normal(jax.random.key(seed + 1), jnp.full(400_000, np.exp(3.0)), -1.0, 0.7, 2.0, 0.25)
    assert ks_distance(np.log(np.asarray(y)), law.cdf) < ks_bound(400_000, 2)


def test_generalised_gamma_and_beta_keep_their_laws(seed):
    """Started in the stationary law, one step of any length leaves it as it is."""
    count, keys = 400_000, jax.random.split(jax.random.key(seed), 4)
    a, b, p, t = 0.6, 0.25, 2.0, 0.4
    start = (diffusions.gamma(keys[0], jnp.full(count, a)) / b) ** (1 / p)
    x = diffusions.generalised_gamma(keys[1], start, a, t, p, b)
    law = scipy.stats.gengamma(a, p, scale=b ** (-1 / p))
    assert ks_distance(x, law.cdf) < ks_bound(count, 2)
    shapes = jnp.array([0.3, 2.0])
    pair = diffusions.beta_pair(keys[3], diffusions.gamma(keys[2], jnp.tile(shapes, (count, 1))), shapes, t)
    ratio = np.asarray(pair[:, 0] / pair.sum(axis=1))
    assert ks_distance(ratio, scipy.stats.beta(0.3, 2.0).cdf) < ks_bound(count, 2)


@pytest.mark.parametrize("log", [False, True])
def test_many_short_steps_do_not_drift(log, seed):
    """In single precision: 20,000 steps of 5e-5, in all one relaxation time, started in the stationary law."""
    shape, time, count = 8e6, 5e-5, 500

    @jax.jit
    def chain(start, key):
        def step(number, x):
            return diffusions.cir(jax.random.fold_in(key, number), x, shape, time, log=log)

        return jax.lax.fori_loop(0, 20_000, step, start)

    start = np.random.default_rng(seed).gamma(shape, size=count)
    end = np.asarray(
        chain(jnp.asarray(np.log(start) if log else start, jnp.float32), jax.random.key(seed)), np.float64
    )
    z = ((np.exp(end) if log else end) - shape) / np.sqrt(shape)
    assert abs(z.mean()) < 5 / np.sqrt(count)
    assert abs(z.std() - 1) < 0.25
