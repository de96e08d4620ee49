"""A corpus so small that the posterior of its topics can be enumerated."""

from __future__ import annotations

import itertools

import numpy as np
import scipy.special

DOCUMENTS = np.array(
    [[2, 1, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 2, 0, 1], [0, 0, 0, 0, 1], [1, 0, 0, 0, 1]]
)
ALPHA, BETA, TOPICS, WORDS = 0.4, 0.3, 2, 5


def exact_products():
    """E[Σ_k ω_kw ω_kv] under the posterior: does not change when topics swap names. By summing over all z."""
    tokens = [(d, w) for d, row in enumerate(DOCUMENTS) for w, n in enumerate(row) for _ in range(n)]
    document, word = np.array(tokens).T
    total, weights = np.zeros((WORDS, WORDS)), 0.0
    for z in itertools.product(range(TOPICS), repeat=len(tokens)):
        z = np.array(z)
        in_topics, in_documents = np.zeros((TOPICS, WORDS)), np.zeros((len(DOCUMENTS), TOPICS))
        np.add.at(in_topics, (z, word), 1)
        np.add.at(in_documents, (document, z), 1)
        a, b = in_topics + BETA, in_documents + ALPHA
        log = scipy.special.gammaln(a).sum() - scipy.special.gammaln(a.sum(axis=1)).sum()
        weight = np.exp(log + scipy.special.gammaln(b).sum())
        sums = a.sum(axis=1)
        second = np.einsum("kw,kv->kwv", a, a) + np.einsum("kw,wv->kwv", a, np.eye(WORDS))
        total += weight * np.sum(second / (sums * (sums + 1))[:, None, None], axis=0)
        weights += weight
    return total / weights
