"""Step sizes that no one has given: by hand, and on corpora that are unlike each other."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")

from scirocco.samplers import schedules
from scirocco_latent.lda import LDA, DocumentStream, prediction
from scirocco_latent.lda.corpus import as_corpus
from scirocco_latent.lda.langevin import METHODS
from scirocco_latent.lda.results import all_rows
from scirocco_latent.lda.stochastic_chain import StepLengths

pytestmark = pytest.mark.compile


def documents(rng, topics, num_documents, length=60):
    """A corpus of the model itself."""
    words = rng.dirichlet(np.full(len(topics), 0.1), num_documents) @ topics
    return rng.multinomial(length, words / words.sum(axis=1, keepdims=True))


def apart(num_words, num_topics):
    """Topics with nine tenths of their tokens in words of their own: how far apart they are is not left to chance."""
    own = np.arange(num_words) * num_topics // num_words == np.arange(num_topics)[:, None]
    return 0.9 * own / own.sum(axis=1, keepdims=True) + 0.1 / num_words


def unigram(train, held):
    """Perplexity of the hidden words under the frequencies of words."""
    _, hidden = prediction.split(all_rows(as_corpus(held)))
    frequency = (train.sum(axis=0) + 1.0) / (train.sum() + train.shape[1])
    return np.exp(-np.average(np.log(frequency[hidden[1]]), weights=hidden[2]))


@pytest.mark.parametrize("sampler", METHODS)
def test_topics_are_found_without_a_step_size(sampler, seed):
    X = documents(np.random.default_rng([seed, 1]), apart(50, 4), 300)
    model = LDA(4, sampler=sampler, beta=0.2, batch_size=50, sweeps=8, seed=seed)
    model.fit(X[100:], num_epochs=30, progress=False)
    assert np.isfinite(model.topics(draws=True)).all()
    assert model.perplexity(X[:100]) < 0.8 * unigram(X[100:], X[:100])


CORPORA = {
    # documents, words, topics, tokens a document, concentration of words in topics; batch
    "few": ((100, 50, 2, 160, 0.1), 100),
    "many words": ((40, 3000, 2, 100, 0.01), 10),
    "many topics": ((100, 50, 100, 20, 0.1), 20),
    "short": ((300, 50, 5, 1, 0.1), 50),
    "one word a topic": ((200, 50, 3, 100, 0.001), 1),
}


@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize("sampler", METHODS)
def test_nothing_overflows(corpus, sampler, seed):
    (num_documents, num_words, num_topics, length, concentration), batch_size = CORPORA[corpus]
    rng = np.random.default_rng([seed, 2])
    topics = rng.dirichlet(np.full(num_words, concentration), num_topics)
    X = documents(rng, topics, num_documents, length)
    model = LDA(num_topics, sampler=sampler, sweeps=4, batch_size=batch_size, num_burnin=0.0, seed=seed)
    draws = model.fit(X, num_steps=40, progress=False).topics(draws=True)
    assert np.isfinite(draws).all() and (draws >= 0).all()
    np.testing.assert_allclose(draws.sum(axis=-1), 1.0, rtol=1e-4)
    words = X.sum(axis=0) / X.sum()
    assert draws.mean(axis=(0, 1))[words > 0.2].min(initial=1.0) > 1e-3  # no frequent word was thrown out


def test_steps_by_hand():
    """Two batches of a corpus of 100 documents, K = 2, V = 5."""
    first, second = np.array([[6.0, 2.0], [0.0, 4.0]]), np.array([[1.0, 1.0], [5.0, 1.0]])
    h = 1.2**-0.4  # of step 1
    tokens, largest = (12 / 4 + 8 / 2) / 2 * 100, (6 / 4 + 5 / 2) / 2 * 100
    mean = h / (1 + tokens / 10)
    wanted = dict.fromkeys(("sgrld", "sgld"), mean) | dict.fromkeys(("sgrhmc", "sghmc"), np.sqrt(2 * mean))
    wanted |= dict.fromkeys(("sgld_natural", "sgld_cv"), 4 * h / (10 + largest))
    assert set(wanted) == set(METHODS)
    for sampler, value in wanted.items():
        steps = StepLengths(sampler, None, 5, 2)
        steps.time(0, first, 4, 100)
        assert steps.time(1, second, 2, 100) == pytest.approx(value, rel=1e-5)
    given = StepLengths("sgld", schedules.polynomial(0.5, 1.0, 1.0), 5, 2)
    assert given.time(1, second, 2, 100) == 0.25 and not given.state()


@pytest.mark.rotates(2)
@pytest.mark.parametrize("sampler", METHODS)
def test_streams_have_them_too(sampler, seed):
    """A stream does not say how many tokens it has, nor `partial_fit` at first how many documents there will be."""
    X = documents(np.random.default_rng([seed, 3]), apart(30, 3), 200)
    model = LDA(3, sampler=sampler, beta=0.2, batch_size=50, sweeps=4, seed=seed)
    texts = [[str(word) for word in np.repeat(np.arange(30), row)] for row in X]
    streamed = model.fit(DocumentStream(lambda: iter(texts), [str(n) for n in range(30)]), num_steps=60, progress=False)
    online = LDA(3, sampler=sampler, beta=0.2, batch_size=50, sweeps=4, seed=seed)
    for _ in range(15):
        online.partial_fit(X, total_documents=1_000)
    for fitted in (streamed, online):
        assert fitted.perplexity(X) < 0.95 * unigram(X, X)
    batches, tokens, _ = online._online[0].engine.steps.seen
    assert batches == 60 and tokens / batches == pytest.approx(60, rel=1e-5)  # in every document
