"""The patches of covertype as its README counts them; skipped where the file is not at hand."""

import time

import numpy as np
import pytest

from scirocco import datasets, errors
from shared_data import data_folder

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def patches():
    return datasets.covertype(data_folder("covertype"))


@pytest.fixture(scope="module")
def raw():
    return datasets.covertype(data_folder("covertype"), raw=True)


def test_sizes(patches):
    assert patches.X.shape == (581_012, 54) and patches.X.dtype == np.float32
    assert patches.y.dtype == np.int8 and set(np.unique(patches.y)) == {0, 1} and patches.y.sum() == 283_301
    assert len(patches.names) == len(set(patches.names)) == 54
    assert patches.names[0] == "Elevation" and patches.names[10] == "Wilderness_Area1"
    assert patches.names[-1] == "Soil_Type40" and "Colorado State University" in patches.source


def test_columns(patches, raw):
    """The original's first row begins 2596, 51, 3, has wilderness area 1 and soil type 29, and is of class 5."""
    assert np.all(patches.X.min(axis=0) == 0) and np.all(patches.X.max(axis=0) == 1)
    for part in (slice(10, 14), slice(14, 54)):
        assert np.all(patches.X[:, part].sum(axis=1) == 1)
    assert raw.X.dtype == np.int16 and raw.X[0, :3].tolist() == [2596, 51, 3]
    assert [patches.names[k] for k in np.flatnonzero(raw.X[0, 10:]) + 10] == ["Wilderness_Area1", "Soil_Type29"]
    counts = np.bincount(raw.y)
    assert raw.y[0] == 5
    assert counts.tolist() == [0, 211_840, 283_301, 35_754, 2_747, 9_493, 17_367, 20_510]
    assert raw.X[:, 14 + 14].sum() == 3, "soil type 15"


def test_scaled_is_raw_scaled(patches, raw):
    some = slice(None, None, 1_001)
    low, high = raw.X.min(axis=0).astype(float), raw.X.max(axis=0).astype(float)
    np.testing.assert_allclose(patches.X[some], (raw.X[some] - low) / (high - low), atol=1e-7)
    np.testing.assert_array_equal(patches.y, raw.y == 2)


def test_fast():
    folder = data_folder("covertype")
    datasets.covertype(folder)  # the checksum, once for each state of the file
    began = time.process_time()
    datasets.covertype(folder)
    assert time.process_time() - began < 2


def test_no_file(tmp_path):
    with pytest.raises(errors.InvalidValueError, match="the data set `covertype` was not found"):
        datasets.covertype(tmp_path)
    assert datasets.state(datasets.ENTRIES["covertype"], tmp_path) == "no"
