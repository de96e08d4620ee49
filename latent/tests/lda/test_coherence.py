"""Coherence against its definition, pair by pair and document by document."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp

from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco_latent.lda.coherence import coherence
from scirocco_latent.lda.corpus import as_corpus
from scirocco_latent.lda.sizes import FITTING

pytestmark = pytest.mark.unit

V = 12


def random_counts(seed, num_documents=40, density=0.25):
    rng = np.random.default_rng([seed, 61])
    counts = rng.integers(1, 4, (num_documents, V)) * (rng.random((num_documents, V)) < density)
    counts[0, 0] = 1
    counts[:, V - 1] = 0  # a word that never comes
    counts[3] = 0
    return counts


def by_definition(words, counts, measure):
    documents = [set(np.flatnonzero(row)) for row in counts if row.any()]
    terms = []
    for i in range(len(words)):
        for j in range(i):
            v, w = words[j], words[i]  # v stands higher
            num_v, num_w = (sum(word in document for document in documents) for word in (v, w))
            both = sum(v in document and w in document for document in documents)
            if measure == "umass":
                if num_v:
                    terms.append(math.log((both + 1) / num_v))
            elif both == 0 or both == len(documents):
                terms.append(1.0 if both else -1.0)
            else:
                p, p_v, p_w = (n / len(documents) for n in (both, num_v, num_w))
                terms.append(math.log(p / (p_v * p_w)) / -math.log(p))
    return sum(terms) / len(terms) if terms else math.nan


@pytest.mark.parametrize("measure", ["npmi", "umass"])
@pytest.mark.parametrize("chunk", [7, 1_000])
def test_definition(seed, measure, chunk, changed):
    changed(FITTING, counted_documents=chunk)
    counts = random_counts(seed)
    top = np.stack([np.random.default_rng([seed, k]).permutation(V)[:5] for k in range(6)])
    wanted = [by_definition(words, counts, measure) for words in top]
    np.testing.assert_allclose(coherence(top, sp.csr_array(counts), measure), wanted, rtol=1e-12)


def test_limits():
    counts = np.array([[1, 2, 1, 0], [1, 1, 0, 0], [3, 1, 0, 0]])
    assert coherence([[0, 1]], counts)[0] == 1.0  # both in every document
    assert coherence([[2, 3]], counts)[0] == -1.0  # never together
    assert np.isnan(coherence([[3, 2]], counts, "umass")[0])  # the upper word is in no document
    assert coherence([[0, 3, 2]], counts, "umass")[0] == pytest.approx((math.log(1 / 3) + math.log(2 / 3)) / 2)


def test_counts_are_seen_as_presence():
    counts = random_counts(0)
    top = [[0, 1, 2, 3], [4, 5, 6, 7]]
    np.testing.assert_array_equal(coherence(top, counts), coherence(top, np.minimum(counts, 1)))


def test_empty_documents_change_nothing():
    counts = random_counts(1)
    more = np.concatenate([counts, np.zeros((9, V), int)])
    for measure in ("npmi", "umass"):
        np.testing.assert_array_equal(coherence([[0, 1, 2]], counts, measure), coherence([[0, 1, 2]], more, measure))


def test_independent_words_have_npmi_near_zero(seed):
    """With D independent documents the mean of the pairs' NPMI is 0 up to O(1/√D): 6 standard errors."""
    num_documents = 20_000
    present = np.random.default_rng([seed, 62]).random((num_documents, 5)) < 0.3
    present[:, 4] = True  # so that no document is empty, which would not count
    value = coherence([[0, 1, 2, 3]], as_corpus(present.astype(int)))[0]
    # the delta method: sd of log p̂(v, w) − log p̂(v) − log p̂(w) is 0.7 / (0.3 √D), over −log 0.09, six pairs
    standard_error = 0.7 / (0.3 * math.sqrt(num_documents)) / -math.log(0.09) / math.sqrt(6)
    assert abs(value) < 6 * standard_error


ROWS = {
    "id = V": (lambda c: coherence([[0, V]], c), InvalidValueError, ("topic 0", f"word id {V}", f"0..{V - 1}")),
    "negative id": (lambda c: coherence([[0, 1], [-1, 0]], c), InvalidValueError, ("topic 1", "-1")),
    "a word twice": (lambda c: coherence([[0, 1], [2, 2]], c), InvalidValueError, ("topic 1", "twice")),
    "one word": (lambda c: coherence([[0]], c), InvalidValueError, ("two words", "(1, 1)")),
    "one topic without its axis": (lambda c: coherence([0, 1], c), InvalidValueError, ("topics × words",)),
    "words": (lambda c: coherence([["sun", "moon"]], c), InvalidTypeError, ("word ids", "vocabulary")),
    "measure": (lambda c: coherence([[0, 1]], c, "c_v"), InvalidValueError, ("'npmi', 'umass'", "'c_v'")),
}


@pytest.mark.parametrize("name", ROWS)
def test_message(name):
    attempt, error, phrases = ROWS[name]
    with pytest.raises(error) as caught:
        attempt(random_counts(0))
    for phrase in phrases:
        assert phrase in str(caught.value), str(caught.value)
