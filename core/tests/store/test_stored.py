"""Lazy reading gives what NumPy would, and touches only the chunks it needs."""

import itertools

import numpy as np
import pytest

from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.store import Store, Variable, open_stored
from scirocco.store.files import STORING

pytestmark = pytest.mark.unit


@pytest.fixture
def pair(tmp_path, changed):
    """The same values on the disk (chunks of 4 draws, the last part-filled) and in memory."""
    changed(STORING, chunk_draws=4)
    values = np.random.default_rng(0).normal(size=(3, 18, 2, 5)).astype(np.float32)
    with Store.create(tmp_path / "run", {"g": {"x": Variable((2, 5), values.dtype)}}, 3, {}) as store:
        store.append("g", {"x": values})
        store.commit({}, {})
    return open_stored(tmp_path / "run").arrays["g"]["x"], values


CHAINS = [0, -1, slice(None), slice(1, None), slice(None, None, -1), slice(2, 2), np.int64(1)]
DRAWS = [0, 3, 4, 17, -1, -18, slice(None), slice(3, 5), slice(4, 8), slice(-3, None), slice(None, None, 3)]
DRAWS += [slice(1, 17, 5), slice(None, None, -1), slice(16, 2, -3), slice(5, 5), slice(30, 40), slice(2, None, 100)]
DRAWS += [slice(None, -20), slice(17, None, -7)]
REST = [(), (1,), (slice(None), -2), (slice(None, None, -1), slice(1, 4, 2)), (0, 3)]


def test_every_index_is_numpys(pair):
    stored, values = pair
    for chain, draw, rest in itertools.product(CHAINS, DRAWS, REST):
        index = (chain, draw, *rest)
        got, wanted = stored[index], values[index]
        assert np.shape(got) == wanted.shape and got.dtype == wanted.dtype, index
        np.testing.assert_array_equal(got, wanted, err_msg=str(index))


@pytest.mark.parametrize(
    "index",
    [
        ...,
        1,
        (),
        (..., 2),
        (1, ...),
        (0, ..., 3),
        (..., 0, 1),
        (1, 2, 1, ..., 3),
        (slice(None), 5),
        slice(1, 3),
        (..., slice(2)),
    ],
)
def test_short_indices_and_dots(pair, index):
    stored, values = pair
    np.testing.assert_array_equal(stored[index], values[index])


@pytest.mark.parametrize("index", [3, (0, 18), (0, -19), (0, 0, 0, 0, 0), (..., ...), (0, 0, 2)])
def test_wrong_indices(pair, index):
    with pytest.raises(IndexError):
        pair[0][index]


@pytest.mark.parametrize("index", [None, [0, 1], True, np.array([True, False, True]), 1.0, "x", (0, [1, 2])])
def test_fancy_indices_are_refused_with_the_way_round(pair, index):
    with pytest.raises(InvalidTypeError, match="Read it first"):
        pair[0][index]


def test_it_looks_like_an_array(pair):
    stored, values = pair
    assert (stored.shape, stored.ndim, stored.size, stored.nbytes) == (values.shape, 4, values.size, values.nbytes)
    assert len(stored) == 3 and stored.dtype == values.dtype and "(3, 18, 2, 5)" in repr(stored)
    np.testing.assert_array_equal(np.asarray(stored), values)
    np.testing.assert_array_equal(np.array(stored, copy=True), values)
    assert np.asarray(stored, dtype=np.float64).dtype == np.float64
    np.testing.assert_array_equal(np.stack(list(stored)), values)
    np.testing.assert_array_equal(
        stored + np.float32(1) if hasattr(stored, "__add__") else np.add(stored, 1), values + 1
    )
    with pytest.raises(ValueError, match="without a copy"):
        np.array(stored, copy=False)


@pytest.mark.parametrize("size", [1, 3, 4, 18, 100])
def test_blocks(pair, size):
    stored, values = pair
    blocks = list(stored.blocks(size))
    assert {block.shape[1] for block in blocks[:-1]} <= {size}
    np.testing.assert_array_equal(np.concatenate(blocks, axis=1), values)
    with pytest.raises(InvalidValueError, match="num_draws"):
        list(stored.blocks(0))


@pytest.mark.parametrize(
    "index, chunks", [((0, 5), 1), ((0, slice(3, 5)), 2), ((0, slice(0, 18, 9)), 2), ((0, slice(2, 2)), 0), (..., 5)]
)
def test_only_the_chunks_needed_are_read(pair, monkeypatch, index, chunks):
    calls, real = [], np.fromfile
    monkeypatch.setattr(np, "fromfile", lambda *a: calls.append(a) or real(*a))
    pair[0][index]
    assert len(calls) == chunks


def test_what_is_read_can_be_changed_without_changing_the_store(pair):
    stored, values = pair
    for index in [(0, 1), (slice(None), slice(None, None, -1)), ...]:
        part = stored[index]
        part[...] = 0
    np.testing.assert_array_equal(np.asarray(stored), values)
