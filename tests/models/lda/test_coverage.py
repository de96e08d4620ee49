"""Credible intervals of word weights cover the truth as often as they say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")

from scirocco.models import LDA
from scirocco.models.lda import topic_distance

pytestmark = pytest.mark.law

TOPICS, WORDS, DOCUMENTS, LENGTH, BETA, ALPHA = 5, 150, 500, 60, 0.1, 0.2


def covered(sampler, seed):
    """For one corpus: the shares of true weights below, inside and above the 90 % intervals of 20 words a topic."""
    rng = np.random.default_rng([seed, 17])
    truth = rng.dirichlet(np.full(WORDS, BETA), TOPICS)
    shares = rng.dirichlet(np.full(TOPICS, ALPHA), DOCUMENTS)
    X = np.stack([rng.multinomial(LENGTH, share @ truth) for share in shares])
    model = LDA(
        TOPICS, alpha=ALPHA, beta=BETA, sampler=sampler, seed=seed, num_samples=150, batch_size=DOCUMENTS
    )
    model.fit(X, vocabulary=WORDS, num_epochs=450, progress=False)
    mine, true = linear_sum_assignment(topic_distance(model.components_, truth))
    partner = dict(zip(mine, true, strict=True))
    return [
        low <= truth[partner[k], word] <= high
        for k, row in enumerate(model.top_words(20, interval=0.9))
        for word, _, low, high in row
    ]


@pytest.mark.rotates(2)
@pytest.mark.parametrize("sampler", ["gibbs", "scir"])
def test_intervals_cover_the_truth(sampler, seed):
    share = np.mean([covered(sampler, 10 * seed + corpus) for corpus in range(3)])
    assert 0.80 <= share <= 0.97


def test_intervals_of_documents_cover_the_truth(seed):
    """Proportions of new documents, topics known well."""
    rng = np.random.default_rng([seed, 19])
    truth = np.kron(np.eye(TOPICS), np.full(8, 1 / 8)) * 0.7 + 0.3 / (8 * TOPICS)
    shares = rng.dirichlet(np.full(TOPICS, 1.0), 700)
    X = np.stack([rng.multinomial(LENGTH, share @ truth) for share in shares])
    model = LDA(TOPICS, alpha=1.0, beta=1.0, sampler="gibbs", seed=seed).fit(
        X[300:], num_epochs=100, progress=False
    )
    mine, true = linear_sum_assignment(topic_distance(model.components_, truth))
    _, low, high = model.transform(X[:300], interval=0.9)
    wanted = shares[:300][:, true]
    assert 0.8 <= np.mean((low[:, mine] <= wanted) & (wanted <= high[:, mine])) <= 0.97
