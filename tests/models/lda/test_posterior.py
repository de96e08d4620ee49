"""Chains of topic models have the exact posterior, where it can be enumerated."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.special

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")

from scirocco.models.lda.chain import TopicChain
from scirocco.models.lda.corpus import as_corpus
from scirocco.models.lda.estimator import LDA

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


@pytest.fixture(scope="module")
def exact():
    return exact_products()


def check(chain, exact, num_draws, block):
    """Batch means against the exact mean, |z| < 5 for each of the pairs of words."""
    chain.advance(50)
    sums = []
    for _ in range(num_draws // block):
        part = np.zeros((WORDS, WORDS))
        for _ in range(block):
            chain.advance(1)
            omega = chain.draw().astype(np.float64)
            part += omega.T @ omega
        sums.append(part / block)
    means, errors = np.mean(sums, axis=0), np.std(sums, axis=0, ddof=1) / np.sqrt(len(sums))
    assert np.max(np.abs(means - exact) / errors) < 5.0
    assert np.max(errors / exact) < 0.1  # there is something to see


@pytest.mark.parametrize("batch_size", [1, 4, 6])
def test_remembered_topics_are_an_exact_gibbs_sampler(batch_size, exact, seed):
    """Whatever the batches: nothing is left of their noise."""
    corpus = as_corpus(DOCUMENTS)
    lda = LDA(TOPICS, alpha=ALPHA, beta=BETA, batch_size=batch_size, first_sweeps=1, num_threads=1)
    check(TopicChain(corpus, lda._settings(corpus), seed, batch_size), exact, 6_000, 100)


def test_scir_on_all_documents_is_exact(exact, seed):
    """Counts of the last of many sweeps are a draw of z given the topics, and a CIR step keeps their law given z."""
    corpus = as_corpus(DOCUMENTS)
    settings = {"alpha": ALPHA, "beta": BETA, "batch_size": 6, "num_threads": 1, "memory": "none"}
    lda = LDA(TOPICS, sweeps=20, burn_in=19, step_size=2.0, **settings)
    check(TopicChain(corpus, lda._settings(corpus), seed, 9), exact, 5_000, 100)


@pytest.mark.parametrize(
    "options", [{}, {"memory": "none"}, {"sampler": "scir_cv"}, {"sampler": "sgrld", "step_size": 0.01}]
)
def test_a_chain_goes_on_bit_for_bit(options):
    rng = np.random.default_rng(0)
    corpus = as_corpus(rng.poisson(0.4, (60, 30)))
    lda = LDA(3, batch_size=20, num_threads=1, **options)
    settings = lda._settings(corpus)
    whole, first, second = (TopicChain(corpus, settings, 1, 0) for _ in range(3))
    whole.advance(9)
    first.advance(4)
    second.restore(first.state())
    second.advance(5)
    np.testing.assert_array_equal(whole.draw(), second.draw())


def test_threads_change_nothing():
    rng = np.random.default_rng(0)
    corpus = as_corpus(rng.poisson(0.4, (300, 200)))
    draws = []
    for threads in (1, 2):
        lda = LDA(8, batch_size=100, num_threads=threads)
        chain = TopicChain(corpus, lda._settings(corpus), 1, 0)
        chain.advance(6)
        draws.append(chain.draw())
    np.testing.assert_array_equal(*draws)
