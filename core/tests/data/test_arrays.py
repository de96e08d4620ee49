"""Data in memory: what is accepted, what becomes of it, and how it is told apart. (Refusals: test_bad_inputs.py.)"""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from scirocco.data import ArraySource, as_source, standardise, tables
from scirocco.data.sizes import READING
from scirocco.errors import InvalidValueError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(10, 3)).astype(np.float32)
Y = np.arange(10, dtype=np.int32)

pytestmark = [pytest.mark.unit, pytest.mark.filterwarnings("error::scirocco.errors.SciroccoWarning")]


def test_a_source_knows_its_rows():
    source = as_source({"x": X, "y": Y})
    assert source.num_rows == 10
    assert source.nbytes == X.nbytes + Y.nbytes
    assert source.row_spec == {"x": jax.ShapeDtypeStruct((3,), np.float32), "y": jax.ShapeDtypeStruct((), np.int32)}


def test_take_and_read():
    source = as_source({"x": X, "y": Y})
    taken = source.take(np.array([7, 0, 7]))
    np.testing.assert_array_equal(taken["y"], [7, 0, 7])
    np.testing.assert_array_equal(taken["x"], X[[7, 0, 7]])
    np.testing.assert_array_equal(source.read(4, 6)["y"], [4, 5])
    np.testing.assert_array_equal(source.read(8, 20)["x"], X[8:])


def test_a_source_passes_through():
    source = as_source(X)
    assert isinstance(source, ArraySource)
    assert as_source(source) is source


def test_large_arrays_are_not_copied():
    assert np.shares_memory(as_source({"x": X}).arrays["x"], X)


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (X, np.float32),
        (jnp.asarray(X), np.float32),
        (X.astype(np.float16), np.float16),
        (Y, np.int32),
        (Y.astype(np.int64), np.int32),
        (Y.astype(np.uint64), np.int32),
        (Y.astype(np.int16), np.int16),
        (Y.astype(np.uint8), np.uint8),
        (Y > 4, np.bool_),
        (pd.Series(Y), np.int32),
        (pd.DataFrame(X), np.float32),
    ],
    ids=lambda value: str(getattr(value, "dtype", type(value).__name__)),
)
def test_what_becomes_of_each_kind(given, dtype):
    """Labels stay integers (8 bits too, in one column); nothing is wider than JAX's own numbers."""
    array = as_source({"a": given}).arrays["a"]
    assert array.dtype == dtype
    np.testing.assert_array_equal(array, np.asarray(given))


def test_double_precision_is_rounded_in_silence_where_it_does_not_matter():
    """The module turns warnings into errors."""
    source = as_source({"x": X.astype(float), "years": 1950.0 + np.arange(10), "one": np.ones(10), "y": Y})
    assert {name: leaf.dtype.kind + str(leaf.dtype.itemsize) for name, leaf in source.arrays.items()} == {
        "x": "f4",
        "years": "f4",
        "one": "f4",
        "y": "i4",
    }


@pytest.mark.parametrize("rows", [50, 50_000])
@pytest.mark.parametrize(("centre", "complains"), [(1e3, False), (1e4, False), (3e4, True), (1e9, True)])
def test_rounding_is_remarked_on_where_it_exceeds_a_thousandth_of_the_spread(rows, centre, complains):
    spread = RNG.permutation(np.resize([-1.0, 1.0], rows))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        as_source({"z": spread, "x": np.column_stack([spread, centre + spread])})
        as_source({"x": pd.DataFrame({"size": spread, "year": centre + spread})})
    assert len(caught) == 2 * complains
    for warning, column in zip(caught, ("1", "`year`"), strict=False):
        assert f"column {column} of data `x`" in str(warning.message)


@pytest.mark.parametrize("place", [0, 1234, 99_999])
def test_a_single_nan_is_found_anywhere(place):
    values = np.zeros(100_000, np.float32)
    values[place] = np.nan
    with pytest.raises(
        InvalidValueError, match=rf"1 missing \(NaN\) or infinite value in 1 of 100000 rows.* row {place}\b"
    ):
        as_source({"v": values})


def test_opposite_infinities_are_found_although_they_could_cancel():
    values = np.zeros(100, np.float32)
    values[[3, 4]] = np.inf, -np.inf
    with pytest.raises(InvalidValueError, match=r"2 missing \(NaN\) or infinite values in 2 of 100 rows"):
        as_source(values)


def test_large_finite_numbers_whose_sum_overflows_are_fine():
    values = np.full((100, 2), 3e38, np.float32)
    assert as_source(values).num_rows == 100


def test_constant_columns_have_no_scale_to_complain_about():
    design = np.column_stack([np.ones(50), RNG.normal(size=50), np.zeros(50)]).astype(np.float32)
    assert as_source(design).num_rows == 50


@pytest.mark.parametrize(("ratio", "complains"), [(500.0, False), (2_000.0, True)])
def test_scales_a_thousandfold_apart_are_remarked_on(ratio, complains):
    """By whoever has one step size for them (tests/test_bad_inputs.py)."""
    column = RNG.normal(size=200)
    design = np.column_stack([column, ratio * column]).astype(np.float32)
    assert bool(as_source(design).wild_scales) is complains


# -- fingerprints -------------------------------------------------------------------------------------------------


def test_the_same_data_have_the_same_fingerprint():
    assert as_source({"x": X, "y": Y}).fingerprint() == as_source({"y": Y.copy(), "x": jnp.asarray(X)}).fingerprint()


def changed(array, index):
    array = array.copy()
    array[index] += 1
    return array


@pytest.mark.parametrize(
    "other",
    [
        {"x": X[:9], "y": Y[:9]},
        {"x": X[::-1], "y": Y},
        {"x": changed(X, (4, 1)), "y": Y},
        {"x": X, "y": changed(Y, 9)},
        {"x": X, "z": Y},
        {"x": X, "y": Y.astype(np.int16)},
        {"x": X.reshape(10, 3, 1), "y": Y},
        {"x": X},
    ],
    ids=["fewer rows", "other order", "one number", "last label", "name", "dtype", "shape", "missing"],
)
def test_other_data_have_another_fingerprint(other):
    assert as_source(other).fingerprint() != as_source({"x": X, "y": Y}).fingerprint()


# -- standardise --------------------------------------------------------------------------------------------------


def test_standardised_columns():
    raw = (X * np.array([1.0, 1e4, 1e-3]) + np.array([0.0, 1e5, 7.0])).astype(np.float32)
    scaled, mean, deviation = standardise(raw)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled.mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(scaled.std(axis=0), 1.0, rtol=1e-5)
    np.testing.assert_allclose(scaled * deviation + mean, raw, rtol=1e-5)


def test_a_constant_column_is_only_centred():
    scaled, mean, deviation = standardise(np.full((5, 1), 3.0))
    np.testing.assert_array_equal(scaled, np.zeros((5, 1)))
    assert (mean[0], deviation[0]) == (3.0, 1.0)


def test_bytes_are_standardised_without_wrapping_around():
    scaled, mean, _ = standardise(np.array([[250], [255], [245]], np.uint8))
    assert mean[0] == 250.0
    np.testing.assert_allclose(scaled[:, 0], np.array([0.0, 1.0, -1.0]) * np.sqrt(1.5), rtol=1e-5)


def test_large_arrays_that_may_not_be_written_can_be_used(changed):
    """NumPy views of JAX arrays are such, and aligned as well."""
    changed(READING, shared_bytes=1)
    array = np.asarray(jnp.arange(64.0))
    assert not array.flags.writeable
    np.testing.assert_array_equal(tables.to_device(array), array)


class Own:
    """The five names that a source needs."""

    num_rows, row_spec = 5, jax.ShapeDtypeStruct((), np.float32)

    def take(self, indices):
        return np.arange(5, dtype=np.float32)[indices]

    def read(self, start, stop):
        return np.arange(start, stop, dtype=np.float32)

    def fingerprint(self):
        return "own"


class Fuller(Own):
    """With what is optional."""

    shuffled = checked = True

    def take(self, indices, out=None):
        return np.take(np.arange(5, dtype=np.float32), indices, out=out)

    def read(self, start, stop, out=None):
        return self.take(np.arange(start, stop), out=out)

    def stamp(self):
        return "stamped"


def test_a_users_class_answers_what_it_leaves_out():
    plain, full = as_source(Own()), as_source(Fuller())
    assert (plain.shuffled, plain.checked, plain.fills, plain.scatters, plain.stamp()) == (
        *(False, False, False, False),
        "own",
    )
    assert (full.shuffled, full.checked, full.fills, full.scatters, full.stamp()) == (
        *(True, True, True, False),
        "stamped",
    )
    assert isinstance(plain.given, Own) and as_source(plain) is plain
    out = np.empty(2, np.float32)
    full.take(np.array([3, 1]), out=out)
    assert out.tolist() == [3.0, 1.0] and plain.read(1, 3).tolist() == [1.0, 2.0]
