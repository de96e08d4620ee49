"""Lazy updates have the law of eager ones, and their running sums are the conditional means they are said to be."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from scirocco.diffusions import host
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.simplex.lazy import LazySCIR

pytestmark = pytest.mark.law

COLUMNS, SIZE, BASE = 6, 2, np.array([0.3, 0.7])
REPEATS = 20_000  # independent copies of the small problem, side by side
TIMES = (0.4, 0.2, 0.7, 0.1)
TOUCHED = ((0, 1), (1, 2), (), (0, 3, 4))  # column 5 never, column 1 twice running, none in the third step
START = np.arange(COLUMNS * SIZE).reshape(COLUMNS, SIZE) / 4.0
Z_LIMIT = 5.5  # two-sided 4e-8
BATCHES = ((4, 0, 2), (1, 2, 3), (5,))


def own_shapes(theta):
    """Shapes that depend on the state, as those estimated from a minibatch do; the concentration where it is small."""
    other = theta[..., ::-1]
    return np.where(other > 0.4, BASE + 4.0 * other, BASE)


def columns_of(touched):
    """Numbers of these columns in all copies."""
    return (np.arange(REPEATS)[:, None] * COLUMNS + np.array(touched, np.int64)).ravel()


def lazy_draws(seed):
    start = np.tile(START, (REPEATS, 1))
    lazy = LazySCIR(BASE, start, seed=(seed, 1))
    for touched, time in zip(TOUCHED, TIMES, strict=True):
        columns = columns_of(touched)
        lazy.advance(columns, own_shapes(lazy.read(columns)), time)
    return lazy


def eager_draws(seed):
    theta = np.tile(START, (REPEATS, 1))
    for step, (touched, time) in enumerate(zip(TOUCHED, TIMES, strict=True)):
        shapes = np.tile(BASE, (len(theta), 1))
        columns = columns_of(touched)
        shapes[columns] = own_shapes(theta[columns])
        theta = host.cir((seed, 100 + step), theta, shapes, time)
    return theta


def as_copies(theta):
    return theta.reshape(REPEATS, COLUMNS * SIZE)


def test_same_law_as_eager_updates(seed):
    lazy, eager = as_copies(lazy_draws(seed).catch_up()), as_copies(eager_draws(seed))
    limit = math.sqrt(math.log(2 * COLUMNS * SIZE / 1e-7) / REPEATS) * 2  # each sample within half of it of the truth
    for entry in range(COLUMNS * SIZE):
        assert stats.ks_2samp(lazy[:, entry], eager[:, entry], method="asymp").statistic < limit
    for power in (lambda x: x, lambda x: (x - eager.mean(axis=0)) ** 2):
        first, second = power(lazy), power(eager)
        z = (first.mean(axis=0) - second.mean(axis=0)) / np.sqrt((first.var(0) + second.var(0)) / REPEATS)
        assert np.abs(z).max() < Z_LIMIT


def test_entries_are_as_correlated_as_in_eager_updates(seed):
    """The shapes tie the two entries of a touched column together; other pairs stay independent."""

    def products(theta, centre):
        centred = theta - centre
        return np.einsum("ri,rj->rij", centred, centred)[:, *np.triu_indices(COLUMNS * SIZE, 1)]

    lazy, eager = as_copies(lazy_draws(seed).catch_up()), as_copies(eager_draws(seed))
    first, second = products(lazy, eager.mean(axis=0)), products(eager, eager.mean(axis=0))
    z = (first.mean(0) - second.mean(0)) / np.sqrt((first.var(0) + second.var(0)) / REPEATS)
    assert np.abs(z).max() < Z_LIMIT
    assert np.corrcoef(lazy.T)[0, 1] > 0.3  # there is something to compare


def test_untouched_columns_have_the_law_of_one_long_step(seed):
    lazy = lazy_draws(seed)
    total = sum(TIMES)
    assert lazy.now == pytest.approx(total)
    draws = lazy.catch_up().reshape(REPEATS, COLUMNS, SIZE)[:, 5, 0]
    scale, noncentrality = -math.expm1(-total), 2 * START[5, 0] / math.expm1(total)
    law = stats.ncx2(2 * BASE[0], noncentrality, scale=scale / 2)
    distance = stats.kstest(draws, law.cdf, method="asymp").statistic
    assert distance < math.sqrt(math.log(2 / 1e-7) / (2 * REPEATS))


def test_row_sums_are_conditional_means_and_their_sd_is_right(seed):
    """Many ways to go on from one state: other seeds, the same past."""
    rng = np.random.default_rng([seed, 3])
    lazy = LazySCIR(BASE, rng.gamma(0.5, size=(50, SIZE)), seed=(seed, 4))
    for time in (0.5, 0.3, 0.9):
        columns = rng.choice(50, 10, replace=False)
        shapes = np.where(rng.random((10, SIZE)) < 0.5, BASE, rng.gamma(2.0, size=(10, SIZE)))
        lazy.advance(columns, shapes, time)
    state, repeats = lazy.state(), 4_000
    sums = np.empty((repeats, SIZE))
    for repeat in range(repeats):
        sums[repeat] = LazySCIR.restore({**state, "seed": np.array([repeat, seed], np.uint64)}).catch_up().sum(axis=0)
    sd = lazy.row_sums_sd()
    assert np.all(sd > 0) and np.all(sd**2 <= 2 * lazy.row_sums())
    assert np.abs((sums.mean(axis=0) - lazy.row_sums()) / (sd / math.sqrt(repeats))).max() < Z_LIMIT
    squares = (sums - lazy.row_sums()) ** 2
    assert np.abs((squares.mean(0) - sd**2) / (squares.std(0) / math.sqrt(repeats))).max() < Z_LIMIT


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_row_sums_do_not_drift(seed, dtype):
    rng = np.random.default_rng([seed, 5])
    lazy = LazySCIR(0.05, rng.gamma(0.3, size=(300, 3)).astype(dtype), seed=seed)
    for step in range(300):
        columns = rng.choice(300, 20, replace=False)
        if step % 2:
            assert lazy.read(columns).dtype == dtype
        lazy.advance(columns, rng.gamma(1.0, size=(20, 3)) * (rng.random((20, 3)) < 0.5) + 0.05, 0.02)
    state, beta = lazy.state(), float(dtype(0.05))
    assert 0 < state["ahead"].mean() < 1
    overdue = lazy.now - state["when"][:, None] - np.where(state["ahead"], state["span"][:, None], 0.0)
    direct = np.sum(beta + (state["theta"].astype(float) - beta) * np.exp(-overdue), axis=0)
    np.testing.assert_allclose(lazy.row_sums(), direct, rtol=1e-12)
    theta = lazy.catch_up()
    np.testing.assert_allclose(lazy.row_sums(), theta.sum(axis=0, dtype=np.float64), rtol=1e-13)
    assert np.array_equal(lazy.row_sums_sd(), np.zeros(3))
    assert np.array_equal(lazy.catch_up(), theta)


def go(lazy, batches, *, read=True, order=1):
    """A few steps; returns what was read in them."""
    seen = []
    for number, batch in enumerate(batches):
        columns = np.array(batch)[::order]
        if read:
            seen.append(lazy.read(columns)[::order])
        lazy.advance(columns, 0.5 + columns[:, None] / 10 + np.arange(SIZE), 0.1 * (number + 1))
    return seen


def test_draws_do_not_depend_on_order_reading_or_threads(seed):
    start = np.tile(START, (2_000, 1))
    batches = [np.random.default_rng([seed, i]).choice(len(start), 4_000, replace=False) for i in range(3)]
    first = LazySCIR(BASE, start, seed=seed, num_threads=1)
    seen = go(first, batches)
    others = [LazySCIR(BASE, start, seed=seed, num_threads=threads) for threads in (3, None, 1)]
    assert all(np.array_equal(*pair) for pair in zip(seen, go(others[0], batches), strict=True))
    go(others[1], batches, read=False)
    go(others[2], batches, order=-1)
    assert np.array_equal(first.row_sums(), others[0].row_sums())
    expected = first.catch_up()
    for other in others:
        np.testing.assert_allclose(other.row_sums(), expected.sum(axis=0), rtol=0.2)
        assert np.array_equal(other.catch_up(), expected)
    assert not np.array_equal(LazySCIR(BASE, expected, seed=seed).read([0]), first.read([1]))


def test_goes_on_bit_for_bit():
    lazy = LazySCIR(BASE, START.astype(np.float32), seed=(3, 4))
    go(lazy, BATCHES)
    state = lazy.state()
    copy = LazySCIR.restore(state)
    seen = go(lazy, BATCHES)
    assert all(np.array_equal(*pair) for pair in zip(seen, go(copy, BATCHES), strict=True))
    assert copy.now == lazy.now and copy.step == lazy.step == 6
    assert np.array_equal(copy.row_sums(), lazy.row_sums())
    assert np.array_equal(copy.catch_up(), lazy.catch_up())
    assert np.array_equal(LazySCIR.restore(state).state()["theta"], state["theta"])


def test_the_start_is_copied_and_what_is_read_is_a_copy():
    start = START.copy()
    lazy = LazySCIR(BASE, start)
    start[:] = 7.0
    assert np.array_equal(lazy.read([2, 1]), START[[2, 1]])  # at time 0 nothing is overdue
    lazy.read([2])[:] = 9.0
    lazy.catch_up()[:] = 9.0
    assert np.array_equal(lazy.catch_up(), START)


def test_steps_differ_and_columns_differ():
    lazy = LazySCIR(0.5, np.zeros((4, 3)))
    first = lazy.read(np.arange(4))
    lazy.advance([], np.ones(3), 50.0)
    second = lazy.read(np.arange(4))
    lazy.advance([], np.ones(3), 50.0)
    third = lazy.read(np.arange(4))
    assert np.unique(np.concatenate([second, third])).size == 24 and not first.any()


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ([1, 2, 1], InvalidValueError, "1 at position 2 is given twice"),
        ([0, 6], InvalidValueError, "6 at position 1 is not one of 0 to 5"),
        ([-1], InvalidValueError, "-1 at position 0 is not one of"),
        ([0.5], InvalidTypeError, "whole numbers"),
        ([[0, 1]], InvalidTypeError, "list of whole numbers"),
        (np.array([True, False]), InvalidTypeError, "flatnonzero"),
    ],
)
def test_bad_columns(columns, error, message):
    lazy = LazySCIR(BASE, START)
    for call in (lazy.read, lambda x: lazy.advance(x, np.ones(SIZE), 1.0)):
        with pytest.raises(error, match=message):
            call(columns)
    assert lazy.step == 0 and np.array_equal(lazy.read([1, 2]), START[[1, 2]])


@pytest.mark.parametrize(
    ("shapes", "time", "message"),
    [
        (np.ones((3, SIZE)), 1.0, "row for each of the 2 columns"),
        (np.array([[1.0, 1.0], [0.0, 1.0]]), 1.0, r"`shapes` must be finite and > 0, got 0.0 at index \(1, 0\)"),
        (1.0, 0.0, "`time`"),
        (1.0, math.nan, "`time`"),
        (1.0, 1e-305, "at least 1e-150"),
    ],
)
def test_bad_steps(shapes, time, message):
    lazy = LazySCIR(BASE, START)
    with pytest.raises(InvalidValueError, match=message):
        lazy.advance([0, 1], shapes, time)


@pytest.mark.parametrize(
    ("concentration", "theta", "message"),
    [
        (1.0, np.ones(3), "V × K"),
        (1.0, -START, r"`theta` must be finite and >= 0, got -0.25 at index \(0, 1\)"),
        (0.0, START, "`concentration` must be finite and > 0"),
        (np.ones(3), START, "a number or 2 numbers"),
    ],
)
def test_bad_starts(concentration, theta, message):
    with pytest.raises(InvalidValueError, match=message):
        LazySCIR(concentration, theta)


def test_a_state_with_something_missing():
    with pytest.raises(InvalidValueError, match="lacks"):
        LazySCIR.restore({"theta": START})
