"""Which rows are drawn: exact statements by enumeration where there are few, counts with z-scores where not."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import helpers
from scirocco.data import batching
from scirocco.data.batching import Blocks, IndependentRows
from scirocco.data.unequal import StratifiedRows, WeightedRows
from scirocco.errors import InvalidValueError

pytestmark = pytest.mark.compile

SHAPES = [(12, 3), (65, 16), (7, 7), (9, 1)]


@pytest.fixture(autouse=True, scope="module")
def _quick(quick_compiler):
    """Plans are a few numbers."""


@functools.partial(jax.jit, static_argnums=0)
def plans_of(how, keys, steps):
    """The plans of many steps for many keys."""
    return jax.vmap(lambda key: jax.vmap(lambda step: how.plan(key, step))(steps))(keys)


def keys_of(seed, count):
    return jax.random.split(jax.random.key(seed), count)


# -- blocks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_rows", "size"), SHAPES)
def test_every_window_start_is_equally_likely(num_rows, size, seed, monkeypatch):
    """Whatever the order of an epoch's windows, its offsets, one word each, lead to every start exactly once."""
    how = Blocks(num_rows, size)
    order_words = np.random.default_rng([seed, 5]).integers(0, 2**32, (4, 2), dtype=np.uint32)
    offset_words = np.array([(2 * k + 1) * 2**31 // num_rows for k in range(num_rows)], np.uint32)
    given = {}
    monkeypatch.setattr(batching, "epoch_words", lambda key, epoch, count: given["words"])

    @jax.jit
    def start(order, offset, step):
        given["words"] = jnp.append(order, offset)
        return how.plan(jax.random.key(0), step)

    grid = jax.vmap(jax.vmap(jax.vmap(start, (None, 0, None)), (None, None, 0)), (0, None, None))
    starts = np.asarray(grid(order_words, offset_words, jnp.arange(how.epoch)))
    assert starts.shape == (4, how.epoch, num_rows)
    np.testing.assert_array_equal(np.sort(starts, axis=-1), np.broadcast_to(np.arange(num_rows), starts.shape))


@pytest.mark.parametrize(("num_rows", "size"), SHAPES)
def test_no_row_comes_twice_in_an_epoch(num_rows, size, seed):
    how = Blocks(num_rows, size)
    starts = np.asarray(plans_of(how, keys_of(seed, 50), jnp.arange(3 * how.epoch))).reshape(50, 3, how.epoch)
    rows = (starts[..., None] + np.arange(size)) % num_rows
    rows = np.sort(rows.reshape(50, 3, -1), axis=-1)
    assert np.all(np.diff(rows, axis=-1) > 0)
    if num_rows % size == 0:
        np.testing.assert_array_equal(rows, np.broadcast_to(np.arange(num_rows), rows.shape))


def test_epochs_differ_in_order_and_offset(seed):
    how = Blocks(64, 4)
    starts = np.asarray(plans_of(how, keys_of(seed, 20), jnp.arange(3 * how.epoch))).reshape(60, how.epoch)
    assert len(np.unique(starts, axis=0)) == 60, "two epochs (or two keys) walk through the data in the same order"
    assert len(np.unique(starts[:, 0] % 4)) == 4, "the offset never changes"


def test_window_starts_are_uniform_and_independent_between_epochs(seed):
    how = Blocks(20, 5)
    starts = np.asarray(plans_of(how, keys_of(seed, 4_000), jnp.array([1, 1 + how.epoch])))
    counts = np.zeros((20, 20))
    np.add.at(counts, (starts[:, 0], starts[:, 1]), 1)
    z = helpers.chi_square_z(np.sum((counts - 10.0) ** 2 / 10.0), 399)
    assert abs(z) < 5


@pytest.mark.parametrize(("num_rows", "size"), SHAPES)
def test_arranged_rows_are_the_data_and_windows_never_leave_them(num_rows, size, seed):
    how = Blocks(num_rows, size)
    data = {"a": np.arange(num_rows), "b": np.arange(2 * num_rows).reshape(num_rows, 2)}
    arranged = how.arrange(data, seed)
    assert arranged["a"].shape == (num_rows + size - 1,)
    np.testing.assert_array_equal(np.sort(arranged["a"][:num_rows]), np.arange(num_rows))
    rows, index = jax.jit(jax.vmap(lambda start: how.take(arranged, start)[:2]))(jnp.arange(num_rows))
    np.testing.assert_array_equal(rows["a"], arranged["a"][np.asarray(index)])
    np.testing.assert_array_equal(rows["b"][..., 0], 2 * rows["a"])
    np.testing.assert_array_equal(index, (np.arange(num_rows)[:, None] + np.arange(size)) % num_rows)
    if num_rows > 8:
        assert not np.array_equal(arranged["a"], how.arrange(data, seed + 1)["a"]), "the seed must decide the shuffle"


# -- independent rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_rows", "size"), SHAPES)
def test_without_replacement_rows_are_distinct(num_rows, size, seed):
    how = IndependentRows(num_rows, size, replace=False)
    plans = np.sort(plans_of(how, keys_of(seed, 50), jnp.arange(10)), axis=-1)
    assert plans.min() >= 0
    assert plans.max() < num_rows
    assert np.all(np.diff(plans, axis=-1) > 0)


def indicators(how, seed, count):
    """A 0/1 matrix: batch × row."""
    plans = np.asarray(plans_of(how, keys_of(seed, count // 4), jnp.arange(4))).reshape(count, how.size)
    chosen = np.zeros((count, how.num_rows))
    np.add.at(chosen, (np.arange(count)[:, None], plans), 1)
    return chosen


def test_without_replacement_every_row_and_every_pair_is_equally_likely(seed):
    num_rows, size, count = 20, 5, 8_000
    chosen = indicators(IndependentRows(num_rows, size, replace=False), seed, count)
    share = size / num_rows
    counts = chosen.sum(axis=0)
    # The counts are negatively correlated; scaled by N/(N-1) they make an exact chi-square with N-1 degrees.
    scale = count * share * (1 - share) * num_rows / (num_rows - 1)
    assert abs(helpers.chi_square_z(np.sum((counts - count * share) ** 2) / scale, num_rows - 1)) < 5
    pairs = (chosen.T @ chosen)[np.triu_indices(num_rows, 1)]
    both = share * (size - 1) / (num_rows - 1)
    z = (pairs - count * both) / np.sqrt(count * both * (1 - both))
    assert np.max(np.abs(z)) < 5


def test_with_replacement_rows_are_independent(seed):
    num_rows, count = 10, 8_000
    plans = np.asarray(
        plans_of(IndependentRows(num_rows, 2, replace=True), keys_of(seed, count // 4), jnp.arange(4))
    ).reshape(count, 2)
    counts = np.zeros((num_rows, num_rows))
    np.add.at(counts, (plans[:, 0], plans[:, 1]), 1)
    expected = count / num_rows**2
    assert abs(helpers.chi_square_z(np.sum((counts - expected) ** 2) / expected, num_rows**2 - 1)) < 5


@pytest.mark.parametrize("replace", [True, False])
def test_successive_batches_are_independent(replace, seed):
    """Whether row 0 is in one batch says nothing about the next."""
    how = IndependentRows(8, 4, replace=replace)
    plans = np.asarray(plans_of(how, keys_of(seed, 2_000), jnp.arange(2)))
    inside = (plans == 0).any(axis=-1)
    share = 1 - (7 / 8) ** 4 if replace else 0.5
    both = inside.all(axis=1).mean()
    z = (both - share**2) / np.sqrt(share**2 * (1 - share**2) / len(inside))
    assert abs(z) < 5


# -- weighted rows --------------------------------------------------------------------------------------------

PROBABILITIES = {
    "uniform": np.ones(7),
    "uneven": np.array([1e-6, 0.1, 3.0, 7.0, 0.5, 0.5, 2.0]),
    "nearly-never": np.array([1.0, 1.0, 5e-10]),
    "one-row": np.array([3.0]),
    "many": 1.0 + np.arange(1_000) % 17,
}


def shares_of(how):
    """The exact probability of each row: its number of 32-bit words, over 2³²."""
    last = np.asarray(how.edges).astype(np.int64)
    return np.diff(last, prepend=-1) / 2.0**32


@pytest.mark.parametrize("name", PROBABILITIES)
def test_importance_weights_leave_the_sum_unbiased(name):
    """Σ_i p_i · n w_i f_i = Σ_i f_i for every f, with the probabilities as they are after rounding to 32 bits."""
    p = PROBABILITIES[name]
    size = 4
    how = WeightedRows.from_probabilities(p, len(p), size)
    shares = shares_of(how)
    assert shares.sum() == 1.0
    np.testing.assert_allclose(shares, p / p.sum(), atol=1.0 / 2**32)
    np.testing.assert_allclose(shares * size * np.asarray(how.weights, np.float64), 1.0, rtol=2.0**-23)


@pytest.mark.parametrize("name", PROBABILITIES)
def test_each_word_draws_the_row_it_belongs_to(name, monkeypatch):
    """The first and the last word of every row's stretch, through the plan itself."""
    p = PROBABILITIES[name]
    how = WeightedRows.from_probabilities(p, len(p), len(p))
    last = np.asarray(how.edges)
    first = np.concatenate([[0], last[:-1].astype(np.int64) + 1]).astype(np.uint32)
    for words in (first, last):
        monkeypatch.setattr(jax.random, "bits", lambda key, shape, dtype, words=words: jnp.asarray(words))
        np.testing.assert_array_equal(how.plan(jax.random.key(0), jnp.array(0)), np.arange(len(p)))


def test_weighted_rows_come_as_often_as_asked(seed):
    p = np.array([0.05, 0.15, 0.3, 0.5])
    plans = np.asarray(plans_of_weighted(p, keys_of(seed, 5_000))).reshape(-1)
    counts = np.bincount(plans, minlength=4)
    expected = len(plans) * p
    assert abs(helpers.chi_square_z(np.sum((counts - expected) ** 2 / expected), 3)) < 5


def plans_of_weighted(p, keys):
    how = WeightedRows.from_probabilities(p, len(p), 4)
    return jax.jit(jax.vmap(lambda key: how.plan(key, jnp.array(0))))(keys)


# -- batches as estimators meet them --------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", batching.SAMPLING)
def test_take_fetches_the_rows_of_its_plan(sampling, seed):
    how = batching.batching(6, 20, sampling)
    data = how.arrange({"x": np.arange(20.0, dtype=np.float32), "y": np.arange(40).reshape(20, 2)}, seed)
    arrays = jax.tree.map(jnp.asarray, data)
    batch = how.take(arrays, how.plan(jax.random.key(seed), jnp.array(3)))
    np.testing.assert_array_equal(batch.rows["x"], data["x"][np.asarray(batch.index)])
    np.testing.assert_array_equal(batch.rows["y"], data["y"][np.asarray(batch.index)])
    assert (batch.num_rows, batch.scale) == (20, 20 / 6)


@pytest.mark.parametrize("sampling", batching.SAMPLING)
def test_plans_of_one_key_do_not_depend_on_how_they_are_asked_for(sampling, seed):
    how = batching.batching(5, 23, sampling)
    key = jax.random.key(seed)
    together = plans_of(how, key[None], jnp.arange(12))[0]
    for step in (0, 5, 11):
        np.testing.assert_array_equal(jax.jit(how.plan)(key, jnp.array(step)), together[step])


def test_batch_larger_than_the_data_is_refused():
    for sampling, size in itertools.product(batching.SAMPLING, (11, 1_000)):
        with pytest.raises(InvalidValueError, match=rf"`batch_size` is {size}, but the data have only 10 rows"):
            batching.batching(size, 10, sampling)


# -- strata ------------------------------------------------------------------------------------------------------------

STRATA = np.repeat(["b", "a", "c", "d"], [40, 7, 1, 12])[np.random.default_rng(4).permutation(60)]


def test_every_stratum_has_its_share_of_places():
    how = StratifiedRows.from_strata(STRATA, 60, 12)
    rows = np.asarray(jax.jit(how.plan)(jax.random.key(0), 3))
    labels, places = np.unique(STRATA[rows], return_counts=True)
    assert labels.tolist() == ["a", "b", "c", "d"]
    assert places.tolist() == [1, 8, 1, 2]
    assert len(set(rows.tolist())) == 12
    np.testing.assert_allclose(np.asarray(how.weights).sum(), 60.0)


@pytest.mark.parametrize("size", [4, 13, 59, 60])
def test_all_places_are_shared_out(size):
    how = StratifiedRows.from_strata(STRATA, 60, size)
    rows = np.asarray(jax.jit(how.plan)(jax.random.key(1), 0))
    assert len(set(rows.tolist())) == size
    weights = np.asarray(how.weights)
    totals = {label: weights[STRATA[rows] == label].sum() for label in "abcd"}
    assert totals == pytest.approx({"a": 7, "b": 40, "c": 1, "d": 12})


def test_stratified_sums_are_unbiased_and_have_their_own_variance(seed):
    """Σ_s N_s²/n_s S_s² (1 - n_s/N_s): only the spread within strata counts."""
    values = np.random.default_rng(seed).normal(size=60) + 10.0 * (STRATA == "b")
    how = StratifiedRows.from_strata(STRATA, 60, 12)
    plans = jax.jit(jax.vmap(lambda step: how.plan(jax.random.key(seed), step)))(np.arange(40_000))
    sums = (values[np.asarray(plans)] * np.asarray(how.weights)).sum(axis=1)
    variance = 0.0
    for label, places in (("a", 1), ("b", 8), ("c", 1), ("d", 2)):
        inside = values[STRATA == label]
        if len(inside) > 1:
            variance += len(inside) ** 2 / places * inside.var(ddof=1) * (1 - places / len(inside))
    assert abs(sums.mean() - values.sum()) < 5 * np.sqrt(variance / len(sums))
    squares = (sums - values.sum()) ** 2
    assert abs(squares.mean() - variance) < 5 * squares.std() / np.sqrt(len(sums))
