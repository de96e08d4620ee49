"""Chains on small corpora start from the most probable of several short runs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")

from scirocco_latent.lda import LDA, as_corpus
from scirocco_latent.lda.chain import TopicChain
from scirocco_latent.lda.document_batches import START_GROWTH, START_PASSES
from scirocco_latent.lda.estimator import size_of
from scirocco_latent.lda.settings import resolve

pytestmark = pytest.mark.compile


def test_the_most_probable_start(seed):
    """The best by the joint probability; its changes are those of the collapsed Gibbs sampler."""
    corpus = as_corpus(np.random.default_rng(seed).poisson(0.6, (40, 12)))
    settings = resolve(LDA(3).get_params(), size_of(corpus))
    assert settings.starts == 8 and settings.growth == ()
    chain = TopicChain(corpus, settings, seed, 0)
    chain.begin()
    short = dataclasses.replace(settings, starts=1, growth=((40, START_GROWTH),), batch_size=40)
    trials = [TopicChain(corpus, short, chain.seed, number) for number in range(8)]
    for trial in trials:
        trial.advance(START_PASSES)
    best = max(trials, key=lambda trial: trial.engine.log_joint()).engine
    np.testing.assert_array_equal(chain.engine.memory, best.memory)
    engine, before = chain.engine, chain.engine.log_joint()
    word, document = int(corpus.take_csr(np.array([0]))[1][0]), slice(*engine.begins[:2])
    old = int(engine.memory[0])
    new = (old + 1) % 3
    inside = np.bincount(engine.memory[document], minlength=3)

    def weight(k, own):
        words = (engine.beta + engine.table[word, k] - own) / (engine.beta * 12 + engine.totals[k] - own)
        return (engine.alpha[k] + inside[k] - own) * words

    expected = np.log(weight(new, 0) / weight(old, 1))
    engine.memory[0] = new
    engine.table[word, [old, new]] += [-1, 1]
    engine.totals[[old, new]] += [-1, 1]
    assert engine.log_joint() - before == pytest.approx(expected, abs=1e-6)
