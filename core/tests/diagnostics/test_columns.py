"""Draws as columns: which, in which order, under which names, and how they are read."""

import numpy as np
import pytest

from scirocco.diagnostics.columns import COLUMNS, Columns, label, spread_evenly

pytestmark = pytest.mark.unit


class Counting:
    """An array that remembers how much of it was read."""

    def __init__(self, values):
        self._values, self.shape, self.largest = values, values.shape, 0

    def __getitem__(self, index):
        found = self._values[index]
        self.largest = max(self.largest, found.size)
        return found


@pytest.fixture
def named():
    x = np.arange(2 * 10 * 7, dtype=np.float32).reshape(2, 10, 7)
    return {"a": x[:, :, 0], "b": x[:, :, 1:5].reshape(2, 10, 2, 2), "none": x[:, :, :0], "c": x[:, :, 5:]}


def test_all_columns(named):
    found = Columns(named)
    assert found.names == ["a", "b[0, 0]", "b[0, 1]", "b[1, 0]", "b[1, 1]", "c[0]", "c[1]"]
    assert (found.total, found.num_chains, found.num_draws) == (7, 2, 10)
    assert found.values.dtype == np.float64
    np.testing.assert_array_equal(found.values, np.arange(140).reshape(2, 10, 7))


@pytest.mark.parametrize("block", [1, 7, 50, 10_000])
def test_some_columns_and_draws(named, block, changed):
    changed(COLUMNS, read=block)
    whole = np.arange(140).reshape(2, 10, 7)
    some = Columns(named).select(np.array([0, 2, 6]))
    assert some.names == ["a", "b[0, 1]", "c[1]"] and some.total == 7
    np.testing.assert_array_equal(some.values, whole[:, :, [0, 2, 6]])
    np.testing.assert_array_equal(some.thinned(3).values, whole[:, ::3, [0, 2, 6]])
    np.testing.assert_array_equal(some.last(4).values, whole[:, -4:, [0, 2, 6]])
    np.testing.assert_array_equal(some.last(7).thinned(2).values, whole[:, -7::2, [0, 2, 6]])
    np.testing.assert_array_equal(some.last(99).values, some.values)


def test_nothing_is_read_before_it_is_needed_and_then_in_blocks(changed):
    changed(COLUMNS, read=60)
    leaf = Counting(np.zeros((2, 100, 3)))
    found = Columns({"x": leaf}).spread(2)
    assert found.names == ["x[0]", "x[2]"] and found.num_draws == 100 and leaf.largest == 0
    assert found.values.shape == (2, 100, 2) and leaf.largest == 60


def test_parts_are_all(named, changed):
    changed(COLUMNS, held=45)
    parts = list(Columns(named).parts())
    assert [len(part.names) for part in parts] == [2, 2, 2, 1]
    joined = np.concatenate([part.values for part in parts], axis=2)
    np.testing.assert_array_equal(joined, Columns(named).values)
    empty = list(Columns({"none": np.zeros((2, 5, 0))}).parts())
    assert [part.values.shape for part in empty] == [(2, 5, 0)]


def test_places_are_spread_evenly():
    np.testing.assert_array_equal(spread_evenly(5, 10), np.arange(5))
    np.testing.assert_array_equal(spread_evenly(101, 3), [0, 50, 100])
    assert len(spread_evenly(0, 3)) == 0 and len(spread_evenly(1000, 64)) == 64


def test_labels():
    assert [label("x", (), 0), label("x", (4,), 3), label("x", (2, 3), 4)] == ["x", "x[3]", "x[1, 1]"]
