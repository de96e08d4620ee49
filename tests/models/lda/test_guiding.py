"""Seed words and labels: the exact posterior, where it can be enumerated; names, stores, errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.special import gammaln

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")

from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models import LDA
from scirocco.models.lda import as_corpus, guiding
from scirocco.models.lda.chain import TopicChain
from scirocco.models.lda.estimator import _size

pytestmark = pytest.mark.compile

DOCUMENTS = np.array([[2, 1, 0], [0, 1, 2], [1, 0, 1], [0, 1, 1]])
WORDS = ("ball", "game", "vote")
LABELS = ["vote", None, ["sport", "vote"], "sport"]
SEEDS = {"sport": ["ball", "game"]}
ALPHA, BETA, TOPICS, WEIGHT = np.array([0.5, 0.3, 0.4]), 0.4, 3, 2


def exact_topics(allowed, prior):
    """E[ω | documents] by summing over all topics of all tokens."""
    tokens = [(d, w) for d, row in enumerate(DOCUMENTS) for w, n in enumerate(row) for _ in range(n)]
    document, word = np.array(tokens).T
    total, weights = np.zeros((TOPICS, len(WORDS))), 0.0
    for z in itertools.product(*(allowed[d] for d in document)):
        inside, of_words = np.zeros((len(DOCUMENTS), TOPICS)), np.zeros((TOPICS, len(WORDS)))
        np.add.at(inside, (document, z), 1)
        np.add.at(of_words, (z, word), 1)
        a = of_words + BETA + prior
        log = gammaln(a).sum() - gammaln(a.sum(axis=1)).sum() + gammaln(inside + ALPHA).sum()
        total += np.exp(log) * a / a.sum(axis=1, keepdims=True)
        weights += np.exp(log)
    return total / weights


@pytest.mark.parametrize(("seeds", "labels"), [(SEEDS, None), (SEEDS, LABELS)])
def test_guided_chains_have_the_exact_posterior(seeds, labels, seed):
    """Topics: sport (with seed words), vote (if there are labels), and free ones; two documents in a batch."""
    corpus = as_corpus(DOCUMENTS, WORDS)
    guide = guiding.guide(seeds, WEIGHT, labels, corpus, TOPICS)
    lda = LDA(TOPICS, alpha=ALPHA, beta=BETA, batch_size=2, growth=[(2, 3)], spare_topics=0, num_threads=1)
    every = range(TOPICS)
    allowed = [every] * 4 if labels is None else [(1, 2), every, every, (0, 2)]
    prior = np.zeros((TOPICS, len(WORDS)))
    prior[0, :2] = WEIGHT
    chain = TopicChain(corpus, lda._settings(_size(corpus)), seed, 0, guide=guide)
    chain.advance(60)
    means = np.array(
        [np.mean([chain.advance(2) or chain.mean() for _ in range(50)], axis=0) for _ in range(60)]
    )
    z = (means.mean(axis=0) - exact_topics(allowed, prior)) / (means.std(axis=0, ddof=1) / np.sqrt(60))
    assert np.abs(z).max() < 5
    assert chain.engine.table.sum() == DOCUMENTS.sum() + 2 * WEIGHT
    if labels is not None:
        of_first = chain.engine.memory[: chain.engine.begins[1]]
        assert set(of_first.tolist()) <= {1, 2}


def test_named_topics_are_stored_and_resumed(seed, tmp_path):
    """Names come first, in the order of seed words and labels; a model that is loaded continues with them."""
    rng = np.random.default_rng(seed)
    X = np.concatenate([rng.poisson([3, 3, 0], (30, 3)), rng.poisson([0, 1, 4], (30, 3))])
    labels = ["sport"] * 30 + [None] * 20 + ["news"] * 10
    lda = LDA(3, seed_words={"sport": ["ball"]}, seed_weight=20, seed=seed)
    lda.fit(X, vocabulary=WORDS, labels=labels, num_epochs=30, store=tmp_path / "run", progress=False)
    assert lda.topic_names_ == ("sport", "news") and lda.labels(1)[:2] == ["sport: ball", "news: vote"]
    loaded = LDA.load(tmp_path / "run")
    assert loaded.labels() == lda.labels() and loaded.seed_words == {"sport": ["ball"]}
    again = LDA(3, seed_words={"sport": ["ball"]}, seed_weight=20, num_burnin=0, seed=seed)
    more = {"vocabulary": WORDS, "num_epochs": 5, "progress": False}
    again.fit(X, labels=labels, continue_from=tmp_path / "run", **more)
    assert again.run_.configuration["guide"]["counts"] == [[0, 0, 20]]
    loaded.partial_fit(X[:5])
    assert loaded.topic_names_ == ("sport", "news")


@pytest.mark.parametrize(
    ("options", "labels", "error", "words"),
    [
        ({"seed_words": {"sport": ["balll"]}}, None, InvalidValueError, "did you mean 'ball'"),
        ({"seed_words": {"sport": "ball"}}, None, InvalidTypeError, "list of words"),
        ({"seed_words": ["ball"]}, None, InvalidTypeError, "must be a dict"),
        (
            {"seed_words": {"sport": ["ball"]}, "sampler": "scir_cv"},
            None,
            InvalidValueError,
            'sampler="gibbs"',
        ),
        ({"seed_words": {"sport": ["ball"]}, "learn_beta": True}, None, InvalidValueError, "learn_beta"),
        ({}, ["a", "b"], InvalidValueError, "4 documents, got 2"),
        ({}, ["a", "b", "c", "d"], InvalidValueError, "at least so many topics"),
        ({}, "a", InvalidTypeError, "entry for each document"),
        ({}, [None, "", float("nan"), []], InvalidValueError, "no document has a label"),
    ],
)
def test_bad_guides(options, labels, error, words):
    with pytest.raises(error, match=words):
        LDA(3, **options).fit(DOCUMENTS, vocabulary=WORDS, labels=labels, progress=False)
