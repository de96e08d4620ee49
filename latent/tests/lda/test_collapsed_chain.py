"""Learned α and β have their exact posterior, given the topics of all tokens."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate
from scipy.special import gammaln

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")

from scirocco.models import LDA
from scirocco_latent.lda import _collapsed_kernel, _dense_kernel, collapsed_chain, hyper

pytestmark = pytest.mark.compile

COUNTS = np.array([[3, 0], [5, 1], [0, 2], [4, 0], [1, 1], [0, 0], [6, 2]])
"""Tokens of each topic in documents, one of which is empty."""
WORDS = np.array([[4, 0], [1, 3], [0, 0], [2, 7]])
"""Tokens of words in topics."""


def log_alpha(a, b):
    total, lengths = a + b, COUNTS.sum(axis=1)
    out = -total[..., 0] + np.sum(gammaln(total) - gammaln(total + lengths), axis=-1)
    for value, column in ((a, COUNTS[:, 0]), (b, COUNTS[:, 1])):
        out = out + np.sum(gammaln(value + column) - gammaln(value), axis=-1)
    return out


def log_beta(beta):
    each = gammaln(beta + WORDS).sum() - WORDS.size * gammaln(beta)
    return -beta + each + np.sum(gammaln(4 * beta) - gammaln(4 * beta + WORDS.sum(axis=0)))


def z_score(values, exact):
    """By means of blocks."""
    blocks = np.asarray(values)[: len(values) // 50 * 50].reshape(50, -1, *np.shape(values)[1:]).mean(axis=1)
    return (blocks.mean(axis=0) - exact) / (blocks.std(axis=0, ddof=1) / np.sqrt(50))


def alpha_on_host(seed, number, alpha):
    """From the topics of tokens, by the compiled kernels."""
    memory = np.concatenate([np.repeat([0, 1], row) for row in COUNTS]).astype(np.int16)
    begins = np.concatenate([[0], np.cumsum(COUNTS.sum(axis=1))])
    return collapsed_chain.draw_alpha(np.array([seed, number], np.uint64), memory, begins, alpha)


def alpha_by_sizes(seed, number, alpha):
    """From the numbers of documents with n tokens of a topic, as for arrays."""
    rng = np.random.default_rng([seed, number])
    of_size = np.stack([np.bincount(column, minlength=9) for column in COUNTS.T])
    tables = hyper.tables_given(rng, of_size, alpha)
    return hyper.alpha_given(rng, tables, alpha, COUNTS.sum(axis=1))


@pytest.mark.parametrize("draw", [alpha_on_host, alpha_by_sizes])
def test_alpha_has_its_posterior(draw, seed):
    grid = np.exp(np.linspace(-6, 4, 400))
    weights = np.exp(log_alpha(grid[:, None, None], grid[None, :, None]) + 10) * np.outer(grid, grid)
    weights /= weights.sum()
    exact = [weights.sum(axis=1) @ grid, weights.sum(axis=0) @ grid, weights.sum(axis=1) @ grid**2]
    alpha, values = np.ones(2), []
    for number in range(10_000):
        alpha = draw(seed, number, alpha)
        values.append([*alpha, alpha[0] ** 2])
    assert np.abs(z_score(values, exact)).max() < 5


def test_beta_has_its_posterior(seed):
    total = integrate.quad(lambda b: np.exp(log_beta(b) + 20), 0, 60, limit=200)[0]
    exact = [
        integrate.quad(lambda b, p=p: b**p * np.exp(log_beta(b) + 20), 0, 60, limit=200)[0] / total for p in (1, 2)
    ]
    beta, values = 1.0, []
    for number in range(10_000):
        beta = collapsed_chain.draw_beta(np.array([seed, number], np.uint64), WORDS, WORDS.sum(axis=0), beta)
        values.append([beta, beta**2])
    assert np.abs(z_score(values, exact)).max() < 5


@pytest.mark.parametrize("sampler", ["gibbs", "scir"])
def test_a_fit_learns_them(sampler, seed, tmp_path):
    """They move, and draws, means and stored models agree."""
    X = np.random.default_rng(seed).poisson(0.5, (100, 30))
    options = {"learn_alpha": True, "learn_beta": True, "alpha": 0.5, "beta": 0.5, "batch_size": 50}
    model = LDA(3, sampler=sampler, seed=seed, **options).fit(X, num_epochs=20, progress=False)
    drawn = np.asarray(model.run_.stats["alpha"])
    assert len(np.unique(drawn)) >= drawn.size // 2 and drawn.min() > 0  # they change once a pass
    one = LDA(3, sampler=sampler, seed=seed, num_chains=1, **options).fit(X, num_epochs=20, progress=False)
    np.testing.assert_allclose(one.alpha_, drawn[0].mean(axis=0))  # other chains are matched with the first
    np.testing.assert_allclose(model.alpha_.sum(), drawn.sum(axis=-1).mean())
    assert drawn.shape == (2, 20, 3) and model.run_.stats["beta"].shape == (2, 20)
    assert model.beta_ == pytest.approx(model.run_.stats["beta"].mean())
    model.save(tmp_path / "model")
    loaded = LDA.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.alpha_, model.alpha_)
    assert loaded.beta_ == model.beta_


# -- three tokens of a document, of two words, and forty topics that have other tokens too


K, BETA, PRIOR = 40, 0.3, 1.7


def products(alpha, masses, table, totals):
    """E n_k, and the probabilities that tokens 1 and 2, and 2 and 3, have the same topic."""
    first, second, third = np.meshgrid(*[np.arange(K)] * 3, indexing="ij")
    log = np.zeros(first.shape)
    for token, word, before in ((first, 0, ()), (second, 0, (first,)), (third, 1, (first, second))):
        inside = sum((token == other).astype(float) for other in before)
        same = sum((token == other).astype(float) for other in before) * (word == 0)
        log += np.log(alpha[token] + inside) + np.log(BETA + table[word][token] + same)
        log += np.log(masses[token]) - np.log(PRIOR + totals[token] + inside)
    p = np.exp(log - log.max())
    p /= p.sum()
    means = p.sum(axis=(1, 2)) + p.sum(axis=(0, 2)) + p.sum(axis=(0, 1))
    return [*means, p[first == second].sum(), p[second == third].sum()]


@pytest.mark.parametrize("kernel", ["vectors", "lists"])
def test_the_topics_of_tokens_have_their_law(kernel, seed):
    """With any factors of topics, and weights of very different size."""
    rng = np.random.default_rng(seed)
    alpha, masses = rng.gamma(1, 1, K) + 0.05, rng.gamma(2, 1, K) + 0.05
    table = np.zeros((2, 48), np.int32)
    table[:, :K] = rng.integers(0, 4, (2, K))
    totals = table.sum(axis=0) + 5
    exact = products(alpha, masses, table[:, :K], totals[:K])
    rows = (np.array([[2]], np.int32), np.array([0, 1], np.int32), np.array([2, 1], np.int32), np.array([0, 2]))
    z, counts, values = np.full(3, -1, np.int16), np.zeros((1, 48), np.int32), []
    sums = (np.zeros((2, K), np.float32), np.zeros(2, np.int32), True)
    for number in range(20_000):
        block = (0, 1, 0, 0, np.uint64(number))
        rest = (alpha, BETA, 1, (np.uint64(seed), np.uint64(1)))
        if kernel == "vectors":
            _dense_kernel.dense_documents(block, rows, z, counts, table, totals, masses, PRIOR, *rest)
        else:
            of_documents = (np.array([0, 3]), np.array([0]))
            known = (table, totals, masses, PRIOR, sums)
            _collapsed_kernel.collapsed_documents(block, rows, z, *of_documents, *known, *rest)
        values.append([*np.bincount(z, minlength=K), z[0] == z[1], z[1] == z[2]])
    often = np.array(exact) > 0.01
    assert often.sum() > K // 2
    assert np.abs(z_score(np.array(values, float), exact)[often]).max() < 5
