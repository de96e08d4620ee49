"""Correlated topics: the joint law of parameters, shares and words; results, stores."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")

import scirocco as sc
from scirocco.errors import InvalidValueError
from scirocco.models import CorrelatedTopics
from scirocco_latent.lda import as_corpus, correlated, local

pytestmark = pytest.mark.compile

TOPICS, WORDS, TOKENS, DOCUMENTS, BETA = 3, 4, 8, 6, 0.6


def prior(chain, rng):
    """Parameters and the topics of tokens from the model."""
    chain.precision = correlated.wishart(rng, TOPICS + 2, np.eye(TOPICS) / correlated.PRIOR_SCALE)
    root = np.linalg.cholesky(np.linalg.inv(chain.precision))
    chain.mean = root @ rng.standard_normal(TOPICS) / np.sqrt(chain.prior_count)
    chain.members.x = chain.mean + rng.standard_normal((DOCUMENTS, TOPICS)) @ root.T
    chain.omega = rng.dirichlet(np.full(WORDS, BETA), TOPICS)
    shares = chain.members.shares()
    chain.members.z = np.concatenate([rng.choice(TOPICS, TOKENS, p=row) for row in shares]).astype(np.int32)


def write_words(chain, rng):
    """New words given the topics of the tokens, in the order of batches."""
    z = chain.members.z
    words = (rng.random((len(z), 1)) > chain.omega.cumsum(axis=1)[z][:, :-1]).sum(axis=1)
    words = np.sort(words.reshape(DOCUMENTS, TOKENS), axis=1)  # topics are drawn before they are used again
    counts = np.stack([np.bincount(row, minlength=WORDS) for row in words])
    chain.members.batch = local.from_counts(*as_corpus(counts).take_csr(np.arange(DOCUMENTS)))


@pytest.mark.law
def test_sweeps_leave_the_model_invariant(seed):
    """Words are drawn given all else and a sweep follows, in turn: parameters keep the law of the prior (Geweke)."""
    rng, found = np.random.default_rng([seed, 6]), []
    corpus = as_corpus(np.tile([5, 1, 1, 1], (DOCUMENTS, 1)))
    settings = CorrelatedTopics(TOPICS, beta=BETA, num_threads=1)._start_settings(corpus, beta=BETA)
    chain = correlated.MemberChain(corpus, settings, seed, 0)
    chain.prior_count = 2.0
    for number in range(1_000):
        if number % 20 == 0:  # short chains from the prior, which are independent; errors accumulate in them
            prior(chain, rng)
        write_words(chain, rng)
        chain.move()
        chain.step += 1
        x, precision, mean = chain.members.x, chain.precision, chain.mean
        away = x - mean
        square = np.einsum("dj,jk,dk->d", away, precision, away)
        inside = chain.members.inside
        values = [square.mean(), np.mean(square**2), mean @ precision @ mean, np.trace(precision)]
        values += [precision[0, 1], np.mean(chain.omega**2), np.mean(chain.omega**3), inside[:, 0].mean()]
        values += [np.mean(mean @ precision @ away.T)]
        found.append(values)
    second = BETA * (BETA + 1) / (WORDS * BETA * (WORDS * BETA + 1))
    third = second * (BETA + 2) / (WORDS * BETA + 2)
    trace = (TOPICS + 2) * TOPICS / correlated.PRIOR_SCALE
    exact = [TOPICS, TOPICS * (TOPICS + 2), TOPICS / 2.0, trace, 0.0, second, third, TOKENS / TOPICS, 0.0]
    means = np.array(found).reshape(50, 20, -1).mean(axis=1)
    errors = means.std(axis=0, ddof=1) / np.sqrt(len(means))
    gaps = means.mean(axis=0) - exact
    assert np.all(np.abs(gaps) <= 5 * errors), (gaps / errors).round(1)


def test_correlations_are_found(tmp_path):
    """Topics 0 and 1 occur together, the others are on their own; results after saving, and resumed runs."""
    rng = np.random.default_rng(3)
    covariance = np.array([[3.0, 2.4, 0, 0], [2.4, 3, 0, 0], [0, 0, 3, 0], [0, 0, 0, 3]])
    x = rng.multivariate_normal(np.zeros(4), covariance, 300)
    shares = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    omega = np.kron(np.eye(4), np.ones(5) / 5) * 0.95 + 0.05 / 20
    X = np.array([rng.multinomial(60, eta @ omega) for eta in shares])
    model = CorrelatedTopics(4, seed=0, num_threads=1, num_samples=40, num_chains=2).fit(
        X, num_steps=120, progress=False
    )
    order = [int(np.argmax(model.components_[:, 5 * k : 5 * k + 5].sum(axis=1))) for k in range(4)]
    mean, low, high = (part[np.ix_(order, order)] for part in model.correlations(0.9))
    centre = np.eye(4) - 0.25
    exact = centre @ covariance @ centre
    exact /= np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
    assert mean[0, 1] == mean.ravel()[np.flatnonzero(~np.eye(4, dtype=bool).ravel())].max()
    assert low[0, 1] > 0 and np.mean((low - 0.05 <= exact) & (exact <= high + 0.05)) > 0.8
    found, bottom, top = (part[:, order] for part in model.transform(X, interval=0.9))
    assert np.abs(found - shares).mean() < 0.05
    assert np.mean((bottom <= shares) & (shares <= top)) > 0.8
    assert model.perplexity(X[:50]) < 20
    model.save(tmp_path / "model")
    again = sc.models.load(tmp_path / "model")
    np.testing.assert_allclose(again.correlations(), model.correlations())
    assert again.labels() == model.labels()
    model.report(tmp_path / "report.html")
    assert "Correlations between topics" in (tmp_path / "report.html").read_text()
    how = {"num_steps": 8, "progress": False}

    def short():
        return CorrelatedTopics(4, num_samples=4, num_threads=1)

    def stop(report):
        if report.step >= 5:
            report.stop()

    whole = short().fit(X, **how)
    short().fit(X, store=tmp_path / "run", callbacks=[stop], **how)
    resumed = short().fit(X, store=tmp_path / "run", resume=True, **how)
    np.testing.assert_array_equal(resumed.run_.draws["covariance"], whole.run_.draws["covariance"])


def test_bad_arguments():
    with pytest.raises(InvalidValueError, match="beta"):
        CorrelatedTopics(2, beta=0.0).fit(np.ones((4, 3), int), progress=False)
    with pytest.raises(sc.errors.NotFittedError, match="not fitted yet"):
        CorrelatedTopics(2).correlations()
