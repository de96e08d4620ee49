"""Posteriors on simplexes, of correlation matrices and of hierarchies, sampled with transforms."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import scirocco as sc
from law.kernel_laws import ks_bound, ks_distance
from scirocco.analysis import ks_dirichlet

pytestmark = pytest.mark.law

CHAINS = 2_000
COUNTS = np.array([9, 4, 2])
PRIOR = np.array([1.0, 0.8, 2.0])


def last_draws(model, data, start, step_size, num_steps, seed):
    """The last draw of many chains of BAOAB with exact gradients: independent, and right to O(ε²)."""
    return sc.sample(
        model,
        data,
        start,
        sampler=sc.BAOAB(step_size, friction=2.0),
        estimator=sc.Full(),
        num_samples=1,
        num_burnin=num_steps,
        num_chains=CHAINS,
        chain_method="vmap",
        seed=seed,
        progress=False,
    ).draws


@pytest.mark.rotates(3, "laws of transforms")
def test_probabilities_of_categories_are_dirichlet(seed):
    model = sc.Model(
        lambda p, k: jnp.log(p[k]), lambda p: jnp.sum((PRIOR - 1) * jnp.log(p)), transforms=sc.transforms.simplex
    )
    labels = np.repeat(np.arange(3), COUNTS)
    draws = last_draws(model, labels, np.full(3, 1 / 3, np.float32), 0.1, 200, seed)
    distances = ks_dirichlet(draws, PRIOR + COUNTS, each=True)
    assert np.all(distances < ks_bound(CHAINS, 2)), distances
    assert ks_dirichlet(draws, PRIOR + COUNTS + 1.0) > ks_bound(CHAINS, 1)


@pytest.mark.rotates(3, "laws of transforms")
def test_correlations_of_an_lkj_prior_are_beta(seed):
    """2 Beta(b, b) - 1 with b = η - 1 + d/2, for every pair of rows."""
    eta, size = 1.5, 3
    powers = size - np.arange(2, size + 1) + 2 * eta - 2
    model = sc.Model(
        lambda p, x: 0.0 * x,
        lambda p: jnp.sum(powers * jnp.log(jnp.diagonal(p)[1:])),
        transforms=sc.transforms.cholesky_correlation,
    )
    factor = last_draws(model, np.zeros(1, np.float32), np.eye(size, dtype=np.float32), 0.2, 100, seed)
    factor = np.asarray(factor, np.float64)[:, 0]
    correlation = factor @ factor.transpose(0, 2, 1)
    law = scipy.stats.beta(eta - 1 + size / 2, eta - 1 + size / 2, loc=-1, scale=2)
    for i, j in ((1, 0), (2, 0), (2, 1)):
        assert ks_distance(correlation[:, i, j], law.cdf) < ks_bound(CHAINS, 3), (i, j)


@pytest.mark.rotates(3, "laws of transforms")
def test_a_hierarchy_moved_in_its_non_centred_parameters_has_the_law_of_the_hierarchy(seed):
    """log scale ~ N(0, 1), group | scale ~ N(1, scale²): a funnel, whose groups over the scale are normal."""

    def log_prior(p):
        scale = p["scale"]
        group = -0.5 * jnp.sum(((p["group"] - 1.0) / scale) ** 2) - p["group"].size * jnp.log(scale)
        return group - 0.5 * jnp.log(scale) ** 2 - jnp.log(scale)

    model = sc.Model(
        lambda p, x: 0.0 * x,
        log_prior,
        transforms={"scale": sc.transforms.positive, "group": sc.transforms.affine(1.0, lambda p: p["scale"])},
    )
    start = {"scale": np.float32(1.0), "group": np.ones(3, np.float32)}
    draws = last_draws(model, np.zeros(1, np.float32), start, 0.2, 100, seed)
    scale, group = (np.asarray(draws[name], np.float64)[:, 0] for name in ("scale", "group"))
    normal = scipy.stats.norm.cdf
    assert ks_distance(np.log(scale), normal) < ks_bound(CHAINS, 4)
    for k in range(3):
        assert ks_distance((group[:, k] - 1.0) / scale, normal) < ks_bound(CHAINS, 4)
    assert abs(np.corrcoef(np.log(scale), np.log(np.abs(group[:, 0] - 1.0)))[0, 1]) > 0.4


@pytest.mark.rotates(3, "laws of transforms")
def test_ordered_scales_have_the_law_of_sorted_ones(seed):
    """The order statistics of three exponential numbers: gaps are independent, with rates 3, 2, 1."""
    model = sc.Model(lambda p, x: 0.0 * x, lambda p: -jnp.sum(p), transforms=sc.transforms.positive_ordered)
    start = np.array([0.3, 0.9, 1.8], np.float32)
    draws = last_draws(model, np.zeros(1, np.float32), start, 0.1, 200, seed)
    gaps = np.diff(np.asarray(draws, np.float64)[:, 0], axis=1, prepend=0.0)
    for gap, rate in zip(gaps.T, (3, 2, 1), strict=True):
        assert ks_distance(gap, scipy.stats.expon(scale=1 / rate).cdf) < ks_bound(CHAINS, 3), rate
