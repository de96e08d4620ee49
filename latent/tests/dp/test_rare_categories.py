"""A category that most batches miss has the mean and the variance that it must have, whatever the sampler."""

from __future__ import annotations

import numpy as np
import pytest

from scirocco.models import DPMixture
from scirocco_latent.dp import Multinomial

pytestmark = pytest.mark.law

pytest.importorskip("numba")

NUM_RARE, ROWS, COMMON, BATCH, PRIOR = 40, 3, 1_080, 60, 0.5
NUM_ROWS = COMMON + NUM_RARE * ROWS
CATEGORIES = np.repeat(np.arange(NUM_RARE + 1), [COMMON, *[ROWS] * NUM_RARE])


def extra_variance(step: float) -> float:
    """What batches add to the variance of SCIR: those of a pass have no row in common, passes are independent.

    θ' = e^(-h) θ + (1 - e^(-h)) â + noise, averaged over the places of a pass.
    """
    num, share = NUM_ROWS // BATCH, ROWS / NUM_ROWS
    own = NUM_ROWS**2 / BATCH * share * (1 - share) * (NUM_ROWS - BATCH) / (NUM_ROWS - 1)
    total, lags = 0.0, np.arange(200 * num)
    weights = -np.expm1(-step) * np.exp(-step * lags)
    for place in range(num):
        passes = (lags + num - 1 - place) // num
        sums, squares = np.bincount(passes, weights), np.bincount(passes, weights**2)
        total += np.sum(squares - (sums**2 - squares) / (num - 1))
    return own * total / num


@pytest.mark.parametrize(
    ("sampler", "step", "refresh"),
    [
        ("scir", 0.5, {}),
        ("scir_cv", 0.05, {"refresh_size": NUM_ROWS, "refresh_every": 5}),
        ("scir_cv", 0.5, {"refresh_size": NUM_ROWS, "refresh_every": 10**9}),
        ("scir_cv", 5.0, {"refresh_size": NUM_ROWS, "refresh_every": 1}),
        ("scir_cv", 0.5, {"refresh_size": 300, "refresh_every": 1}),
        ("scir_cv", 0.1, {"refresh_size": 300, "refresh_every": 500}),
    ],
)
def test_mean_and_variance_of_rare_categories(sampler, step, refresh, seed):
    """One cluster of rows with one event each, so that θ of a category is Gamma(a + its rows) but for the batches."""
    X = np.eye(NUM_RARE + 1, dtype=int)[np.random.default_rng(seed).permutation(CATEGORIES)]
    chain = DPMixture(
        Multinomial(PRIOR),
        sampler=sampler,
        counts="estimated",
        concentration=1e-9,
        batch_size=BATCH,
        step_size=step,
        initial_clusters=1,
        num_threads=1,
        seed=seed,
        **refresh,
    ).chain(X)
    chain.advance(max(60, round(8 / step)))
    theta = np.empty((2_000, NUM_RARE))
    for number in range(len(theta)):
        chain.advance(1)
        theta[number] = chain.parameters[0][1:, 0]
    mean = PRIOR + ROWS
    variance = mean + extra_variance(step)
    for values, expected in ((theta, mean), ((theta - mean) ** 2, variance)):
        means = values.mean(axis=0)
        error = means.std(ddof=1) / np.sqrt(NUM_RARE)
        assert abs(means.mean() - expected) < 5 * error, (means.mean(), expected, error)
