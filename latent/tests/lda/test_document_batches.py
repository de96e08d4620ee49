"""Which documents a chain is given, how it grows, and fits on streams."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")

import scirocco as sc
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco_latent.lda import LDA, DocumentStream, as_corpus, document_batches
from scirocco_latent.lda.document_batches import CorpusBatches

pytestmark = pytest.mark.compile

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.poisson([4, 4, 1, 0, 0, 0], (60, 6)), RNG.poisson([0, 0, 0, 1, 4, 4], (60, 6))])
WORDS = ["sun", "moon", "star", "cow", "horse", "sheep"]
OPTIONS = {"beta": 0.5, "batch_size": 40, "seed": 1}


def texts():
    """The documents of X in a fixed random order, as words."""
    for row in X[np.random.default_rng(1).permutation(len(X))]:
        yield [word for word, count in zip(WORDS, row, strict=True) for _ in range(count)]


def test_every_pass_has_every_document_once():
    batches = CorpusBatches(as_corpus(X), 3)
    for number in range(3):
        seen = np.concatenate([batches.next(24).documents for _ in range(5)])
        np.testing.assert_array_equal(np.sort(seen), np.arange(120))
        assert batches.passes == number + 1


def test_stages_are_nested_and_counted():
    batches = CorpusBatches(as_corpus(X), 3, ((10, 2), (30, 3)))
    first = {int(d) for _ in range(2) for d in batches.next(10).documents}
    assert len(first) == 10 and batches.growing and batches.reach == 30
    second = np.concatenate([batches.next(15).documents for _ in range(6)])
    numbers, counts = np.unique(second, return_counts=True)
    assert len(numbers) == 30 and set(counts) == {3} and first < set(numbers.tolist())
    assert not batches.growing and batches.reach == 120
    assert batches.passes == (2 * 10 + 3 * 30) / 120
    batches.next(120)
    assert batches.passes == (2 * 10 + 3 * 30 + 120) / 120


def test_growth_ends_early_when_told():
    batches = CorpusBatches(as_corpus(X), 3, ((10, 5),))
    batches.next(7)
    batches.finish_growth()
    assert not batches.growing and len(batches.next(120).documents) == 120


def test_stages_follow_from_the_corpus():
    assert document_batches.automatic_growth(20_000, 3_200_000, 100) == ((2000, 50), (6000, 12), (20000, 3))
    assert document_batches.automatic_growth(100, 5_000, 10) == ((100, 3),)
    assert document_batches.growth_steps(((10, 2), (30, 3)), 20) == 8
    assert document_batches.shortened_growth(((10, 20), (30, 10)), 20, 20) == ((10, 10), (30, 5))
    assert document_batches.shortened_growth(((10, 20), (30, 1)), 2, 20) == ((10, 1),)
    assert document_batches.shortened_growth(((10, 20),), 1000, 20) == ((10, 20),)


@pytest.mark.parametrize(
    ("given", "error", "phrase"),
    [
        ("slow", InvalidTypeError, '"auto", None or pairs'),
        (3, InvalidTypeError, '"auto", None or pairs'),
        ([5, 6], InvalidTypeError, "a pair (documents, passes), got 5"),
        ([(500, 2)], InvalidValueError, "500 documents, but there are only 120"),
        ([(50, 2), (20, 2)], InvalidValueError, "must increase in documents"),
        ([(50, 0)], InvalidValueError, "growth: passes"),
    ],
)
def test_bad_stages(given, error, phrase):
    with pytest.raises(error) as caught:
        LDA(2, growth=given).fit(X, progress=False)
    assert phrase in str(caught.value)


def test_draws_come_after_the_growth():
    """Every token has a topic by then; and the visits of the growth are some of those that were asked for."""
    model = LDA(2, num_burnin=0.0, growth=[(20, 5), (60, 2)], **OPTIONS).fit(X, num_epochs=7, progress=False)
    assert model.run_.configuration["growth"] == [[20, 5], [60, 2]]
    passes = model.run_.stats["passes"]
    assert passes.min() >= (20 * 5 + 60 * 2 + 120) / 120 and passes.max() == pytest.approx(7, abs=0.2)
    assert passes.max() >= 7


@pytest.mark.parametrize(("epochs", "stages"), [(2, [[20, 1]]), (7, [[20, 5], [60, 2]])])
def test_passes_count_the_growth(epochs, stages):
    """As many documents are visited as in so many passes, and at most half of the steps are growth."""
    how = {"num_chains": 1, "growth": [(20, 5), (60, 2)]} | OPTIONS
    model = LDA(2, **how).fit(X, num_epochs=epochs, progress=False)
    known = model.run_.configuration
    assert known["growth"] == stages
    steps = known["num_burnin"] + known["num_samples"] * known["thin"]
    batch, grown = (OPTIONS["batch_size"], sum(passes * -(-size // OPTIONS["batch_size"]) for size, passes in stages))
    visits = sum(size * passes for size, passes in stages) + (steps - grown) * batch
    assert 0 <= visits - epochs * len(X) < batch and grown <= steps / 2
    assert model.run_.stats["passes"][0, -1] == pytest.approx(visits / len(X))
    same = LDA(2, **how).fit(X, num_steps=steps, progress=False)
    np.testing.assert_array_equal(same.topics(draws=True), model.topics(draws=True))


def test_a_short_run_grows_less():
    model = LDA(2, growth=[(20, 10), (60, 10)], **OPTIONS).fit(X, num_steps=20, progress=False)
    assert model.run_.configuration["growth"] == [[20, 3], [60, 3]]


def test_a_stream_is_fitted():
    stream = DocumentStream(texts, WORDS)
    model = LDA(2, num_chains=2, **OPTIONS).fit(stream, num_epochs=60, progress=False)
    found = {frozenset(words) for words in model.top_words(2)}
    assert found == {frozenset({"sun", "moon"}), frozenset({"horse", "sheep"})}
    assert model.run_.configuration["memory"] == "none" and model.run_.stats["passes"].max() == pytest.approx(60)
    assert model.rhat().shape == (2,)


def test_a_stream_that_runs_dry():
    stream = DocumentStream(texts(), WORDS, num_documents=120)
    with pytest.raises(InvalidValueError, match="the stream is exhausted: 120 documents in total"):
        LDA(2, num_chains=1, **OPTIONS).fit(stream, num_epochs=2, progress=False)


def test_chains_do_not_share_an_iterator():
    stream = DocumentStream(texts(), WORDS, num_documents=120)
    with pytest.raises(InvalidValueError, match="2 chains cannot share one iterator"):
        LDA(2, num_chains=2, **OPTIONS).fit(stream, num_epochs=1, progress=False)


def test_a_stream_has_no_memory():
    with pytest.raises(InvalidValueError, match="no stream"):
        LDA(2, memory="documents", **OPTIONS).fit(DocumentStream(texts, WORDS), progress=False)
    with pytest.raises(InvalidValueError, match='sampler="gibbs" stores'):
        LDA(2, sampler="gibbs", **OPTIONS).fit(DocumentStream(texts, WORDS), progress=False)


@pytest.mark.parametrize("sampler", ["scir", "scir_cv"])
def test_a_stored_fit_of_a_stream_goes_on(sampler, tmp_path):
    def stop(report):
        if report.step > 25:
            report.stop()

    options = {**OPTIONS, "sampler": sampler, "refresh_size": 50}
    fit = {"num_epochs": 12, "progress": False}
    whole = LDA(2, **options).fit(DocumentStream(texts, WORDS), **fit)
    LDA(2, **options).fit(DocumentStream(texts, WORDS), store=tmp_path / "run", callbacks=[stop], **fit)
    again = LDA(2, **options).fit(DocumentStream(texts, WORDS), store=tmp_path / "run", resume=True, **fit)
    np.testing.assert_array_equal(whole.topics(draws=True), again.topics(draws=True))
    assert sc.load(tmp_path / "run").num_draws == again.run_.num_draws


def test_rhat_sees_chains_that_disagree():
    model = LDA(2, num_chains=2, num_samples=20, **OPTIONS).fit(X, num_epochs=60, progress=False)
    assert model.rhat().max() < 1.5
    assert model.rhat().max() == pytest.approx(np.nanmax(model.summary(digits=None)["r_hat"]))
    model.draws_["topics"].draws[1] = 1 / 6
    assert model.rhat().min() > 2
    single = LDA(2, num_chains=1, **OPTIONS).fit(X, num_epochs=2, progress=False)
    with pytest.raises(InvalidValueError, match="R-hat requires 2 chains"):
        single.rhat()
