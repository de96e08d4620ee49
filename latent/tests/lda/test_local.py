"""The local step of LDA against documents so small that every assignment of topics can be listed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco_latent.lda import local

pytestmark = pytest.mark.compile

COPIES = 4_000  # independent copies of a document
TEXTS = ([0, 0, 1], [1, 2, 3, 3], [0, 2, 4, 4, 4, 1])  # word numbers, of five words
KERNELS = ("sparse", "dense")
LIMIT = 5.5  # of the largest of at most 20 z-scores


def problem(seed, num_topics=3):
    """Word weights, not normalised and with a zero among them, and an α for each topic."""
    rng = np.random.default_rng([seed, 60])
    weights = (rng.gamma(0.7, size=(5, num_topics)) + 0.05).astype(np.float32)
    weights[2, 1] = 0.0
    return weights, rng.uniform(0.4, 1.5, num_topics)


def exact(text, weights, alpha):
    """E[tokens of word w with topic k] in a document, by listing all assignments."""
    num_words, num_topics = weights.shape
    alphas = np.broadcast_to(np.asarray(alpha, float), (num_topics,))
    expected, total = np.zeros((num_words, num_topics)), 0.0
    for z in itertools.product(range(num_topics), repeat=len(text)):
        counts = np.bincount(z, minlength=num_topics)
        mass = math.exp(sum(math.lgamma(a + n) - math.lgamma(a) for a, n in zip(alphas, counts, strict=True)))
        mass *= math.prod(float(weights[w, k]) for w, k in zip(text, z, strict=True))
        total += mass
        for w, k in zip(text, z, strict=True):
            expected[w, k] += mass
    return expected / total


def copies(text, weights, apart=True):
    """A batch of copies of a document; `apart`: each with words of its own, so that it can be told from the others."""
    words, counts = np.unique(text, return_counts=True)
    own = 5 * np.arange(COPIES)[:, None] if apart else np.zeros((COPIES, 1), int)
    batch = local.from_counts(np.arange(COPIES + 1) * words.size, (words + own).ravel(), np.tile(counts, COPIES))
    return batch, np.ascontiguousarray(weights[batch.distinct % 5])


def largest_z(values, mean):
    """The largest |z| of means over the first axis; what does not vary must be right as it is."""
    error = values.std(0) / np.sqrt(len(values))
    fixed = error < 1e-7
    assert np.allclose(values.mean(0)[fixed], mean[fixed], atol=1e-5)
    return float(np.max(np.abs((values.mean(0) - mean)[~fixed] / error[~fixed]), initial=0.0))


def assert_law(found, text, weights, alpha):
    expected = exact(text, weights, alpha)
    by_word = np.asarray(found.counts, float).reshape(COPIES, -1, weights.shape[1])
    assert np.allclose(by_word.sum(2), np.unique(text, return_counts=True)[1], atol=1e-4)
    assert largest_z(by_word, expected[np.unique(text)]) < LIMIT
    assert largest_z(np.asarray(found.document_topics, float), expected.sum(0)) < LIMIT


@pytest.mark.rotates(3)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("text", TEXTS)
def test_gibbs_has_the_listed_expectations(seed, text, kernel):
    weights, alpha = problem(seed)
    batch, rows = copies(text, weights)
    found = local.gibbs(seed, batch, rows, alpha, sweeps=60, burn_in=50, kernel=kernel, keep_documents=True)
    assert_law(found, text, weights, alpha)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_first_two_draws_of_a_document_with_many_topics(seed, kernel):
    """Their conditionals are known."""
    weights, alpha = problem(seed, num_topics=45)
    weights[:, 8:24] *= np.arange(16) % 3 > 0
    batch, rows = copies([0, 1] + 58 * [2], weights)
    start = np.arange(60) * 7 % 30  # thirty topics, in some order
    z = np.tile(start, COPIES).astype(np.int32)
    local.gibbs(seed, batch, rows, 0.2 * alpha, sweeps=1, burn_in=0, z=z, kernel=kernel)

    def conditional(word, counts):
        mass = (0.2 * alpha + counts) * weights[word]
        return mass / mass.sum(-1, keepdims=True)

    drawn = np.eye(45)[z.reshape(COPIES, 60)]
    others = np.bincount(start[2:], minlength=45)
    expected = conditional(0, others + np.eye(45)[start[1]]), conditional(1, others + drawn[:, 0])
    for i in (0, 1):
        assert not drawn[:, i, weights[i] == 0.0].any()
        often = np.atleast_2d(expected[i]).mean(0) > 1e-2  # the others' numbers are not near to normal ones
        assert largest_z((drawn[:, i] - expected[i])[:, often], np.zeros(often.sum())) < LIMIT


@pytest.mark.parametrize("kernel", KERNELS)
def test_many_sweeps_are_all_counted(seed, kernel):
    batch, rows = larger(seed)
    found = local.gibbs(seed, batch, rows, 0.1, sweeps=131, burn_in=1, kernel=kernel, keep_documents=True)
    assert np.allclose(found.counts.sum(1), np.bincount(batch.tokens), rtol=1e-4)
    assert np.allclose(found.document_topics.sum(1), np.diff(batch.indptr), rtol=1e-4)


@pytest.mark.rotates(2)
@pytest.mark.parametrize("kind", [np.int32, np.uint16])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_chain_that_remembers(seed, kernel, kind):
    """Short calls in a row, each from where the last one ended; half of the tokens have a topic at the start."""
    weights, alpha = problem(seed, num_topics=2)
    text = TEXTS[2]
    batch, rows = copies(text, weights)
    z = np.zeros(batch.num_tokens, kind)
    z[::2] = np.array(-1).astype(kind)
    for call in range(25):
        found = local.gibbs(
            (seed, call), batch, rows, alpha, sweeps=2, burn_in=1, z=z, kernel=kernel, keep_documents=True
        )
    assert z.min() >= 0 and z.max() < 2
    assert_law(found, text, weights, alpha)
    drawn = (z.reshape(COPIES, -1)[..., None] == np.arange(2)).sum(1)
    assert np.array_equal(drawn, found.document_topics)


@pytest.mark.rotates(2)
@pytest.mark.parametrize("kernel", KERNELS)
def test_one_number_for_alpha_and_a_word_without_weights(seed, kernel):
    """Rows of zeros say nothing, rows that are nearly zero say what their ratios say."""
    weights, _ = problem(seed)
    weights[0], weights[4] = 0.0, weights[4] * np.float32(1e-36)
    meant = weights.copy().astype(float)
    meant[0], meant[4] = 1.0, meant[4] * 1e36
    batch, rows = copies(TEXTS[2], weights)
    found = local.gibbs(seed, batch, rows, 0.4, sweeps=60, burn_in=50, kernel=kernel, keep_documents=True)
    assert_law(found, TEXTS[2], meant, 0.4)


def larger(seed, num_topics=40):
    """Forty documents of 0 to 80 tokens, and rows of weights."""
    rng = np.random.default_rng([seed, 61])
    lengths = rng.integers(0, 40, 40) * (rng.random(40) < 0.9)
    words = np.concatenate([np.sort(rng.choice(300, n, replace=False)) for n in lengths])
    batch = local.from_counts(np.r_[0, np.cumsum(lengths)], words, rng.integers(1, 4, words.size))
    return batch, rng.gamma(0.1, size=(batch.distinct.size, num_topics)).astype(np.float32)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_number_of_threads_changes_nothing(seed, kernel):
    batch, rows = larger(seed)

    def run(threads):
        z = np.full(batch.num_tokens, -1, np.int32)
        options = {"kernel": kernel, "keep_documents": True}
        found = local.gibbs(seed, batch, rows, 0.1, sweeps=8, burn_in=3, z=z, num_threads=threads, **options)
        return z, *found

    one = run(1)
    for threads in (2, 3, 64, None):
        assert all(np.array_equal(*pair) for pair in zip(run(threads), one, strict=True))


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_document_does_not_depend_on_its_batch(seed, kernel):
    """Its draws follow from the seed and its number: alone, and with words of its own, it has the same topics."""
    text = TEXTS[2]
    weights, alpha = problem(seed)
    options = {"sweeps": 9, "burn_in": 2, "kernel": kernel, "keep_documents": True}
    apart, rows = copies(text, weights)
    together, few = copies(text, weights, apart=False)
    one, other = (local.gibbs(seed, apart, rows, alpha, **options), local.gibbs(seed, together, few, alpha, **options))
    assert np.array_equal(one.document_topics, other.document_topics)
    assert np.allclose(one.counts.astype(float).reshape(COPIES, -1, 3).sum(0), other.counts, rtol=1e-5)
    alone = local.from_counts([0, 4], [0, 1, 2, 4], [1, 1, 1, 3], documents=[17])
    single = local.gibbs(seed, alone, few, alpha, **options)
    assert np.array_equal(single.document_topics[0], one.document_topics[17])


@pytest.mark.rotates(2)
@pytest.mark.parametrize("kernel", KERNELS)
def test_empty_documents_and_batches(kernel):
    weights = np.ones((1, 4), np.float32)
    batch = local.from_counts([0, 0, 1, 1], [3], [2])
    found = local.gibbs(0, batch, weights, 0.1, sweeps=3, burn_in=1, kernel=kernel, keep_documents=True)
    assert np.array_equal(found.document_topics.sum(1), [0.0, 2.0, 0.0])
    for nothing in (local.from_counts([0, 0], [], []), local.from_counts([0], [], [])):
        none = np.ones((0, 4), np.float32)
        assert local.gibbs(0, nothing, none, 0.1, sweeps=2, burn_in=0, kernel=kernel).counts.shape == (0, 4)


def test_counts_of_zero_give_no_token():
    batch = local.from_counts([0, 3], [8, 2, 5], [1, 0, 2.0])
    assert batch.distinct.tolist() == [5, 8] and batch.tokens.tolist() == [1, 0, 0]
    assert batch.indptr.tolist() == [0, 3] and (batch.num_documents, batch.num_tokens) == (1, 3)


def test_bad_input():
    batch, weights = local.from_counts([0, 1], [0], [2]), np.ones((1, 3), np.float32)
    options = {"sweeps": 2, "burn_in": 1}
    for wrong in (
        np.ones((2, 3)),
        np.ones(3),
        np.ones((1, 0)),
        [[1.0, np.nan, 1.0]],
        [[1.0, -1.0, 1.0]],
        [[np.inf] * 3],
    ):
        with pytest.raises(InvalidValueError, match="weights"):
            local.gibbs(0, batch, wrong, 0.1, **options)
    for wrong in (0.0, -1.0, np.nan, [0.1, 0.1], [0.1, 0.0, 0.1]):
        with pytest.raises(InvalidValueError, match="alpha"):
            local.gibbs(0, batch, weights, wrong, **options)
    with pytest.raises(InvalidValueError, match="burn_in"):
        local.gibbs(0, batch, weights, 0.1, sweeps=2, burn_in=2)
    with pytest.raises(InvalidValueError, match="kernel"):
        local.gibbs(0, batch, weights, 0.1, kernel="fast", **options)
    for wrong in (np.array([0, 3], np.int32), np.array([-2, 0], np.int32), np.zeros(3, np.uint16)):
        with pytest.raises(InvalidValueError, match="`z`"):
            local.gibbs(0, batch, weights, 0.1, z=wrong, **options)
    with pytest.raises(InvalidTypeError, match="`z`"):
        local.gibbs(0, batch, weights, 0.1, z=np.zeros(2), **options)
    for indptr, words, counts in (([0, 2], [0], [1]), ([0, 1], [-1], [1]), ([0, 1], [0], [-1]), ([0, 1], [0, 1], [1])):
        with pytest.raises(InvalidValueError):
            local.from_counts(indptr, words, counts)
    with pytest.raises(InvalidValueError, match="must not decrease"):
        local.from_counts([0, 2, 1, 2], [0, 1], [1, 1])
    with pytest.raises(InvalidValueError, match="documents"):
        local.from_counts([0, 1], [0], [1], documents=[-1])
