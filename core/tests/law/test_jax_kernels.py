"""The JAX kernels of `scirocco.diffusions` have exactly the laws they name."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
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


_cir = jax.jit(diffusions.cir, static_argnames="log")


def transitions(number, theta, shape, time, rate=1.0, log=False):
    """Of `NUM_DRAWS` processes, always: two programs, with logarithms and without, serve all tests."""
    start = np.broadcast_to(np.asarray(theta, np.float32), NUM_DRAWS)
    with np.errstate(divide="ignore"):
        start = np.log(start) if log else start
    return np.asarray(_cir(jax.random.key(number), start, *np.float32([shape, time, rate]), log=log))


@pytest.mark.rotates(2)
@pytest.mark.parametrize("nc", NON_CENTRALITIES)
def test_transitions_are_non_central_chi_squares(nc, seed):
    """θ' = s/2 · χ²(2a, nc), at 250,000 draws for every shape; with time log 2, s = ½ and nc = 2θ."""
    bound = ks_bound(NUM_DRAWS, CELLS)
    for number, shape in enumerate(SHAPES):
        log_draws = transitions(1_000 * seed + number, nc / 2, shape, np.log(2.0), log=True) + np.log(2.0)
        distance = ks_distance(log_draws, lambda x, a=shape: log_transition_cdf(x, a, nc))
        assert distance < bound, (shape, nc)


@pytest.mark.rotates(2)
@pytest.mark.parametrize("rate", [-3.0, -1e-4, 0.0, 1e-4, 0.4, 30.0])
def test_any_rate(rate, seed):
    """Mean θe^(-bt) + as and variance 2θe^(-bt)s + as², for growing, driftless and falling processes, and the law."""
    theta, time = 2.0, 0.3
    s = time if rate == 0 else -np.expm1(-rate * time) / rate
    for number, shape in enumerate((0.2, 1.7)):
        draws = transitions(100 * seed + number, theta, shape, time, rate).astype(np.float64)
        survived = theta * np.exp(-rate * time)
        mean, variance = survived + shape * s, 2 * survived * s + shape * s**2
        assert abs(draws.mean() - mean) < 5 * np.sqrt(variance / len(draws))
        exact = partial(log_transition_cdf, shape=shape, nc=2 * survived / s)
        assert ks_distance(np.log(draws / s), exact) < ks_bound(len(draws), 12)


def test_two_steps_are_one_of_the_whole_time(seed):
    """The Markov property, which lazy updates rest on."""
    theta, shape, time = 1.5, 0.3, 0.8
    half = transitions(2 * seed, theta, shape, time / 2)
    draws = transitions(2 * seed + 1, half, shape, time / 2)
    s = -np.expm1(-time)
    exact = partial(log_transition_cdf, shape=shape, nc=2 * theta * np.exp(-time) / s)
    assert ks_distance(np.log(draws / s), exact, least=-80.0) < ks_bound(NUM_DRAWS, 1)


def test_gammas_and_poissons(seed):
    shapes, means = (1e-3, 0.3, 0.999, 1.0, 2.5, 40.0, 1e5), (0.0, 0.02, 3.0, 9.99, 10.0, 14.0, 300.0, 5e5)
    bound = ks_bound(NUM_DRAWS, len(shapes) + len(means))
    for number, shape in enumerate(shapes):
        draws = diffusions.gamma(jax.random.key(50 * seed + number), jnp.full(NUM_DRAWS, shape), log=True)
        assert ks_distance(draws, partial(log_gamma_cdf, shape=shape)) < bound, shape
    for number, mean in enumerate(means):
        draws = np.asarray(diffusions.poisson(jax.random.key(90 * seed + number), jnp.full(NUM_DRAWS, mean)))
        values, times = np.unique(draws, return_counts=True)
        gaps = np.cumsum(times) / draws.size - scipy.stats.poisson.cdf(values, mean)
        assert np.max(np.abs(gaps)) < bound, mean


def test_entries_are_independent(seed):
    """Of arrays large enough to be packed: neighbours, and entries 128 apart, are uncorrelated in value and size."""
    g = transitions(seed, 0.4, 0.6, 0.5).astype(np.float64)
    levels = scipy.stats.rankdata(g) / len(g) - 0.5
    for lag in (1, 2, 127, 128, 129, 4_096):
        for values in (levels, levels**2 - np.mean(levels**2)):
            correlation = np.mean(values[:-lag] * values[lag:]) / np.mean(values**2)
            assert abs(correlation) < 5.5 / np.sqrt(len(g) - lag)


def test_ornstein_uhlenbeck_and_its_exponential(seed):
    count = NUM_DRAWS
    x = diffusions.ornstein_uhlenbeck(jax.random.key(seed), jnp.full(count, 3.0), -1.0, 0.7, 2.0, 0.25)
    law = scipy.stats.norm(-1.0 + 4.0 * np.exp(-1.4), np.sqrt(0.25 * -np.expm1(-2.8)))
    assert ks_distance(x, law.cdf) < ks_bound(count, 2)
    y = diffusions.log_normal(jax.random.key(seed + 1), jnp.full(count, np.exp(3.0)), -1.0, 0.7, 2.0, 0.25)
    assert ks_distance(np.log(np.asarray(y)), law.cdf) < ks_bound(count, 2)


def test_generalised_gamma_and_beta_keep_their_laws(seed):
    """Started in the stationary law, one step of any length leaves it as it is."""
    count, rng = NUM_DRAWS, np.random.default_rng(seed)
    a, b, p, t = 0.6, 0.25, 2.0, 0.4
    start = (rng.gamma(a, size=count) / b) ** (1 / p)
    x = diffusions.generalised_gamma(jax.random.key(seed), start.astype(np.float32), a, t, p, b)
    law = scipy.stats.gengamma(a, p, scale=b ** (-1 / p))
    assert ks_distance(x, law.cdf) < ks_bound(count, 2)
    shapes = np.float32([0.3, 2.0])
    pair = rng.gamma(shapes, size=(count, 2)).astype(np.float32)
    pair = diffusions.beta_pair(jax.random.key(seed + 1), pair, shapes, t)
    ratio = np.asarray(pair[:, 0] / pair.sum(axis=1))
    assert ks_distance(ratio, scipy.stats.beta(0.3, 2.0).cdf) < ks_bound(count, 2)


def test_inverse_gamma_has_the_law_of_its_transition(seed):
    """1/x' is a scaled non-central χ² variable."""
    a, b, t, x = 2.5, 3.0, 0.2, 0.7
    found = diffusions.inverse_gamma(jax.random.key(seed), jnp.full(NUM_DRAWS, x), a, t, b)
    scale = -np.expm1(-b * t) / b
    law = scipy.stats.ncx2(2 * a, 2 * np.exp(-b * t) / (x * scale))
    assert ks_distance(2 / (scale * np.asarray(found, np.float64)), law.cdf) < ks_bound(NUM_DRAWS, 1)


def test_wright_fisher_has_the_eigenfunctions_of_its_generator(seed):
    """E P_n(y') = P_n(y) e^(-n(n+θ-1)t/2) for Jacobi polynomials of y, a component or the sum of two."""
    a, x, time, count = np.array([0.4, 1.0, 0.7]), np.float32([0.2, 0.7, 0.1]), 0.1, 50_000
    start = jnp.broadcast_to(jnp.asarray(x), (count, 3))
    found = np.asarray(diffusions.wright_fisher(jax.random.key(seed), start, a, time), np.float64)
    for members in ([0], [1], [2], [0, 1]):
        own = a[members].sum()
        for n in range(1, 5):

            def polynomial(at, n=n, own=own):
                return scipy.special.eval_jacobi(n, a.sum() - own - 1, own - 1, 2 * at - 1)

            values = polynomial(found[:, members].sum(axis=1))
            expected = polynomial(x[members].sum(dtype=float)) * np.exp(-n * (n + a.sum() - 1) * time / 2)
            assert abs(values.mean() - expected) < 5 * values.std() / np.sqrt(count), (members, n)
    with pytest.raises(ValueError, match=r"at least 0\.002"):
        diffusions.wright_fisher(jax.random.key(0), start, a, 1e-4)


@pytest.mark.rotates(2)
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
    end = np.asarray(chain(jnp.asarray(np.log(start) if log else start, jnp.float32), jax.random.key(seed)), np.float64)
    z = ((np.exp(end) if log else end) - shape) / np.sqrt(shape)
    assert abs(z.mean()) < 5 / np.sqrt(count)
    assert abs(z.std() - 1) < 0.25
