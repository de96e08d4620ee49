"""A word that most batches miss has its exact mean and variance, by kernels and on a device."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba")

from scirocco.simplex.theory import variance_of_estimate
from scirocco_latent.lda.array_topics import ControlledArrayTopics
from scirocco_latent.lda.topics import ControlledTopics, LazyTopics

pytestmark = pytest.mark.law

NUM_WORDS, NUM_TOPICS, COUNT, DOCUMENTS, BATCH, BETA = 30, 4, 3, 400, 10, 0.5


@pytest.mark.parametrize(
    ("kind", "step", "size", "every"),
    [
        (LazyTopics, 0.5, 0, 1),
        (ControlledTopics, 0.05, 100, 5),
        (ControlledTopics, 0.5, 100, 1),
        (ControlledTopics, 0.5, 100, 500),
        (ControlledTopics, 5.0, DOCUMENTS, 5),
        (ControlledArrayTopics, 0.5, 100, 1),
    ],
)
def test_mean_and_variance_of_rare_words(kind, step, size, every, seed):
    """Three documents have one token of a word in a topic: θ is Gamma(β + 3), but for the noise of the batches."""
    rng, words = np.random.default_rng(seed), np.arange(NUM_WORDS)
    shape = (NUM_WORDS, NUM_TOPICS)
    own = () if kind is ControlledArrayTopics else (1,)
    topics = kind.begin(NUM_WORDS, NUM_TOPICS, BETA, seed, *own)

    def counted(documents):
        return rng.hypergeometric(COUNT, DOCUMENTS - COUNT, documents, shape).astype(np.float32)

    num, burn_in = 1_000, max(60, round(6 / step))
    theta = np.empty((num, NUM_WORDS * NUM_TOPICS))
    for number in range(-burn_in, num):
        if size and (number + burn_in) % every == 0:
            topics.refer(words, counted(size), DOCUMENTS / size)
        topics.update(words, counted(BATCH), DOCUMENTS / BATCH, step, (seed, number + burn_in))
        if number >= 0:
            now = topics.lazy.read(words) if isinstance(topics, LazyTopics) else topics.theta
            theta[number] = np.asarray(now).ravel()
    mean = BETA + COUNT
    variance = mean + np.tanh(step / 2) * variance_of_estimate(COUNT, DOCUMENTS, BATCH)
    for values, expected in ((theta, mean), ((theta - mean) ** 2, variance)):
        means = values.mean(axis=0)
        error = means.std(ddof=1) / np.sqrt(means.size)
        assert abs(means.mean() - expected) < 5 * error, (means.mean(), expected, error)
