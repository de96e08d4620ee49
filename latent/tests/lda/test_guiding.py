"""Seed words and labels: the exact posterior, where it can be enumerated; names, stores, errors."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
import scipy.integrate
from scipy.special import gammaln

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")

from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models import LDA
from scirocco_latent.lda import arrays, as_corpus, guiding, hyper
from scirocco_latent.lda.array_chain import DocumentBlocks
from scirocco_latent.lda.chain import TopicChain
from scirocco_latent.lda.estimator import size_of
from scirocco_latent.lda.settings import resolve
from scirocco_latent.lda.sizes import FITTING

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


@pytest.mark.usefixtures("quick_compiler")
@pytest.mark.parametrize(
    ("seeds", "labels", "device"), [(SEEDS, None, "cpu"), (SEEDS, LABELS, "cpu"), (SEEDS, LABELS, "jax")]
)
def test_guided_chains_have_the_exact_posterior(seeds, labels, device, seed, changed):
    """Topics: sport (with seed words), vote (if there are labels), and free ones; two documents in a batch."""
    corpus = as_corpus(DOCUMENTS, WORDS)
    guide = guiding.guide(seeds, WEIGHT, labels, corpus, TOPICS)
    options = {"batch_size": 2, "growth": [(2, 3)], "spare_topics": 0, "num_threads": 1, "device": device}
    settings = resolve(LDA(TOPICS, alpha=ALPHA, beta=BETA, **options).get_params(), size_of(corpus))
    every = range(TOPICS)
    allowed = [every] * 4 if labels is None else [(1, 2), every, every, (0, 2)]
    prior = np.zeros((TOPICS, len(WORDS)))
    prior[0, :2] = WEIGHT
    changed(FITTING, least_block=1, most_block=9, rounded_to=1)  # two blocks
    blocks = DocumentBlocks(corpus, seed, settings.growth) if settings.by_arrays else None
    chain = TopicChain(corpus, settings, seed, 0, blocks=blocks, guide=guide)
    chain.advance(60)
    steps = 1 if settings.by_arrays else 2  # of a pass over the documents
    means = np.array([np.mean([chain.advance(steps) or chain.mean() for _ in range(30)], axis=0) for _ in range(60)])
    z = (means.mean(axis=0) - exact_topics(allowed, prior)) / (means.std(axis=0, ddof=1) / np.sqrt(60))
    assert np.abs(z).max() < 5
    table = chain.engine.counts if settings.by_arrays else chain.engine.table
    assert np.asarray(table).sum() == DOCUMENTS.sum() + 2 * WEIGHT
    if labels is not None and not settings.by_arrays:
        of_first = chain.engine.memory[: chain.engine.begins[1]]
        assert set(of_first.tolist()) <= {1, 2}


@pytest.mark.usefixtures("quick_compiler")
def test_tokens_get_topics_of_their_documents(seed):
    """Also those that had another topic, and words that no topic has (uniform over the documents' topics)."""
    width, copies = arrays.width_for(4), 4_000
    alpha, weights = np.zeros((copies, width), np.float32), np.zeros((2, width), np.float32)
    alpha[:, [1, 3]], weights[0, :4] = 0.5, [5.0, 1.0, 5.0, 3.0]
    tokens = arrays.Tokens(np.repeat(np.arange(copies), 2), np.tile(np.arange(2), copies))
    held = np.tile(np.array([0, 2]), copies)  # of a chain that continues from one without labels
    words = arrays.seed_words((seed, 3))
    z = np.asarray(jax.jit(arrays.swept, static_argnums=5)(words, weights, tokens, held, alpha, copies))
    known, unknown = z.reshape(copies, 2).T
    assert set(z.tolist()) == {1, 3}
    expected = scipy.integrate.quad(lambda x: 3 * x / (1 + 2 * x) / np.sqrt(x * (1 - x)) / np.pi, 0, 1)[0]
    for found, chance in ((known, expected), (unknown, 0.5)):
        assert abs(np.mean(found == 3) - chance) < 5 * np.sqrt(chance * (1 - chance) / copies)


def test_learned_parameters_have_the_exact_law(seed):
    """α given the topics of labelled documents, and β given those of tokens with seed words, by quadrature."""
    rng = np.random.default_rng(seed)
    inside = np.array([[3, 0], [2, 1], [0, 4], [1, 1]])
    offsets, topics = np.array([0, 1, 3, 4, 6]), np.array([0, 0, 1, 1, 0, 1])
    of_size = np.stack([np.bincount(column, minlength=5) for column in inside.T])
    has = np.array([[1, 0], [1, 1], [0, 1], [1, 1]])
    prior, tokens = np.array([[2, 0], [0, 1], [0, 0]]), np.array([[1, 0], [0, 3], [2, 2]])
    seeds = np.array([[0, 0, 2], [1, 1, 1]])
    guide = guiding.Guide((), seeds, offsets, topics)
    alpha, beta, drawn = np.ones(2), 1.0, []
    for _ in range(3_000):
        tables = hyper.tables_given(rng, of_size, alpha)
        alpha = hyper.alpha_given(rng, tables, alpha, inside.sum(axis=1), guide.allowed)
        opened = guide.tables(rng, tokens + prior, beta)
        beta = hyper.beta_given(rng, opened, beta, tokens.sum(axis=0), len(tokens), guide.totals(2))
        drawn.append([*alpha, beta])
    grid = np.arange(0.005, 14.0, 0.03)
    a = np.stack(np.meshgrid(grid, grid, indexing="ij"))
    log = -a.sum(axis=0)
    for row, own in zip(inside, has, strict=True):
        total = (a * own[:, None, None]).sum(axis=0)
        log += gammaln(total) - gammaln(total + row.sum())
        log += (gammaln(a + row[:, None, None]) - gammaln(a)).sum(axis=0)
    weights = np.exp(log)
    b = prior[..., None] + np.arange(0.002, 25.0, 0.002)
    n = tokens[..., None]
    log = -b[2, 0] + (gammaln(b + n) - gammaln(b)).sum(axis=(0, 1))
    log += (gammaln(b.sum(axis=0)) - gammaln((b + n).sum(axis=0))).sum(axis=0)
    exact = [*(a * weights).sum(axis=(1, 2)) / weights.sum(), np.average(b[2, 0], weights=np.exp(log))]
    means = np.array(drawn).reshape(60, 50, 3).mean(axis=1)
    assert np.abs((means.mean(axis=0) - exact) / (means.std(axis=0, ddof=1) / np.sqrt(60))).max() < 5


def test_topics_of_seed_words_are_free_unless_they_are_labels():
    corpus = as_corpus(DOCUMENTS, WORDS)
    guide = guiding.guide({"sport": ["ball"], "vote": ["vote"]}, 1, ["vote", "news", None, "vote"], corpus, 4)
    assert guide.names == ("sport", "vote", "news")
    parts = [guide.topics[guide.offsets[d] : guide.offsets[d + 1]].tolist() for d in range(4)]
    assert parts == [[0, 1, 3], [0, 2, 3], [0, 1, 2, 3], [0, 1, 3]]


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
        ({"seed_words": {"sport": ["ball"]}, "sampler": "scir_cv"}, None, InvalidValueError, 'sampler="gibbs"'),
        ({}, ["a", "b"], InvalidValueError, "4 documents, got 2"),
        ({}, ["a", "b", "c", "d"], InvalidValueError, "at least so many topics"),
        ({}, "a", InvalidTypeError, "entry for each document"),
        ({}, [None, "", float("nan"), []], InvalidValueError, "no document has a label"),
    ],
)
def test_bad_guides(options, labels, error, words):
    with pytest.raises(error, match=words):
        LDA(3, **options).fit(DOCUMENTS, vocabulary=WORDS, labels=labels, progress=False)
