"""Models that are fitted again, gone on with, cut short, or asked for little."""

from __future__ import annotations

import time

import numpy as np
import pytest

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")

from scirocco.errors import InvalidValueError
from scirocco_latent.lda import LDA, DocumentStream, as_corpus
from scirocco_latent.lda.chain import TopicChain
from scirocco_latent.lda.document_batches import CorpusBatches
from scirocco_latent.lda.estimator import size_of
from scirocco_latent.lda.settings import resolve

pytestmark = pytest.mark.compile

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.poisson([4, 4, 1, 0, 0], (60, 5)), RNG.poisson([0, 0, 1, 4, 4], (60, 5))])
OPTIONS = {"beta": 0.5, "batch_size": 30, "seed": 1}


def stop_at(step):
    def stop(report):
        if report.step >= step:
            report.stop()

    return stop


def started(path, **changes):
    """A stored fit that was stopped after some draws."""
    fit = {"num_steps": 40, "store": path, "callbacks": [stop_at(35)], "progress": False}
    return LDA(2, **OPTIONS, **changes).fit(X, **fit)


def test_a_model_is_not_written_over_what_it_reads(tmp_path):
    started(tmp_path / "run")
    for model in (LDA.load(tmp_path / "run"), started(tmp_path / "other")):
        with pytest.raises(InvalidValueError, match=r"already stored in"):
            model.save(model.run_.path, overwrite=True)
        assert np.isfinite(model.topics(draws=True)).all()


@pytest.mark.parametrize(
    ("changes", "fit", "phrase"),
    [
        ({"seed": 2}, {}, "`seed` was 1 and is now 2"),
        ({"num_chains": 3}, {}, "`num_chains` was 2 and is now 3"),
        ({"growth": None}, {}, "`growth_asked`"),
        ({}, {"num_steps": 400}, "was planned as 40 steps"),
        ({"num_samples": 3}, {"num_steps": 40}, "the same num_steps, num_epochs, num_samples, num_burnin and thin"),
    ],
    ids=["seed", "chains", "growth", "length", "draws"],
)
def test_another_run_is_not_gone_on_with(changes, fit, phrase, tmp_path):
    started(tmp_path / "run")
    with pytest.raises(InvalidValueError) as caught:
        LDA(2, **{**OPTIONS, **changes}).fit(X, **fit, store=tmp_path / "run", resume=True, progress=False)
    assert phrase in str(caught.value)


@pytest.mark.parametrize("growth", ["auto", [(30, 20), (100, 10)], None])
def test_the_same_arguments_go_on(growth, tmp_path):
    """Also where the stages were cut, and with the length left out."""
    whole = LDA(2, growth=growth, **OPTIONS).fit(X, num_steps=40, progress=False)
    for length in ({"num_steps": 40}, {}):
        path = tmp_path / f"run{len(length)}"
        started(path, growth=growth)
        again = LDA(2, growth=growth, **OPTIONS).fit(X, **length, store=path, resume=True, progress=False)
        np.testing.assert_array_equal(again.topics(draws=True), whole.topics(draws=True))


def test_a_time_limit_holds_without_burn_in():
    began = time.perf_counter()
    model = LDA(2, num_burnin=0.0, **OPTIONS).fit(X, max_seconds=0.3, progress=False)
    assert model.run_.num_draws >= 1
    assert time.perf_counter() - began < 20


def test_ctrl_c_in_the_burn_in_of_a_time_limit():
    def interrupt(report):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), pytest.warns(match="interrupted"):
        LDA(2, **OPTIONS).fit(X, max_seconds=60.0, callbacks=[interrupt], progress=False)
    with pytest.raises(InvalidValueError, match="stopped in its burn-in after 3 steps"):
        LDA(2, **OPTIONS).fit(X, max_seconds=60.0, callbacks=[stop_at(3)], progress=False)


@pytest.mark.parametrize("sampler", ["scir", "gibbs"])
def test_every_token_has_a_topic_at_the_first_draw(sampler):
    """Whatever the batches are."""
    corpus = as_corpus(np.random.default_rng(5).poisson(0.4, (100, 40)))
    for batch_size in (7, 30, 64, 100):
        lda = LDA(6, sampler=sampler, batch_size=batch_size, growth=[(20, 3), (100, 2)])
        chain = TopicChain(corpus, resolve(lda.get_params(), size_of(corpus)), 3, 0)
        while chain.batches.growing:
            chain.advance(1)
        chain.advance(-(-100 // batch_size))
        assert chain.engine.memory.min() >= 0


def test_passes_over_few_documents_are_made():
    """A stage that is smaller than a batch has as many visits as it says."""
    batches = CorpusBatches(as_corpus(X), 3, ((10, 7),))
    visited = [batches.next(50).documents for _ in range(7)]
    assert all(len(np.unique(part)) == 10 for part in visited) and not batches.growing
    batches.next(50)
    assert batches.passes == (70 + 50) / 120


def test_small_beta():
    """Gamma variables of small shapes underflow; a topic without any word is uniform."""
    for growth in (None, "auto"):
        model = LDA(20, beta=1e-5, growth=growth).fit(X, num_steps=5, progress=False)
        assert np.isfinite(model.components_).all()
        np.testing.assert_allclose(model.components_.sum(axis=1), 1.0, rtol=1e-5)


def test_words_are_compared_not_places():
    model = LDA(2, **OPTIONS).fit([["a"] * 5, ["b"] * 5] * 20, vocabulary=["b", "a"], num_epochs=5, progress=False)
    with pytest.raises(InvalidValueError, match="word 0 is 'a', expected 'b'"):
        model.transform(as_corpus([["a"] * 20, ["b"]]))


def test_documents_without_a_word_have_the_prior():
    model = LDA(2, alpha=[0.1, 0.3], **OPTIONS).fit(X, num_steps=5, progress=False)
    np.testing.assert_allclose(model.transform(np.zeros((1, 5), int)), [[0.25, 0.75]], rtol=1e-5)
    words = LDA(2, **OPTIONS).fit([["sun"] * 5] * 30, num_steps=5, progress=False)
    np.testing.assert_allclose(words.transform([["moon"]]), [[0.5, 0.5]], rtol=1e-5)


def test_fit_and_partial_fit_do_not_mix(tmp_path):
    model = LDA(2, memory="documents", **OPTIONS).partial_fit(X)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(LDA.load(tmp_path / "model").components_, model.components_)
    wide = np.random.default_rng(1).poisson(1.0, (40, 8))
    model.fit(wide, num_steps=5, progress=False)
    assert model.partial_fit(wide).components_.shape == (2, 8)


def test_partial_fit_sees_documents_once():
    model = LDA(2, **{**OPTIONS, "batch_size": 50})
    model.partial_fit(X[:3])
    model.partial_fit(X)
    batches = model._online[0].batches
    assert batches.visits == 120 and model._online[0].step == 1 + 3


def test_a_stream_begins_anew_for_every_fit(tmp_path):
    rows = [[(w, int(n)) for w, n in enumerate(row) if n] for row in X]
    stream = DocumentStream(rows, 5)
    first, second = (LDA(2, **OPTIONS).fit(stream, num_steps=10, progress=False) for _ in range(2))
    np.testing.assert_array_equal(first.topics(draws=True), second.topics(draws=True))
    fit = {"num_steps": 10, "store": tmp_path / "run", "progress": False}
    LDA(2, **OPTIONS).fit(stream, callbacks=[stop_at(7)], **fit)
    again = LDA(2, **OPTIONS).fit(stream, resume=True, **fit)
    np.testing.assert_array_equal(first.topics(draws=True), again.topics(draws=True))


def test_a_failed_fit_leaves_the_model_as_it_was():
    model = LDA(2, **OPTIONS).fit(X, vocabulary=["v", "w", "x", "y", "z"], num_steps=5, progress=False)
    with pytest.raises(InvalidValueError, match="stopped in its burn-in"):
        model.fit(X[:, :3], num_steps=40, callbacks=[stop_at(1)], progress=False)
    assert len(model.top_words(5)[0]) == 5 and model.vocabulary_[0] == "v"


def test_equal_documents_far_apart_have_their_own_numbers():
    """Random streams follow the number of a document, not its place in a piece."""
    model = LDA(2, **OPTIONS).fit(X, num_steps=5, progress=False)
    same = np.tile(X[0], (4100, 1))
    shares = model.transform(same)
    assert not np.array_equal(shares[:4], shares[4096:])
