"""PSGLD's Γ: with decay 0 the metric is a function of the position, and only with Γ the law is right."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import scirocco as sc

pytestmark = pytest.mark.law

PRECISION = 4.0
CHAINS = 256


def draws(seed: int, correction: bool) -> np.ndarray:
    """Well separated draws of θ ~ N(0, 1/4) under G(θ) = 1/(δ + |λθ|)."""
    model = sc.Model(lambda theta, row: -0.5 * PRECISION * (theta - row) ** 2)
    run = sc.sample(
        model,
        np.zeros(1, np.float32),
        jnp.array(0.1),
        sampler=sc.PSGLD(2e-3, decay=0.0, damping=1.0, correction=correction),
        estimator=sc.Full(),
        num_samples=8,
        num_burnin=4_000,
        thin=2_000,
        num_chains=CHAINS,
        seed=seed,
        chain_method="vmap",
        progress=False,
    )
    return run.draws.reshape(-1)


def p_value(sample: np.ndarray) -> float:
    return scipy.stats.kstest(sample, scipy.stats.norm(scale=PRECISION**-0.5).cdf).pvalue


def test_with_gamma_the_law_is_right_and_without_it_wrong(seed):
    assert p_value(draws(seed, correction=True)) > 1e-6
    assert p_value(draws(seed, correction=False)) < 1e-6
