"""The digits of MNIST as its README counts them; skipped where the file is not at hand."""

import numpy as np
import pytest

from scirocco import errors
from scirocco.datasets.classification import MNIST, mnist
from scirocco.datasets.files import state
from shared_data import data_folder

pytestmark = pytest.mark.unit

TRAINING = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


@pytest.fixture(scope="module")
def digits():
    return mnist(data_folder("mnist"))


def test_sizes(digits):
    assert digits.X.shape == (60_000, 28, 28) and digits.X_test.shape == (10_000, 28, 28)
    assert all(array.dtype == np.uint8 for array in digits[:4])
    assert digits.X.min() == 0 and digits.X.max() == 255
    assert "LeCun" in digits.source and "CC BY-SA" in digits.source


def test_labels(digits):
    """In the original order: the first training images are 5, 0, 4, 1, 9, the first test images 7, 2, 1, 0, 4."""
    assert np.bincount(digits.y).tolist() == TRAINING and np.bincount(digits.y_test).tolist() == TEST
    assert digits.y[:5].tolist() == [5, 0, 4, 1, 9] and digits.y_test[:5].tolist() == [7, 2, 1, 0, 4]


def test_no_file(tmp_path):
    with pytest.raises(errors.InvalidValueError, match="the data set `mnist` was not found"):
        mnist(tmp_path)
    assert state(MNIST, tmp_path) == "no"
