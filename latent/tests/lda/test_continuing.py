"""Models that continue after `fit` or `load`, with the same documents, more of them, others, and new words."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")

from enumerated_topics import ALPHA, BETA, DOCUMENTS, TOPICS, WORDS, exact_products
from scirocco.errors import InvalidValueError
from scirocco_latent.lda import LDA, DocumentStream, as_corpus, continuing
from scirocco_latent.lda.chain import TopicChain
from scirocco_latent.lda.estimator import size_of
from scirocco_latent.lda.settings import resolve
from scirocco_latent.lda.topics import LazyTopics

pytestmark = pytest.mark.compile

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.poisson([4, 4, 1, 0, 0, 0], (60, 6)), RNG.poisson([0, 0, 0, 1, 4, 4], (60, 6))])
X = X[RNG.permutation(120)]
OPTIONS = {"beta": 0.5, "batch_size": 30, "seed": 1}
SHORT = {"num_epochs": 15, "progress": False}


@pytest.mark.rotates(2)
@pytest.mark.parametrize(
    "options",
    [{"sampler": "gibbs"}, {"sampler": "scir"}, {"memory": "none"}, {"sampler": "gibbs", "learn_alpha": True}],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_the_same_documents_continue_bit_for_bit(options, tmp_path):
    """Two runs are one long run; also by way of a file, with growth and several chains."""
    kept = {"num_burnin": 20, "thin": 2, "num_chains": 2, "growth": [(40, 3)], **OPTIONS, **options}
    whole = LDA(2, num_samples=8, **kept).fit(X, progress=False)
    first = LDA(2, num_samples=4, **kept).fit(X, progress=False)
    first.save(tmp_path / "first")
    for source in (first, tmp_path / "first"):
        second = LDA(2, num_samples=4, **(kept | {"num_burnin": 0}))
        second.fit(X, continue_from=source, progress=False)
        np.testing.assert_array_equal(np.asarray(whole.run_.draws["topics"])[:, 4:], second.run_.draws["topics"])


def test_a_continued_run_can_be_stored_and_resumed(tmp_path):
    first = LDA(2, **OPTIONS).fit(X[:90], **SHORT)
    kept = {"continue_from": first, "num_steps": 20, "progress": False}
    whole = LDA(2, **OPTIONS).fit(X, **kept)

    def stop(report):
        if report.step >= 15:
            report.stop()

    LDA(2, **OPTIONS).fit(X, store=tmp_path / "run", callbacks=[stop], **kept)
    again = LDA(2, **OPTIONS).fit(X, store=tmp_path / "run", resume=True, **kept)
    np.testing.assert_array_equal(again.topics(draws=True), whole.topics(draws=True))
    with pytest.raises(InvalidValueError, match="`continued`"):
        LDA(2, **OPTIONS).fit(X, store=tmp_path / "run", resume=True, num_steps=20, progress=False)


@pytest.mark.parametrize("memory", ["auto", "none"])
def test_partial_fit_continues(memory, tmp_path):
    """Perplexity does not jump, and a loaded model continues as the one that was saved."""
    model = LDA(2, memory=memory, **OPTIONS).fit(X[:80], num_epochs=60, progress=False)
    before = model.perplexity(X[100:])
    model.save(tmp_path / "model")
    loaded = LDA.load(tmp_path / "model")
    for rows in (slice(80, 90), slice(90, 100)):
        for each in (model, loaded):
            each.partial_fit(X[rows])
        assert model.perplexity(X[100:]) < 1.1 * before
    np.testing.assert_array_equal(model.topics(draws=True), loaded.topics(draws=True))
    assert model.run_.configuration["num_rows"] == 100


def test_partial_fit_of_a_saved_online_model(tmp_path):
    whole, first = (LDA(2, num_samples=4, **OPTIONS).partial_fit(X[:60]) for _ in range(2))
    first.save(tmp_path / "first")
    second = LDA.load(tmp_path / "first").partial_fit(X[60:], total_documents=200)
    whole.partial_fit(X[60:], total_documents=200)
    np.testing.assert_array_equal(second.topics(draws=True), whole.topics(draws=True))


@pytest.mark.law
def test_draws_take_in_documents_exactly(seed):
    """With one topic z is known: from Dir(β + n) to Dir(β + n + m), with a word that is new."""
    rng = np.random.default_rng([seed, 3])
    beta, old, more, number = 0.3, np.array([5, 2, 0]), np.array([1, 0, 4, 2]), 1_500
    settings = resolve(LDA(2, batch_size=2).get_params(), size_of(as_corpus(X)))
    corpus = as_corpus(np.array([more // 2, more - more // 2, 0 * more]))
    found = []
    for draw in range(number):
        particle = continuing.Particle(rng.dirichlet(beta + old)[None].astype(np.float32), np.array([old.sum()]))
        now = continuing.updated(particle, corpus, np.ones(1), beta, settings, (seed, draw))
        assert now.sizes == old.sum() + more.sum()
        found.append(now.omega[0])
    shape = beta + np.append(old, 0) + more
    mean = shape / shape.sum()
    second = shape * (shape + 1) / (shape.sum() * (shape.sum() + 1))
    for power, exact in ((1, mean), (2, second)):
        values = np.array(found, np.float64) ** power
        assert np.all(np.abs(values.mean(axis=0) - exact) < 5 * values.std(axis=0) / np.sqrt(number))


@pytest.mark.law
def test_a_start_from_a_posterior_draw_is_a_posterior_draw(seed):
    """Topics are taken from a chain at its stationary law, and those of the tokens drawn given them."""
    corpus = as_corpus(DOCUMENTS)
    lda = LDA(TOPICS, alpha=ALPHA, beta=BETA, sampler="gibbs", num_threads=1, growth=None)
    first, second = (TopicChain(corpus, resolve(lda.get_params(), size_of(corpus)), seed, c) for c in range(2))
    first.advance(50)
    parts = []
    for _ in range(50):
        part = np.zeros((WORDS, WORDS))
        for _ in range(40):
            first.advance(1)
            hyper = [(np.full(TOPICS, ALPHA), BETA)]
            start = continuing.TopicStart([{"steps": np.array([first.step])}], [first.draw()], hyper, False, (), "")
            start.place(second, 0, corpus)
            omega = second.draw().astype(np.float64)
            part += omega.T @ omega
        parts.append(part / 40)
    errors = np.std(parts, axis=0, ddof=1) / np.sqrt(len(parts))
    assert np.max(np.abs(np.mean(parts, axis=0) - exact_products()) / errors) < 5.0


SKY, FARM = ["sun", "moon", "star"] * 4, ["cow", "horse", "sheep"] * 4


def test_new_words_and_forgotten_documents():
    """They are added after the known ones; documents that are left out leave no trace in the counts."""
    model = LDA(2, **OPTIONS).fit([SKY, FARM] * 20, **SHORT)
    known = model.vocabulary_
    model.partial_fit([[*SKY, "comet", "comet"], FARM] * 5)
    assert model.vocabulary_ == (*known, "comet")
    sky = int(np.argmax(model.components_[:, known.index("sun")]))
    assert model.components_[sky, 6] > 10 * model.components_[1 - sky, 6]
    again = LDA(2, **OPTIONS).fit([[*SKY, "orbit"], FARM] * 9, continue_from=model, **SHORT)
    assert again.vocabulary_ == (*known, "comet", "orbit")
    for state in again._states():
        assert state["table"].sum() == 9 * 25
        np.testing.assert_array_equal(state["table"][6], [0, 0])
    kept = model.partial_fit([[*SKY, "nova"]], vocabulary=model.vocabulary_)
    assert "nova" not in kept.vocabulary_


@pytest.mark.rotates(3)
@pytest.mark.parametrize("options", [{"sampler": "scir"}, {"sampler": "scir_cv"}, {"device": "jax"}])
def test_new_words_of_chains_without_memory(options, tmp_path, seed):
    """A word that comes later joins the topic of its documents, also after loading; words that exist stay."""
    how = {**OPTIONS, "memory": "none", "beta": 0.3, "num_samples": 3, "seed": seed, **options}
    model = LDA(2, **how)
    for _ in range(8):
        model.partial_fit([SKY, FARM] * 10, total_documents=200)
    known, before = model.vocabulary_, model.components_
    model.save(tmp_path / "model")
    model = LDA.load(tmp_path / "model")
    for _ in range(6):
        model.partial_fit([[*SKY, "comet", "comet"], FARM] * 10, total_documents=200)
    assert model.vocabulary_ == (*known, "comet") and model.topics(draws=True).shape[-1] == 7
    sky = int(np.argmax(before[:, known.index("sun")]))
    assert model.components_[sky, 6] > 10 * model.components_[1 - sky, 6]
    assert 0.05 < model.components_[sky, 6] < 0.3  # 2 of 14 tokens
    assert np.argmax(model.components_[:, known.index("cow")]) == 1 - sky


def test_extended_topics_keep_their_sums(seed):
    """Sums over words with new ones: the conditional mean given all draws, as for a chain that began with them."""
    rng = np.random.default_rng(seed)
    topics = LazyTopics.begin(40, 3, 0.2, seed, 1)
    topics.update(np.arange(5), np.full((5, 3), 4.0, np.float32), 2.0, 0.7, (seed, 0))
    first = topics.lazy.row_sums()
    rows = rng.gamma(1.0, size=(6, 3)).astype(np.float32)
    topics.extend(rows)
    np.testing.assert_allclose(topics.lazy.row_sums(), first + rows.sum(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(topics.lazy.read(np.arange(40, 46)), rows)  # they are up to date
    np.testing.assert_allclose(topics.lazy.catch_up().sum(axis=0), topics.lazy.row_sums(), rtol=1e-5)


def test_what_cannot_continue():
    model, stream = LDA(2, **OPTIONS).fit(X, **SHORT), DocumentStream([[(0, 3)]] * 30, 6)
    with pytest.raises(InvalidValueError, match="has 2 topics, this one 3"):
        LDA(3, **OPTIONS).fit(X, continue_from=model, **SHORT)
    with pytest.raises(InvalidValueError, match="`vocabulary` has 6 words, but the corpus has 5 columns"):
        LDA(2, **OPTIONS).fit(X[:, :5], continue_from=model, **SHORT)
    with pytest.raises(InvalidValueError, match="without memory"):
        LDA(2, **OPTIONS).fit(stream, continue_from=model, **SHORT)
    with pytest.raises(InvalidValueError, match="not fitted yet"):
        LDA(2, **OPTIONS).fit(X, continue_from=LDA(2), **SHORT)
    online = LDA(2, **OPTIONS).fit(stream, num_steps=3, progress=False)
    again = LDA(2, **OPTIONS).fit(stream, continue_from=online, num_steps=3, progress=False)
    assert "continued" in again.run_.configuration
