"""Chains that share their batches: the law of each chain, their exact covariance, and diagnostics by groups."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from law import laws
from scirocco import diagnostics

pytestmark = pytest.mark.law

EPS, GROUP, GROUPS, DRAWS, THIN = 0.004, 8, 64, 200, 2


@functools.cache
def runs_of(seed):
    """Chains of SGLD on a Gaussian, in groups; a run of the same chains with batches of their own; and their laws."""
    x, mean, precision = laws.gaussian_problem(seed)
    runs = [
        sc.sample(
            laws.MODEL, x, jnp.asarray(mean), sampler=sc.SGLD(EPS),
            estimator=sc.Minibatch(laws.BATCH, "with_replacement"), num_samples=DRAWS, num_burnin=200, thin=THIN,
            num_chains=GROUP * GROUPS, seed=seed, batches=batches, chain_method="vmap", progress=False,
        )
        for batches in (GROUP, "own")
    ]  # fmt: skip
    noise = EPS**2 * laws.gradient_noise(x, "with_replacement")
    keeps = 1 - EPS * precision
    return runs, mean, keeps, noise / (1 - keeps**2), (noise + 2 * EPS) / (1 - keeps**2)


@pytest.fixture
def grouped(seed):
    return runs_of(seed)


def z_score(values, expected):
    """Of the mean of independent values."""
    return (values.mean() - expected) / (values.std(ddof=1) / np.sqrt(len(values)))


def test_the_first_chain_of_a_group_is_that_of_a_run_with_own_batches(grouped):
    (run, own), *_ = grouped
    np.testing.assert_allclose(run.draws[::GROUP], own.draws[::GROUP], rtol=1e-5, atol=1e-6)
    assert np.abs(run.draws[1::GROUP] - own.draws[1::GROUP]).max() > 0.01


def test_every_chain_has_its_own_law_and_groups_have_the_exact_covariance(grouped):
    (run, _), mean, keeps, covariance, variance = grouped
    x = (np.asarray(run.draws, float) - mean).reshape(GROUPS, GROUP, DRAWS)
    assert abs(z_score(x.mean(axis=(1, 2)), 0.0)) < 5
    for member in (0, GROUP - 1):  # of the first, and of one that follows it
        assert abs(z_score((x[:, member] ** 2).mean(axis=1), variance)) < 5
    pairs = x.sum(axis=1) ** 2 - (x**2).sum(axis=1)
    assert abs(z_score(pairs.mean(axis=1) / (GROUP * (GROUP - 1)), covariance)) < 5
    later = (x[:, 0, 1:] * x[:, 1, :-1]).mean(axis=1)
    assert abs(z_score(later, covariance * keeps**THIN)) < 5
    across = x[0::2, 0] * x[1::2, 1]
    assert abs(z_score(across.mean(axis=1), 0.0)) < 5


def test_errors_and_effective_sizes_are_those_of_groups(grouped):
    (run, _), _, keeps, covariance, variance = grouped
    rho = keeps**THIN
    lags = np.arange(1, DRAWS)
    times = 1 + 2 * np.sum((1 - lags / DRAWS) * rho**lags)
    of_group = (variance + (GROUP - 1) * covariance) / GROUP
    error = np.sqrt(of_group * times / (DRAWS * GROUPS))
    assert covariance > 0.3 * variance  # otherwise nothing is tested
    found = diagnostics.mcse(run.draws, group_size=GROUP)
    # the relative error of a variance from 64 groups is √(2/64); half of it for its root
    assert abs(found / error - 1) < 5 * np.sqrt(1 / (2 * GROUPS))
    assert diagnostics.mcse(run.draws) < 0.65 * error  # as if all chains were independent
    sizes = [diagnostics.ess(run.draws, method, GROUP) for method in ("mean", "bulk", "identity")]
    np.testing.assert_allclose(np.array(sizes) / (variance / error**2), 1.0, atol=10 * np.sqrt(1 / (2 * GROUPS)))
    summary = run.summary(digits=None)
    assert run.group_size == GROUP
    np.testing.assert_allclose(summary["mcse_mean"].item(), found, rtol=1e-12)
    np.testing.assert_allclose(summary["ess_bulk"].item(), sizes[1], rtol=1e-12)


def test_the_variance_between_chains_is_estimated_without_bias(seed):
    # means of chains with a part that a group has in common: the ordinary estimate is too small by 1/3
    rng = np.random.default_rng([seed, 5])
    groups, size, tries, length = 2, 4, 4000, 4
    common = np.repeat(rng.normal(size=(tries, groups, 1)), size, axis=2)
    x = (common + 0.5 * rng.normal(size=common.shape)).reshape(tries, -1, 1) + np.array([-1.0, 1.0, -1.0, 1.0])
    x = np.repeat(x, 2, axis=1)  # both halves of a chain have the same mean: so has the estimate of a group
    halves = x.reshape(tries, groups * size * 2, length)
    within = 4 / 3
    between = (diagnostics.measures.split_rhat(halves, size) ** 2 - (length - 1) / length) * within
    # two half-groups have the same means: their sample variance is that of two groups, times 2/3
    expected = 2 / 3 * (1 + 0.25 / size) + 0.25 * (1 - 1 / size)
    assert abs(z_score(between, expected)) < 5


def test_one_chain_elsewhere_is_seen_by_rhat(seed):
    rng = np.random.default_rng([seed, 6])
    x = rng.normal(size=(32, 500)) + np.repeat(rng.normal(size=(4, 500)), 8, axis=0)
    assert diagnostics.rhat(x, group_size=8) < 1.02
    x[5] += 6.0
    assert diagnostics.rhat(x, group_size=8) > 1.05
