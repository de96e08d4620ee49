"""A category that most windows miss has its exact mean and variance under the samplers with exact transitions."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba")

from scirocco_latent.hmm import buffered, priors
from scirocco_latent.hmm.gibbs import StatePrior, layout
from scirocco_latent.hmm.series import read

pytestmark = pytest.mark.law

NUM_RARE, EACH, LENGTH, A = 40, 3, 20_000, 0.5


def variances(places, bounds):
    """Variances of the estimated counts from one group of windows: over all groups, and all places where they begin."""
    squares, offsets = np.zeros(len(places)), range(500)
    for offset in offsets:
        found = layout(bounds, 500, offset, gap=0)
        groups = np.searchsorted(found.pieces[found.groups[:-1], 0], places, side="right")
        counts = np.array([np.sum(row[:, None] == row) for row in groups])  # Σ over groups of squared counts
        squares += found.num_groups * counts
    return squares / len(offsets) - EACH**2


@pytest.mark.parametrize(("sampler", "step"), [("scir", 0.1), ("scir_cv", 0.05), ("scir_cv", 0.5), ("scir_cv", 5.0)])
def test_mean_and_variance_of_rare_categories(sampler, step, seed):
    """One state, so that counts are known: θ of a category is Gamma(a + its count) but for the noise of the windows."""
    rng = np.random.default_rng(seed)
    places = rng.permutation(LENGTH)[: NUM_RARE * EACH].reshape(NUM_RARE, EACH)
    series = np.zeros(LENGTH, int)
    series[places] = np.arange(1, NUM_RARE + 1)[:, None]
    given = read(series)
    emission = priors.resolve("categorical", given, 1, {"concentration": A}, None)
    prior, data = StatePrior(1, 1.0, 0.0, emission), emission.encode(given)
    settings = buffered.settings(sampler, prior, data, given.bounds, 500, step, 1, 1, seed)
    chain = buffered.BufferedChain(prior, data, given.bounds, settings, seed, 0, 1)
    chain.advance(max(60, round(6 / step)))
    theta = np.empty((1_200, NUM_RARE))
    for number in range(len(theta)):
        chain.advance(1)
        theta[number] = chain.parts["probabilities"][0, 1:]
    mean = A + EACH
    excess = np.tanh(step / 2) * variances(places, given.bounds)
    for values, expected in ((theta, mean), ((theta - mean) ** 2 - excess, mean)):
        means = values.mean(axis=0)
        error = means.std(ddof=1) / np.sqrt(NUM_RARE)
        assert abs(means.mean() - expected) < 5 * error, (means.mean(), expected, error)
