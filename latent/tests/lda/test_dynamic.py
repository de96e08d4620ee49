"""Dynamic topics: the joint law of parameters, topics and words; results, times, stores, errors."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")

import scirocco as sc
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models import DynamicTopics
from scirocco_latent.lda import LDA, DocumentStream, Tokeniser, as_corpus, dynamic_chain, local
from scirocco_latent.lda.estimator import size_of
from scirocco_latent.lda.settings import resolve

pytestmark = pytest.mark.compile

GAPS, TOPICS, WORDS, TOKENS = np.array([1.0, 2.0]), 2, 4, 16


def chain_of(spread, drift, seed, alpha):
    """A chain on documents of 16 tokens in three slices; the words are replaced by the test."""
    slices = np.arange(9) % 3
    corpus = as_corpus(np.tile([13, 1, 1, 1], (9, 1)))
    settings = resolve(
        LDA(TOPICS, alpha=alpha, spare_topics=0, batch_size=9, num_threads=1).get_params(), size_of(corpus)
    )
    chain = dynamic_chain.WalkChain(dynamic_chain.Walks(corpus, slices, GAPS, settings, spread, drift), seed, 0)
    chain.step = 1
    return chain


def prior(chain, rng):
    """Parameters, topics of tokens and words from the model."""
    task = chain.task
    for which, given in enumerate((task.spread, task.drift)):
        shape, rate = tuple(dynamic_chain.PRIORS.values())[which]
        chain.scales[which] = given or (rng.standard_gamma(shape) / rate) ** -0.5
    chain.x[:, :, 0] = chain.scales[0] * rng.standard_normal((TOPICS, WORDS))
    for t, gap in enumerate(GAPS):
        step = chain.scales[1] * np.sqrt(gap) * rng.standard_normal((TOPICS, WORDS))
        chain.x[:, :, t + 1] = chain.x[:, :, t] + step
    for t, rows in enumerate(chain.documents):
        theta = rng.dirichlet(chain.alpha, len(rows))
        chain.z[t] = np.concatenate([rng.choice(TOPICS, TOKENS, p=row) for row in theta]).astype(np.int32)


def write_words(chain, rng):
    """New words given the topics of the tokens: a corpus with the same topics, sorted as batches are."""
    omega = chain.topics()
    for t, rows in enumerate(chain.documents):
        cut = omega[:, :, t].cumsum(axis=1)[chain.z[t]]
        words = (rng.random((len(cut), 1)) > cut[:, :-1]).sum(axis=1).reshape(len(rows), TOKENS)
        order = np.argsort(words, axis=1, kind="stable")
        topics = np.take_along_axis(chain.z[t].reshape(len(rows), TOKENS), order, axis=1)
        counts = np.stack([np.bincount(row, minlength=WORDS) for row in words])
        chain.batches[t] = local.from_counts(*as_corpus(counts).take_csr(np.arange(len(rows))), rows)
        chain.z[t] = topics.ravel().copy()


@pytest.mark.law
def test_sweeps_leave_the_model_invariant(seed, monkeypatch):
    """Words are drawn given all else and a sweep follows, in turn: parameters keep the law of the prior (Geweke)."""
    monkeypatch.setitem(dynamic_chain.PRIORS, "spread", (8.0, 16.0))  # with moments of order four
    monkeypatch.setitem(dynamic_chain.PRIORS, "drift", (8.0, 4.0))
    alpha, rng, found = np.array([0.5, 0.8]), np.random.default_rng([seed, 5]), []
    chain = chain_of(None, None, seed, alpha)
    for number in range(1_400):
        if number % 20 == 0:  # short chains from the prior, which are independent; errors accumulate in them
            prior(chain, rng)
        write_words(chain, rng)
        chain.draw_tokens()
        chain.draw_topics()
        chain.step += 1
        chain.widths[:] = -1.0
        x, inside = chain.x, chain.inside.astype(float)
        scales = chain.scales**-2.0
        values = [np.mean(x[:, :, 0] ** 2 * scales[0]), np.mean(x[:, :, 0] ** 4) * scales[0] ** 2]
        values += [np.mean(np.diff(x, axis=2)[:, :, t] ** 2) * scales[1] / GAPS[t] for t in range(2)]
        values += [np.mean(x[:, :, 0] * np.diff(x, axis=2)[:, :, 0]), *scales, scales[1] ** 2]
        values += [inside[:, 0].mean(), np.mean(inside[:, 0] ** 2), np.mean(x[:, 0] * x[:, 1])]
        found.append(values)
    share, total = alpha[0] / alpha.sum(), alpha.sum()
    second = TOKENS * share * (1 - share) * (total + TOKENS) / (total + 1) + (TOKENS * share) ** 2
    exact = np.array([1.0, 3.0, 1.0, 1.0, 0.0, 0.5, 2.0, 4.0 + 0.5, TOKENS * share, second, 0.0])
    means = np.array(found).reshape(70, 20, -1).mean(axis=1)
    errors = means.std(axis=0, ddof=1) / np.sqrt(len(means))
    gaps = means.mean(axis=0) - exact
    assert np.all(np.abs(gaps) <= 5 * errors + 1e-9), (gaps / errors).round(1)


SPLIT = Tokeniser(language="english", max_share=1.0)
WORDS_OF = ("sun", "moon", "cow", "horse", "car", "train")


def texts(rng):
    """Two topics over six years: farms, whose animals give way to machines, and the sky."""
    out, years = [], np.arange(240) % 6 + 2000
    for number, year in enumerate(years):
        late = (year - 2000) / 5
        farm = np.array([0, 0, 1 - late, 1 - late, late, late]) / 2 + 0.02
        chances = farm if number % 2 else np.array([0.5, 0.5, 0, 0, 0, 0]) + 0.02
        out.append(" ".join(rng.choice(WORDS_OF, 30, p=chances / chances.sum())))
    return out, years


@pytest.fixture(scope="module")
def fitted():
    found, years = texts(np.random.default_rng(0))
    model = DynamicTopics(2, drift=None, seed=1, num_threads=1, num_chains=2, tokeniser=SPLIT)
    return model.fit(found, years, num_steps=120, progress=False), found, years


def test_what_a_dynamic_model_tells(fitted, tmp_path):
    model, found, years = fitted
    assert model.times_.tolist() == [2000, 2001, 2002, 2003, 2004, 2005]
    farm = next(k for k, words in enumerate(model.top_words(2)[2000]) if "cow" in words)
    assert set(model.top_words(2)[2005][farm]) == {"car", "train"} and model.drift_ > 0.3
    path = model.evolution(farm, ["cow", "car"])
    assert path.mean.shape == (6, 2) and np.all(path.low < path.mean) and np.all(path.mean < path.high)
    assert path.low[0, 0] > path.high[5, 0] and path.high[0, 1] < path.low[5, 1]
    assert path.to_frame().shape == (12, 5)
    shares = model.shares()
    assert shares.groups.tolist() == model.times_.tolist() and shares.num_documents.tolist() == [40] * 6
    assert np.abs(shares.mean.sum(axis=1) - 1).max() < 1e-6
    topics = model.transform([found[1], found[-1], "car train", "car train"], [2001, 2005, 2005, 2030])
    assert topics[0, farm] > 0.7 and topics[1, farm] > 0.7 and abs(topics[2, farm] - topics[3, farm]) < 0.2
    early = model.at(2000).transform(["cow horse cow horse"], interval=0.5)
    assert early[0][0, farm] > 0.5 and model.perplexity(found, years) < 6
    model.save(tmp_path / "model")
    again = sc.models.load(tmp_path / "model")
    assert again.labels() == model.labels() and again.times_.tolist() == model.times_.tolist()
    np.testing.assert_allclose(again.transform(found[:4], years[:4]), model.transform(found[:4], years[:4]))
    assert model.to_arviz().posterior["topics"].shape == (2, 60, 6, 2, 6)


def test_a_stored_fit_is_resumed_bit_for_bit(tmp_path):
    found, years = texts(np.random.default_rng(1))
    how = {"num_steps": 12, "progress": False}

    def model():
        return DynamicTopics(2, num_samples=4, num_burnin=4, num_threads=1, tokeniser=SPLIT)

    def stop(report):
        if report.step >= 8:
            report.stop()

    whole = model().fit(found[:60], years[:60], **how)
    model().fit(found[:60], years[:60], store=tmp_path / "run", callbacks=[stop], **how)
    again = model().fit(found[:60], years[:60], store=tmp_path / "run", resume=True, **how)
    for name in ("topics", "shares"):
        np.testing.assert_array_equal(again.run_.draws[name], whole.run_.draws[name])
    with pytest.raises(InvalidValueError, match="data"):
        model().fit(found[:60], years[:60][::-1], store=tmp_path / "run", resume=True, **how)


@pytest.mark.parametrize(
    ("times", "num_slices", "labels", "slices", "gaps"),
    [
        (["2020-01", "2020-03", "2020-04", "2020-04"], None, ["2020-01", "2020-03", "2020-04"], [0, 1, 2, 2], 2),
        (["b", "a", "c", "a"], None, ["a", "b", "c"], [1, 0, 2, 0], 2),
        (np.arange(100), None, None, None, 19),
        ([1, 2, 3, 9], 2, ["1", "3"], [0, 0, 1, 1], 1),
    ],
)
def test_times_become_slices(times, num_slices, labels, slices, gaps):
    found = sc.models.lda.dynamic.sliced(sc.models.lda.texts.as_numbers(times), len(times), num_slices)
    assert found[2].shape == (gaps,) and np.median(found[2]) == 1
    if labels is not None:
        assert found[0].astype(str).tolist() == labels and found[1].tolist() == slices


@pytest.mark.parametrize(
    ("X", "times", "options", "error", "words"),
    [
        (np.ones((4, 3), int), [1, 2], {}, InvalidValueError, "each of the 4 documents"),
        (np.ones((4, 3), int), [1, 1, 1, 1], {}, InvalidValueError, "use LDA"),
        (np.ones((4, 3), int), [1, 2, np.nan, 3], {}, InvalidValueError, "document 2 is missing"),
        (np.ones((4, 3), int), "year", {}, InvalidTypeError, "name of a column"),
        (np.ones((4, 3), int), [1, 2, 3, 4], {"drift": 0.0}, InvalidValueError, "drift"),
        (DocumentStream([[(0, 1)]], 2), [1], {}, InvalidTypeError, "stream is not possible"),
    ],
)
def test_bad_times(X, times, options, error, words):
    with pytest.raises(error, match=words):
        DynamicTopics(2, **options).fit(X, times, progress=False)


def test_the_report_is_written(fitted, tmp_path):
    fitted[0].report(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "Words over time" in text and "2005" in text
    assert "horse" in text
