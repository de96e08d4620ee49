"""Credible intervals of word weights cover the truth as often as they say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")

from scirocco.models import LDA
from scirocco_latent.lda import topic_distance

pytestmark = pytest.mark.law

TOPICS, WORDS, DOCUMENTS, LENGTH, BETA, ALPHA = 5, 60, 400, 60, 0.1, 0.2


def covered(seed):
    """For one corpus and the defaults: shares of true weights in 90 % intervals, of all and of ten words a topic."""
    rng = np.random.default_rng([seed, 17])
    truth = rng.dirichlet(np.full(WORDS, BETA), TOPICS)
    shares = rng.dirichlet(np.full(TOPICS, ALPHA), DOCUMENTS)
    X = np.stack([rng.multinomial(LENGTH, share @ truth) for share in shares])
    model = LDA(TOPICS, alpha=ALPHA, beta=BETA, seed=seed).fit(X, vocabulary=WORDS, progress=False)
    mine, true = linear_sum_assignment(topic_distance(model.components_, truth))
    partner = dict(zip(mine, true, strict=True))
    inside = [
        [low <= truth[partner[k], word] <= high for word, _, low, high in row]
        for k, row in enumerate(model.top_words(WORDS, interval=0.9))
    ]
    return np.mean(inside), np.mean(np.array(inside)[:, :10])


def test_intervals_cover_the_truth(seed):
    """400 documents of 60 words, nothing said: long enough, without a bad mode, with the rule for few draws."""
    every, first = np.mean([covered(10 * seed + corpus) for corpus in range(4)], axis=0)
    assert 0.86 <= every <= 0.94
    assert 0.80 <= first <= 0.98


def test_intervals_of_documents_cover_the_truth(seed):
    """Proportions of new documents, topics known well."""
    rng = np.random.default_rng([seed, 19])
    truth = np.kron(np.eye(TOPICS), np.full(8, 1 / 8)) * 0.7 + 0.3 / (8 * TOPICS)
    shares = rng.dirichlet(np.full(TOPICS, 1.0), 700)
    X = np.stack([rng.multinomial(LENGTH, share @ truth) for share in shares])
    model = LDA(TOPICS, alpha=1.0, beta=1.0, seed=seed).fit(X[300:], num_epochs=100, progress=False)
    mine, true = linear_sum_assignment(topic_distance(model.components_, truth))
    _, low, high = model.transform(X[:300], interval=0.9)
    wanted = shares[:300][:, true]
    assert 0.86 <= np.mean((low[:, mine] <= wanted) & (wanted <= high[:, mine])) <= 0.94
