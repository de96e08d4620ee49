"""Rows in a random order that nobody wrote down."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("numba", reason="mixtures need numba (the extra `compiled`)")

from scirocco_latent.dp._common import rows_at

pytestmark = pytest.mark.unit


def order(num_rows: int, seed: int, number: int = 0, chunk: int = 1) -> np.ndarray:
    out = np.empty(num_rows, np.int64)
    rows_at(0, num_rows, chunk, np.uint64(seed), np.uint64(number), out)
    return out


@pytest.mark.parametrize("num_rows", [1, 2, 3, 4, 5, 16, 17, 1000, 65537])
def test_every_row_once(num_rows, seed):
    for chunk in (1, 2, 16):
        assert np.array_equal(np.sort(order(num_rows, seed, chunk=chunk)), np.arange(num_rows))


def test_parts_are_parts_of_the_whole(seed):
    part = np.empty(30, np.int64)
    for chunk in (1, 7):
        rows_at(40, 100, chunk, np.uint64(seed), np.uint64(0), part)
        assert np.array_equal(part, order(100, seed, chunk=chunk)[40:70])


def test_neighbours_stay_together(seed):
    chunks = order(83, seed, chunk=8)[:80].reshape(10, 8)
    assert np.array_equal(chunks, chunks[:, :1] + np.arange(8)) and np.all(chunks[:, 0] % 8 == 0)


@pytest.mark.law
def test_places_and_neighbours_are_as_in_a_random_order(seed):
    num_rows, orders = 7, 20_000
    seen = np.array([order(num_rows, seed, number) for number in range(orders)])
    table = np.array([np.bincount(seen[:, place], minlength=num_rows) for place in range(num_rows)])
    expected = orders / num_rows
    # rows and columns of the table are fixed sums: (7 - 1)² degrees of freedom
    assert stats.chi2((num_rows - 1) ** 2).sf(((table - expected) ** 2 / expected).sum()) > 1e-7
    after = np.bincount((seen[:, 1] - seen[:, 0]) % num_rows, minlength=num_rows)[1:]
    expected = orders / (num_rows - 1)
    assert stats.chi2(num_rows - 2).sf(((after - expected) ** 2 / expected).sum()) > 1e-7


def test_orders_of_passes_are_unlike(seed):
    first, second = order(5000, seed, 0), order(5000, seed, 1)
    assert abs(stats.spearmanr(first, second).statistic) < 5.5 / np.sqrt(5000)
    assert abs(stats.spearmanr(first, np.arange(5000)).statistic) < 5.5 / np.sqrt(5000)
