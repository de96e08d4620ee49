"""Topics of two models matched one to one."""

from __future__ import annotations

import numpy as np
import pytest

from fitted_topics import model_of

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")

from scirocco.errors import InvalidValueError
from scirocco_latent.lda.describing import compare, same_words

pytestmark = pytest.mark.unit

WORDS = tuple("abcdefgh")


def random_topics(seed, num_topics, num_words=8):
    return np.random.default_rng([seed, 5]).dirichlet(np.full(num_words, 0.3), num_topics)


def test_renumbered_topics_find_each_other(seed, tmp_path):
    topics = random_topics(seed, 4)
    order = np.random.default_rng([seed, 6]).permutation(4)
    first = model_of(tmp_path / "a", topics[None, None], WORDS)
    second = model_of(tmp_path / "b", topics[order][None, None], WORDS)
    found = compare(first, second)
    assert {(a, b) for a, b, _ in found.pairs} == {(int(order[b]), b) for b in range(4)}
    assert all(distance < 1e-3 for _, _, distance in found.pairs)
    assert (found.only_first, found.only_second, found.num_words) == ([], [], 8)


def test_words_in_another_order_and_words_of_one_alone(seed, tmp_path):
    """Over the common words both are the same, whatever else they hold."""
    topics = random_topics(seed, 3)
    first = model_of(tmp_path / "a", topics[None, None], WORDS)
    more = np.concatenate([0.5 * topics[:, ::-1], np.full((3, 2), 0.25)], axis=1)
    second = model_of(tmp_path / "b", more[None, None], (*WORDS[::-1], "y", "z"))
    assert not same_words(first, second)
    found = compare(first, second)
    assert {(a, b) for a, b, _ in found.pairs} == {(0, 0), (1, 1), (2, 2)} and found.num_words == 8
    assert max(pair.distance for pair in found.pairs) < 1e-3


def test_topics_without_a_partner(tmp_path):
    """Equal, half in common (√(1 − √½) ≈ 0.54), nothing in common; and more topics than the other has."""
    first = model_of(tmp_path / "a", [[[[1, 0, 0, 0], [0, 1, 0, 0]]]])
    second = model_of(tmp_path / "b", [[[[0, 0.5, 0.5, 0], [0, 0, 0, 1], [1, 0, 0, 0]]]])
    near = compare(first, second, 0.5)
    assert [pair[:2] for pair in near.pairs] == [(0, 2)]
    assert (near.only_first, near.only_second) == ([1], [0, 1])
    far = compare(first, second, 0.6)
    assert [pair[:2] for pair in far.pairs] == [(0, 2), (1, 0)]
    assert far.pairs[1].distance == pytest.approx(np.sqrt(1 - np.sqrt(0.5)), abs=1e-6)
    assert (far.only_first, far.only_second) == ([], [1])


def test_models_that_cannot_be_compared(tmp_path):
    with_words = model_of(tmp_path / "a", [[[[0.5, 0.5], [0.5, 0.5]]]], ("a", "b"))
    other = model_of(tmp_path / "b", [[[[0.5, 0.5], [0.5, 0.5]]]], ("c", "d"))
    longer = model_of(tmp_path / "c", [[[[0.5, 0.25, 0.25]] * 2]])
    with pytest.raises(InvalidValueError, match="disjoint"):
        compare(with_words, other)
    with pytest.raises(InvalidValueError, match="have 2 and 3 words, and at least one has no vocabulary"):
        compare(with_words, longer)
