"""Documents that are kept back: which, how many, and that a part of a corpus is what it says."""

from __future__ import annotations

import numpy as np
import pytest

from scirocco.errors import InvalidValueError
from scirocco_latent.lda import as_corpus
from scirocco_latent.lda.prediction import hold_out, part

pytestmark = pytest.mark.unit


def corpus_of(seed, num_documents=300, mean=4.0):
    counts = np.random.default_rng([seed, 31]).poisson(mean, (num_documents, 5))
    counts[7] = 0
    return counts, as_corpus(counts)


def dense(corpus):
    indptr, words, counts = corpus.take_csr(np.arange(corpus.num_documents))
    out = np.zeros((corpus.num_documents, corpus.vocabulary_size), int)
    out[np.repeat(np.arange(len(out)), np.diff(indptr)), words] = counts
    return out


def test_a_part_is_its_rows(seed):
    counts, corpus = corpus_of(seed)
    rows = np.array([7, 3, 250])
    some = part(corpus, rows)
    np.testing.assert_array_equal(dense(some), counts[rows])
    assert (some.num_tokens, some.num_empty) == (counts[rows].sum(), (counts[rows].sum(axis=1) == 0).sum())
    assert some.source.fingerprint() != part(corpus, rows[::-1]).source.fingerprint()
    assert some.source.fingerprint() == part(corpus_of(seed)[1], rows).source.fingerprint()


def test_every_document_is_in_one_of_two_parts(seed):
    counts, corpus = corpus_of(seed)
    fitted, held = hold_out(corpus, 0.2, seed)
    assert (fitted.num_documents, held.num_documents) == (240, 60)
    assert fitted.num_tokens + held.num_tokens == corpus.num_tokens
    together = np.concatenate([dense(fitted), dense(held)])
    assert sorted(map(tuple, together)) == sorted(map(tuple, counts))
    again = hold_out(corpus, 0.2, seed)[1]
    np.testing.assert_array_equal(dense(again), dense(held))
    assert not np.array_equal(dense(hold_out(corpus, 0.2, seed + 1)[1]), dense(held))


def test_one_in_a_hundred_unless_that_is_too_little(seed):
    assert hold_out(corpus_of(seed)[1], None, seed)[1].num_documents == 3
    for small in (corpus_of(seed, num_documents=100)[1], corpus_of(seed, mean=0.3)[1]):
        fitted, held = hold_out(small, None, seed)
        assert fitted is small and held is None
    assert hold_out(small, 0, seed)[1] is None


@pytest.mark.parametrize(
    ("share", "mean", "message"),
    [
        (1.0, 4.0, "must be >= 0 and < 1, got 1.0"),
        (-0.1, 4.0, "must be >= 0 and < 1"),
        (float("nan"), 4.0, "must be >= 0 and < 1"),
        (0.001, 4.0, "0.001 of 300 documents are 0"),
        (0.999, 4.0, "0.999 of 300 documents are 300"),
        (0.2, 0.3, "60 held-out documents have fewer than 10 words each"),
    ],
)
def test_mistakes(seed, share, mean, message):
    with pytest.raises(InvalidValueError, match=message):
        hold_out(corpus_of(seed, mean=mean)[1], share, seed)
