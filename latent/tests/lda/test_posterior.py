"""Chains of topic models have the exact posterior, where it can be enumerated."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")

from enumerated_topics import ALPHA, BETA, DOCUMENTS, TOPICS, WORDS, exact_products
from scirocco_latent.lda.chain import TopicChain
from scirocco_latent.lda.corpus import as_corpus
from scirocco_latent.lda.estimator import LDA, size_of
from scirocco_latent.lda.langevin import METHODS
from scirocco_latent.lda.settings import resolve
from scirocco_latent.lda.sizes import FITTING
from scirocco_latent.lda.word_groups import num_groups

pytestmark = pytest.mark.compile


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


def begin(seed, **options):
    """A chain on the six documents."""
    corpus = as_corpus(DOCUMENTS)
    lda = LDA(TOPICS, alpha=ALPHA, beta=BETA, num_threads=1, **options)
    return TopicChain(corpus, resolve(lda.get_params(), size_of(corpus)), seed, 0)


@pytest.mark.parametrize("sampler", ["scir", "gibbs"])
@pytest.mark.parametrize(("batch_size", "num_draws"), [(1, 6_000), (6, 3_000)])
def test_chains_with_memory_are_exact_gibbs_samplers(sampler, batch_size, num_draws, exact, seed):
    """Whatever the batches: nothing is left of their noise, nor of old proposals."""
    check(begin(seed, sampler=sampler, batch_size=batch_size, growth=None), exact, num_draws, num_draws // 60)


KERNELS = [(0, 1), (0, 3), (512, 3)]
"""Most topics of which all weights are computed, and groups of words."""


def with_kernel(changed, most_dense, groups):
    changed(FITTING, dense_topics=most_dense, most_groups=groups, shared_tokens=1, visit_tokens=0.1)
    assert num_groups(12, 6) == groups


@pytest.mark.parametrize(("most_dense", "groups"), KERNELS)
def test_lists_of_topics_and_groups_of_words_are_exact(most_dense, groups, exact, seed, changed):
    with_kernel(changed, most_dense, groups)
    check(begin(seed, batch_size=6, growth=None), exact, 3_000, 50)


@pytest.mark.rotates(2)
@pytest.mark.parametrize("sampler", ["scir", "gibbs"])
def test_growth_leaves_the_posterior_as_it_is(sampler, exact, seed):
    """Chains that began with two documents and three topics; batches of four of the six documents."""
    chain = begin(seed, sampler=sampler, batch_size=4, growth=[(2, 3), (5, 2)], spare_topics=1)
    assert chain.engine.table.shape == (WORDS, TOPICS + 1)
    check(chain, exact, 3_600, 60)
    assert chain.engine.table.shape == (WORDS, TOPICS)
    assert chain.engine.table.sum() == DOCUMENTS.sum()


def test_the_table_counts_the_remembered_topics(seed):
    """Also while it grows and after topics were given up."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.3, (50, 40))
    lda = LDA(4, sampler="gibbs", batch_size=7, growth=[(10, 3), (30, 2)], spare_topics=3)
    corpus = as_corpus(X)
    chain = TopicChain(corpus, resolve(lda.get_params(), size_of(corpus)), seed, 0)
    words = np.repeat(np.tile(np.arange(40), 50), X.ravel())
    for _ in range(25):
        chain.advance(1)
        seen = chain.engine.memory >= 0
        counted = np.zeros_like(chain.engine.table)
        np.add.at(counted, (words[seen], chain.engine.memory[seen]), 1)
        np.testing.assert_array_equal(counted, chain.engine.table)
        np.testing.assert_array_equal(counted.sum(axis=0), chain.engine.totals)
        assert chain.mean().shape == (4, 40) and chain.draw().shape == (4, 40)
    assert seen.all()


def test_scir_on_all_documents_is_exact(exact, seed):
    """Counts of the last of many sweeps are a draw of z given the topics, and a CIR step keeps their law given z."""
    options = {"memory": "none", "sweeps": 20, "burn_in": 19, "step_size": 2.0}
    check(begin(seed, batch_size=6, **options), exact, 2_500, 50)


GOES_ON = [
    {},
    {"growth": None},
    {"sampler": "gibbs"},
    {"sampler": "gibbs", "learn_alpha": True, "learn_beta": True, "growth": [(30, 2)]},
    {"memory": "none"},
    {"sampler": "scir_cv"},
    *({"sampler": name} for name in METHODS),
]


@pytest.mark.parametrize("options", GOES_ON, ids=lambda options: "-".join(map(str, options.values())) or "default")
def test_a_chain_goes_on_bit_for_bit(options):
    rng = np.random.default_rng(0)
    corpus = as_corpus(rng.poisson(0.4, (60, 30)))
    lda = LDA(3, batch_size=20, num_threads=1, sweeps=2, **options)
    settings = resolve(lda.get_params(), size_of(corpus))
    for cut in (4, 40):  # while it grows, and later
        whole, first, second = (TopicChain(corpus, settings, 1, 0) for _ in range(3))
        whole.advance(cut + 5)
        first.advance(cut)
        second.restore(first.state())
        first.advance(1)
        second.advance(5)
        np.testing.assert_array_equal(whole.draw(), second.draw())
        assert whole.passes == second.passes


def test_threads_change_nothing():
    rng = np.random.default_rng(0)
    corpus = as_corpus(rng.poisson(0.4, (300, 200)))
    draws = []
    for threads in (1, 2):
        lda = LDA(8, batch_size=100, growth=[(100, 2)], num_threads=threads)
        chain = TopicChain(corpus, resolve(lda.get_params(), size_of(corpus)), 1, 0)
        chain.advance(10)
        draws.append(chain.draw())
    np.testing.assert_array_equal(*draws)


@pytest.mark.parametrize(("most_dense", "groups"), KERNELS)
def test_groups_of_words_go_on_bit_for_bit_in_any_number_of_threads(most_dense, groups, changed):
    with_kernel(changed, most_dense, groups)
    corpus = as_corpus(np.random.default_rng(0).poisson(0.4, (60, 30)))
    chains = []
    for threads in (1, 2):
        lda = LDA(20, batch_size=40, num_threads=threads, sweeps=2, growth=[(30, 2)])
        chain = TopicChain(corpus, resolve(lda.get_params(), size_of(corpus)), 1, 0)
        chain.advance(9)
        later = TopicChain(corpus, resolve(lda.get_params(), size_of(corpus)), 1, 0)
        later.restore(chain.state())
        chain.advance(4)
        later.advance(4)
        chains += [chain, later]
    for chain in chains[1:]:
        np.testing.assert_array_equal(chain.engine.memory, chains[0].engine.memory)
        np.testing.assert_array_equal(chain.draw(), chains[0].draw())
