"""Topics matched across chains, their distances, draws in one order, and the form for pyLDAvis."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.spatial.distance import cosine, jensenshannon

from scirocco.errors import InvalidValueError
from scirocco_latent.lda import alignment
from scirocco_latent.lda.alignment import align, topic_distance
from scirocco_latent.lda.coherence import to_pyldavis
from scirocco_latent.lda.model import InOneOrder
from scirocco_latent.lda.sizes import FITTING

pytestmark = pytest.mark.unit

MEASURES = alignment.MEASURES


def random_topics(seed, num_topics=5, num_words=30, concentration=0.2):
    return np.random.default_rng([seed, 71]).dirichlet(np.full(num_words, concentration), num_topics)


def by_definition(p, q, measure):
    if measure == "hellinger":
        return np.sqrt(0.5 * np.sum((np.sqrt(p) - np.sqrt(q)) ** 2))
    return jensenshannon(p, q, 2.0) if measure == "jensen_shannon" else cosine(p, q)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("block", [7, 4_096])
def test_distances_by_definition(seed, measure, block, changed):
    changed(FITTING, compared_words=block)
    a, b = random_topics(seed), random_topics(seed + 1_000, num_topics=3)
    b[0, :10] = 0.0
    b[0] /= b[0].sum()
    wanted = [[by_definition(p, q, measure) for q in b] for p in a]
    np.testing.assert_allclose(topic_distance(7.0 * a, b * [[1.0], [20.0], [0.3]], measure), wanted, atol=1e-7)


@pytest.mark.parametrize("measure", MEASURES)
def test_distance_ends(measure):
    a = np.array([[1, 1, 0, 0], [0, 0, 2, 1]], np.float32)
    np.testing.assert_allclose(topic_distance(a, a, measure), [[0, 1], [1, 0]], atol=1e-7)


@pytest.mark.parametrize("measure", MEASURES)
def test_renumbered_topics_are_found(seed, measure):
    rng = np.random.default_rng([seed, 72])
    topics = random_topics(seed, num_topics=12, num_words=60)
    orders = np.stack([rng.permutation(12) for _ in range(3)])
    shuffled = np.stack([topics[order] for order in orders])
    found = align(topics, shuffled, measure)
    for chain, order in zip(shuffled, found, strict=True):
        np.testing.assert_array_equal(chain[order], topics)


def test_matching_is_the_best_of_all(seed):
    a, b = random_topics(seed), random_topics(seed + 500)
    distance = topic_distance(a, b)
    best = min(sum(distance[k, order[k]] for k in range(5)) for order in itertools.permutations(range(5)))
    order = align(a, b[None])[0]
    assert sorted(order) == list(range(5))
    assert distance[np.arange(5), order].sum() == pytest.approx(best, abs=1e-12)


def test_draws_in_one_order_are_read_by_any_index():
    """As the array with the topics of each chain moved, along one axis of a draw or two."""
    draws = np.arange(3 * 4 * 2 * 2 * 5).reshape(3, 4, 2, 2, 5)
    orders = np.array([[0, 1], [1, 0], [1, 0]])
    for axes in ((0,), (1,), (0, 1)):
        expected = draws.copy()
        for axis in axes:
            expected[1:] = np.flip(expected[1:], axis + 2)
        found = InOneOrder(draws, orders, axes)
        assert (found.shape, found.ndim, len(found)) == (draws.shape, 5, 3)
        np.testing.assert_array_equal(found, expected)
        for index in (1, (2, 3), (..., 4), (slice(1, None), slice(0, 3, 2), 1), (1, 2, 0, slice(None), -1)):
            np.testing.assert_array_equal(found[index], expected[index])
    assert draws[1, 0, 0, 0, 0] == 80  # the array itself stays as it is


ROWS = {
    "other words": (lambda: topic_distance(np.ones((2, 3)), np.ones((2, 4))), ("3 words", "`b` 4")),
    "negative": (lambda: topic_distance([[1.0, -1.0]], [[1.0, 1.0]]), ("`a`", "topic 0, word 1", "-1.0")),
    "NaN": (lambda: topic_distance([[1.0, 1.0]], [[1.0, np.nan]]), ("`b`", "nan")),
    "no weight": (lambda: topic_distance([[1.0, 1.0], [0.0, 0.0]], [[1.0, 1.0]]), ("topic 1", "only zero weights")),
    "one topic without its axis": (lambda: topic_distance([1.0], [[1.0]]), ("topics × words", "(1,)")),
    "measure": (lambda: topic_distance([[1.0]], [[1.0]], "kl"), ("'hellinger'", "'kl'")),
    "one chain without its axis": (lambda: align(np.ones((2, 3)), np.ones((2, 3))), ("others[None]", "(2, 3)")),
    "other number of topics": (lambda: align(np.ones((2, 3)), np.ones((1, 4, 3))), ("(2, 3)", "(1, 4, 3)")),
}


@pytest.mark.parametrize("name", ROWS)
def test_message(name):
    attempt, phrases = ROWS[name]
    with pytest.raises(InvalidValueError) as caught:
        attempt()
    for phrase in phrases:
        assert phrase in str(caught.value), str(caught.value)


# ----------------------------------------------------------------------------------------------- pyLDAvis

GOOD = {
    "components": [[3.0, 1.0, 0.0], [0.0, 2.0, 2.0]],
    "doc_topic": [[1.0, 3.0], [0.0, 0.0], [2.0, 0.0]],
    "doc_lengths": [4, 0, 2],
    "vocabulary": ["sun", "moon", "star"],
    "term_frequency": [4, 2, 0],
}


def test_pyldavis_rows_sum_to_one_and_what_never_comes_is_left_out():
    view = to_pyldavis(**GOOD)
    np.testing.assert_allclose(view["topic_term_dists"], [[0.75, 0.25], [0.0, 1.0]])
    np.testing.assert_allclose(view["doc_topic_dists"], [[0.25, 0.75], [1.0, 0.0]])
    assert view["vocab"] == ["sun", "moon"]
    assert view["doc_lengths"].tolist() == [4, 2] and view["term_frequency"].tolist() == [4, 2]


PYLDAVIS = {
    "topics": ({"doc_topic": [[1.0], [0.0], [1.0]]}, ("2 topics", "1 (columns)")),
    "lengths": ({"doc_lengths": [4, 2]}, ("`doc_lengths`", "3 documents", "(2,)")),
    "vocabulary": ({"vocabulary": ["sun", "moon"]}, ("`vocabulary`", "3 words", "got 2")),
    "no vocabulary": ({"vocabulary": None}, ("`vocabulary`", "got none")),
    "frequency": ({"term_frequency": [4, 2]}, ("`term_frequency`", "3 words")),
    "NaN": ({"components": [[np.nan, 1, 1], [1, 1, 1]]}, ("`components`", "(0, 0)", "nan")),
    "negative": ({"doc_topic": [[1.0, -1.0]] * 3}, ("`doc_topic`", "(0, 1)")),
    "a document with tokens but no topics": ({"doc_lengths": [4, 1, 2]}, ("row 1", "`doc_topic`")),
    "no tokens": ({"doc_lengths": [0, 0, 0]}, ("must not be all zeros",)),
}


@pytest.mark.parametrize("name", PYLDAVIS)
def test_pyldavis_message(name):
    changes, phrases = PYLDAVIS[name]
    with pytest.raises(InvalidValueError) as caught:
        to_pyldavis(**(GOOD | changes))
    for phrase in phrases:
        assert phrase in str(caught.value), str(caught.value)
