"""`sc.models.LDA` as its users meet it."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")

import scirocco as sc
from scirocco.errors import InvalidValueError
from scirocco.models import LDA
from scirocco.run import progress
from scirocco_latent.lda import prediction

pytestmark = pytest.mark.compile

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.poisson([4, 4, 1, 0, 0, 0], (60, 6)), RNG.poisson([0, 0, 0, 1, 4, 4], (60, 6))])
WORDS = ("sun", "moon", "star", "cow", "horse", "sheep")
OPTIONS = {"beta": 0.5, "batch_size": 40, "num_samples": 20, "seed": 1}


@pytest.fixture(scope="module")
def fitted():
    return LDA(2, num_chains=2, **OPTIONS).fit(X, vocabulary=WORDS, num_epochs=30, progress=False)


def test_it_finds_the_topics(fitted):
    assert fitted.components_.shape == (2, 6)
    np.testing.assert_allclose(fitted.components_.sum(axis=1), 1.0, rtol=1e-5)
    found = {frozenset(words) for words in fitted.top_words(2)}
    assert found == {frozenset({"sun", "moon"}), frozenset({"horse", "sheep"})}
    assert fitted.topics(draws=True).shape == (2 * 20, 2, 6)
    assert fitted.run_.status == "complete" and fitted.run_.draws["topics"].shape == (2, 20, 2, 6)


def test_words_have_intervals(fitted):
    for topic in fitted.top_words(3, interval=0.9):
        for word, mean, low, high in topic:
            assert word in WORDS and 0 <= low <= mean <= high <= 1


def test_documents_have_proportions_and_intervals(fitted):
    eta = fitted.transform(X)
    assert eta.shape == (120, 2)
    np.testing.assert_allclose(eta.sum(axis=1), 1.0, rtol=1e-5)
    first = int(np.argmax(fitted.components_[:, 0]))
    assert eta[:60, first].mean() > 0.9 > 0.1 > eta[60:, first].mean()
    mean, low, high = fitted.transform(X[:5], interval=0.9)
    assert np.all(low <= mean + 1e-6) and np.all(mean <= high + 1e-6)
    assert np.allclose(LDA(2, **OPTIONS).fit_transform(X, num_epochs=2, progress=False).sum(axis=1), 1)


def test_perplexity_is_document_completion(fitted):
    value = fitted.perplexity(X)
    assert 2.0 < value < 4.0
    assert fitted.score(X) == pytest.approx(-np.log(value))
    half = X // 2
    assert fitted.perplexity(half, X - half) < 4.0


def test_every_tenth_token_is_hidden():
    rows = (np.array([0, 2, 2, 3]), np.array([1, 4, 0], np.int32), np.array([7, 6, 25], np.int32))
    seen, hidden = prediction.split(rows)
    assert [part.tolist() for part in hidden] == [[0, 1, 1, 2], [4, 0], [1, 2]]
    assert [part.tolist() for part in seen] == [[0, 2, 2, 3], [1, 4, 0], [7, 5, 23]]


def test_perplexity_by_hand():
    """One topic: η is 1, so the perplexity of hidden words is that of the topic alone, averaged over draws."""
    draws = np.array([[[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]], [[0.2, 0.4, 0.4], [0.2, 0.4, 0.4]]], np.float32)
    seen = (np.array([0, 1]), np.array([0], np.int32), np.array([3], np.int32))
    hidden = (np.array([0, 2]), np.array([0, 1], np.int32), np.array([2, 1], np.int32))
    how = prediction.FoldIn(np.full(2, 0.5), 4, 1, 1, 0)
    by_hand = np.exp(-(2 * np.log(0.35) + np.log(0.325)) / 3)
    assert prediction.perplexity(seen, hidden, draws, how) == pytest.approx(by_hand, rel=1e-6)


@pytest.mark.rotates(2)
@pytest.mark.parametrize(
    "options",
    [{"sampler": "gibbs"}, {"memory": "none"}, {"sampler": "scir_cv"}, {"sampler": "sgrld", "step_size": 0.02}],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_every_sampler_finds_them(options):
    model = LDA(2, **OPTIONS, **options).fit(X, num_epochs=60, progress=False)
    together = model.components_[:, :2].sum(axis=1)
    assert together.max() > 0.7 and together.min() < 0.2


def test_presets():
    for name in ("patterson2013", "baker2018", "barile2024"):
        model = LDA.preset(name, 3, sweeps=4, burn_in=1)
        assert model.memory == "none" and model.num_topics == 3
        assert model.fit(X, num_steps=2, progress=False).components_.shape == (3, 6)
    with pytest.raises(InvalidValueError, match="`preset` must be one of"):
        LDA.preset("blei2003")


def test_one_line_says_what_was_chosen(capsys):
    """Without a terminal too, once in a process; not without progress."""
    progress.print_once.cache_clear()
    for shown in (False, True, True):
        LDA(3).fit(X, num_steps=8, progress=shown)
    said = capsys.readouterr().err
    assert said.count("LDA: ") == 1 and 'sampler "gibbs", the best of' in said and "draws." in said


def test_what_topics_are_about(fitted):
    """Labels, the documents with the most of a topic, and shares by group, which sum to one."""
    first = int(np.argmax(fitted.components_[:, 0]))
    assert {fitted.labels(2)[first]} <= {"sun, moon", "moon, sun"}
    found = fitted.representative_documents(X, 2, least_tokens=5)
    shares = fitted.transform(X)
    long = np.flatnonzero(X.sum(axis=1) >= 5)
    for topic, rows in enumerate(found):
        assert [number for number, _ in rows] == long[np.argsort(-shares[long, topic], kind="stable")[:2]].tolist()
    by = fitted.shares_by(X, np.repeat([1990, 1991], 60))
    pytest.importorskip("matplotlib")
    drawn, panels = fitted.plot_topics(2, topics=[1]).axes, by.plot(fitted.labels(1)).axes
    bars = [bar.get_width() for bar in drawn[0].patches]
    assert len(drawn) == 1 and bars == [mean for _, mean, _, _ in fitted.top_words(2, interval=0.9)[1]]
    assert len(panels) == fitted.num_topics
    with pytest.raises(InvalidValueError, match="numbers from 0 to"):
        fitted.plot_topics(topics=[99])
    assert by.groups.tolist() == [1990, 1991] and by.num_documents.tolist() == [60, 60]
    np.testing.assert_allclose(by.mean.sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(by.mean, [shares[:60].mean(axis=0), shares[60:].mean(axis=0)], atol=0.02)
    assert np.all(by.low <= by.mean) and np.all(by.mean <= by.high) and by.mean[0, first] > 0.9
    with pytest.raises(InvalidValueError, match="one value for each of the 120 documents"):
        fitted.shares_by(X, [1, 2])


def test_number_of_topics():
    """Two topics, where there are two, even if four are as good."""
    found = sc.models.choose_topics(X, (2, 4), held_out=0.3, beta=0.5, num_samples=20)
    assert found.best == 2 and found.error[np.argmax(found.log_probability)] == 0.0
    np.testing.assert_allclose(np.exp(-found.log_probability), found.perplexity)
    assert "*" in str(found).splitlines()[1 + found.num_topics.index(2)]
    with pytest.raises(InvalidValueError, match="`held_out` must be above 0"):
        sc.models.choose_topics(X, (2,), held_out=0)


def test_store_and_resume(tmp_path, fitted):
    """Bit for bit, and refuses another corpus."""
    whole = LDA(2, **OPTIONS).fit(X, num_epochs=30, progress=False)

    def stop(report):
        if report.step > 70:
            report.stop()

    cut = LDA(2, **OPTIONS).fit(X, num_epochs=30, store=tmp_path / "run", callbacks=[stop], progress=False)
    assert cut.run_.status == "stopped" and cut.run_.num_draws < 20
    again = LDA(2, **OPTIONS).fit(X, num_epochs=30, store=tmp_path / "run", resume=True, progress=False)
    np.testing.assert_array_equal(whole.topics(draws=True), again.topics(draws=True))
    assert sc.load(tmp_path / "run").num_draws == 20
    with pytest.raises(InvalidValueError, match="with these arguments: the values of `data` have changed"):
        LDA(2, **OPTIONS).fit(X + 1, num_epochs=30, store=tmp_path / "run", resume=True, progress=False)


def test_save_and_load(tmp_path, fitted):
    fitted.save(tmp_path / "model")
    loaded = LDA.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.topics(draws=True), fitted.topics(draws=True))
    assert loaded.top_words(3) == fitted.top_words(3)
    assert loaded.perplexity(X) == fitted.perplexity(X)
    assert pickle.loads(pickle.dumps(fitted.get_params())) == fitted.get_params()


def test_partial_fit():
    model = LDA(2, **OPTIONS)
    order = np.random.default_rng(3).permutation(120)
    for _ in range(15):
        for part in np.split(order, 3):
            model.partial_fit(X[part], total_documents=120)
    together = model.components_[:, :2].sum(axis=1)
    assert together.max() > 0.7 and together.min() < 0.25


def test_a_time_limit_and_a_validation_set(tmp_path):
    model = LDA(2, **OPTIONS).fit(X, max_seconds=1.0, validation=X[:30], progress=False)
    assert 1 <= model.run_.num_draws <= 20
    assert model.run_.scores and all("perplexity" in values for _, values in model.run_.scores)


def test_in_a_pipeline_of_scikit_learn():
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (the extra `text`)")
    from sklearn.base import clone
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.pipeline import make_pipeline

    texts = ["sun moon sun star moon", "cow horse sheep cow horse"] * 30
    pipeline = make_pipeline(CountVectorizer(), LDA(2, beta=0.5, batch_size=20))
    pipeline.fit(texts)
    assert pipeline.transform(texts[:4]).shape == (4, 2)
    assert list(pipeline.get_feature_names_out()) == ["topic0", "topic1"]
    pipeline[-1].set_output(transform="pandas")
    frame = pipeline.transform(texts[:4])
    assert list(frame.columns) == ["topic0", "topic1"] and len(frame) == 4
    twin = clone(LDA(7, alpha=0.3))
    assert twin.get_params() == LDA(7, alpha=0.3).get_params()


def test_other_summaries(fitted):
    assert fitted.coherence(X, num=3).shape == (2,)
    assert fitted.coherence(X, num=3, measure="umass").shape == (2,)
    distances = fitted.topic_distance()
    np.testing.assert_allclose(np.diag(distances), 0.0, atol=1e-3)
    assert distances[0, 1] > 0.7
    assert set(fitted.to_pyldavis(X)) >= {
        "topic_term_dists",
        "doc_topic_dists",
        "doc_lengths",
        "vocab",
        "term_frequency",
    }
    assert "num_topics=2" in repr(fitted)


BAD = {
    "one topic": (lambda: LDA(1).fit(X), InvalidValueError, "`num_topics` must be at least 2"),
    "negative alpha": (lambda: LDA(2, alpha=-1.0).fit(X), InvalidValueError, "`alpha` must be finite and > 0"),
    "alpha of another length": (lambda: LDA(2, alpha=[0.1] * 3).fit(X), InvalidValueError, "each of the 2 topics"),
    "zero beta": (lambda: LDA(2, beta=0.0).fit(X), InvalidValueError, "`beta` must be finite and > 0"),
    "unknown sampler": (lambda: LDA(2, sampler="vb").fit(X), InvalidValueError, "'scir', 'scir_cv', 'gibbs', 'sgrld'"),
    "memory of sgrld": (
        lambda: LDA(2, sampler="sgrld", memory="documents").fit(X),
        InvalidValueError,
        "requires sampler",
    ),
    "all sweeps dropped": (lambda: LDA(2, sweeps=3, burn_in=3).fit(X), InvalidValueError, "less than `sweeps`"),
    "two lengths": (lambda: LDA(2).fit(X, num_steps=3, num_epochs=2), InvalidValueError, "num_steps and num_epochs"),
    "no steps": (lambda: LDA(2).fit(X, num_steps=0), InvalidValueError, "`num_steps` must be at least 1"),
    "not fitted": (lambda: LDA(2).transform(X), InvalidValueError, "not fitted yet"),
    "interval of 90": (
        lambda: LDA(2).fit(X, num_steps=2, progress=False).top_words(2, interval=90),
        InvalidValueError,
        "between 0 and 1, got 90",
    ),
    "unknown parameter": (lambda: LDA(2).set_params(topics=3), InvalidValueError, "no parameter `topics`"),
    "fractions": (lambda: LDA(2).fit(X / 3.0), InvalidValueError, "document 0"),
    "negative counts": (lambda: LDA(2).fit(X - 1), InvalidValueError, "counts must be >= 0"),
    "other vocabulary": (
        lambda: LDA(2).fit(X, num_steps=2, progress=False).transform(np.ones((3, 9), int)),
        InvalidValueError,
        "9",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    attempt, error, phrase = BAD[name]
    with pytest.raises(error) as caught:
        attempt()
    assert phrase in str(caught.value), str(caught.value)
