"""Topics as a reader wants them: order, shares, intervals, R-hat; also of runs that are not finished."""

from __future__ import annotations

import numpy as np
import pytest

from fitted_topics import model_of

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")

from scirocco.errors import InvalidValueError, SciroccoError
from scirocco.models import LDA
from scirocco_latent.lda.alignment import align
from scirocco_latent.lda.describing import summarise
from scirocco_latent.lda.results import largest

pytestmark = pytest.mark.unit

WORDS = ("sun", "moon", "cow", "horse")


def counts(seed, sizes=(90, 30)):
    """Two topics without a common word; the first has three times as many tokens."""
    rng = np.random.default_rng([seed, 8])
    return np.concatenate([rng.poisson([8, 8, 0, 0], (sizes[0], 4)), rng.poisson([0, 0, 8, 8], (sizes[1], 4))])


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    model = LDA(3, alpha=0.01, beta=0.1, batch_size=40, num_chains=2, num_samples=20, seed=3)
    return path, model.fit(counts(0), vocabulary=WORDS, num_epochs=30, store=path, progress=False)


def test_a_stored_fit(stored):
    """The largest topic comes first; shares are means over the draws, chains matched."""
    path, model = stored
    found = summarise(LDA.load(path), 2, 0.8)
    means = np.asarray(model.run_.draws["topics"]).mean(axis=1)
    order = align(means[0], means[1:])[0]
    drawn = np.asarray(model.run_.stats["shares"])
    first, second = (np.bincount(state["memory"], minlength=3) for state in model._states())
    np.testing.assert_allclose(drawn[:, -1] * counts(0).sum(), [first, second])  # the last draw is the last state
    shares = (drawn[0] + drawn[1][:, order]).mean(axis=0) / 2
    assert [topic.number for topic in found] == np.argsort(-shares).tolist()
    assert [topic.share for topic in found] == pytest.approx(np.sort(shares)[::-1])
    listed = model.top_words(2, interval=0.8)
    for topic in found:
        assert [tuple(word) for word in topic.words] == listed[topic.number]
        assert topic.rhat > 0.9


def test_rhat_tells_chains_apart_and_is_of_matched_topics(tmp_path, seed):
    """Chains that number their topics differently agree; chains with other topics do not."""
    rng = np.random.default_rng([seed, 9])
    draws = rng.dirichlet([800, 150, 40, 10], (2, 50, 2))
    draws[:, :, 1] = draws[:, :, 1, ::-1]
    draws[1] = draws[1][:, ::-1]
    assert max(topic.rhat for topic in summarise(model_of(tmp_path / "same", draws), 3)) < 1.2
    draws[1, :, 0] = rng.dirichlet([500, 300, 100, 100], 50)
    found = summarise(model_of(tmp_path / "other", draws), 3)
    assert max(topic.rhat for topic in found) > 1.5 > 1.2 > min(topic.rhat for topic in found)


def test_topics_with_a_name_are_those_with_the_name(tmp_path, seed):
    """Of other chains too, even if another topic is nearer to them."""
    rng = np.random.default_rng([seed, 11])
    draws = rng.dirichlet([700, 200, 90, 10], (2, 30, 3))
    draws[:, :, 1] = draws[:, :, 1, ::-1]
    draws[1] = draws[1][:, [1, 0, 2]]
    free, named = (model_of(tmp_path / str(len(names)), draws, names=names) for names in ((), ("sky", "farm")))
    swapped = [1, 0, 2]
    np.testing.assert_array_equal(named.draws_["topics"], np.float32(draws))
    assert named.rhat()[:2].min() > 1.5 > free.rhat()[1]
    np.testing.assert_array_equal(free.draws_["topics"][1][:, 1], np.float32(draws[1][:, swapped[1]]))


def test_what_is_not_known_is_left_out(tmp_path, seed):
    """Draws alone tell no shares of topics; one chain has no R-hat."""
    draws = np.random.default_rng([seed, 10]).dirichlet(np.ones(5), (1, 4, 3))
    found = summarise(model_of(tmp_path / "saved", draws), 2)
    assert [topic.number for topic in found] == [0, 1, 2]
    assert all(topic.share is None and topic.rhat is None for topic in found)
    assert all(word.word.isdigit() for topic in found for word in topic.words)


def test_a_run_in_its_burn_in(tmp_path):
    def stop(report):
        report.stop()

    with pytest.raises(InvalidValueError, match="stopped in its burn-in"):
        LDA(2, batch_size=40).fit(counts(1), num_epochs=50, store=tmp_path / "run", callbacks=[stop], progress=False)
    with pytest.raises(InvalidValueError, match=r"has no draws yet \(stopped in its burn-in"):
        LDA.load(tmp_path / "run")
    with pytest.raises(SciroccoError, match="is not a scirocco run"):
        LDA.load(tmp_path)


def test_top_words_from_draws_that_are_at_hand(stored):
    model = stored[1]
    drawn = model.top_draws(3)
    assert drawn.draws.shape == (*model.draws_["topics"].shape[:2], 3, 3)
    every = model.topics(draws=True).reshape(*drawn.draws.shape[:2], 3, len(WORDS))
    for topic, words in enumerate(drawn.words):
        np.testing.assert_array_equal(drawn.draws[:, :, topic], every[:, :, topic][..., words])
    assert model.top_words(3, interval=0.8, drawn=drawn) == model.top_words(3, interval=0.8)


def test_the_largest_weights_are_those_of_a_stable_sort(seed):
    values = np.random.default_rng([seed, 4]).integers(0, 5, 40).astype(np.float32)  # many are equal
    for num in (1, 3, 10, 39, 40, 50):
        np.testing.assert_array_equal(largest(values, num), np.argsort(-values, kind="stable")[:num])
