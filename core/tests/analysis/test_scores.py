"""Scores of predictions against scikit-learn's and against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn import metrics

from scirocco.analysis.scores import accuracy, brier, calibration, log_loss, perplexity
from scirocco.errors import InvalidTypeError, InvalidValueError

pytestmark = pytest.mark.unit


def binary(seed, number=300):
    rng = np.random.default_rng(seed)
    return rng.random(number), rng.integers(0, 2, number)


def multiclass(seed, number=300, classes=4):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(classes), number), rng.integers(0, classes, number)


def test_as_scikit_learn_binary(seed):
    p, y = binary(seed)
    assert log_loss(p, y) == pytest.approx(metrics.log_loss(y, p), rel=1e-12)
    assert brier(p, y) == pytest.approx(metrics.brier_score_loss(y, p), rel=1e-12)
    assert accuracy(p, y) == metrics.accuracy_score(y, p > 0.5)


def test_as_scikit_learn_multiclass(seed):
    p, y = multiclass(seed)
    assert log_loss(p, y) == pytest.approx(metrics.log_loss(y, p, labels=range(4)), rel=1e-12)
    assert accuracy(p, y) == metrics.accuracy_score(y, p.argmax(axis=1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_impossible_labels_cost_what_scikit_learn_says(dtype):
    p, y = np.array([0.0, 1.0, 0.5], dtype), np.array([1, 0, 1])
    assert log_loss(p, y) == pytest.approx(metrics.log_loss(y, p), rel=1e-6)


def test_two_classes_are_one_probability(seed):
    p, y = binary(seed)
    both = np.stack([1 - p, p], axis=1)
    assert log_loss(both, y) == pytest.approx(log_loss(p, y), rel=1e-12)
    assert accuracy(both, y) == accuracy(p, y)
    assert brier(both, y) == pytest.approx(2 * brier(p, y), rel=1e-12)
    assert accuracy([0.5], [0]) == accuracy([[0.5, 0.5]], [0]) == 1.0


def test_perplexity():
    assert perplexity(np.log([0.5, 0.125])) == pytest.approx(4.0)
    assert perplexity([-3.0, -1.0], counts=[3, 1]) == pytest.approx(math.e)
    assert perplexity([-np.inf]) == np.inf


def test_calibration_table():
    p = np.array([0.05, 0.15, 0.1, 0.1, 0.95, 1.0])
    found = calibration(p, [0, 1, 0, 0, 1, 1], bins=10)
    assert [row.count for row in found.table] == [1, 3, 2]
    low, middle, high = found.table
    assert middle.predicted == pytest.approx(0.35 / 3) and middle.observed == pytest.approx(1 / 3)
    assert middle.standard_error == pytest.approx(math.sqrt(0.35 / 3 * (1 - 0.35 / 3) / 3))
    assert (low.observed, high.observed) == (0.0, 1.0)
    assert found.error == pytest.approx((0.05 + 3 * (1 / 3 - 0.35 / 3) + 2 * 0.025) / 6)


def test_right_predictions_are_calibrated(seed):
    """Labels drawn with the predicted probabilities: z-scores of all bins, and of the top class of four."""
    rng = np.random.default_rng(seed)
    p, _ = binary(seed, 5_000)
    many, _ = multiclass(seed, 5_000)
    drawn = (rng.random((5_000, 1)) > many.cumsum(axis=1)).sum(axis=1).clip(max=3)
    for found in (calibration(p, (rng.random(5_000) < p).astype(int)), calibration(many, drawn)):
        # the variance within a bin is at most that at its mean
        assert all(abs(row.observed - row.predicted) < 5 * row.standard_error + 3 / row.count for row in found.table)
        assert found.error < 0.03
        assert sum(row.count for row in found.table) == 5_000


@pytest.mark.parametrize("score", [log_loss, accuracy, brier, calibration])
def test_wrong_inputs(score):
    for p, y, words in (
        ([0.5, 1.5], [0, 1], "between 0 and 1: 1 of 2 rows do not; the first is number 1"),
        ([0.5, np.nan], [0, 1], "between 0 and 1"),
        ([[0.5, 0.4]], [0], "must sum to 1; number 0 sums to 0.9"),
        ([0.5, 0.5], [0], r"shape \(2,\), got \(1,\)"),
        ([0.5, 0.5], [0, 2], "0 ... 1 for 2 classes; number 1 is 2"),
        ([0.5, 0.5], [0, 0.5], "number 1 is 0.5"),
        ([0.5, 0.5], [0, np.nan], "number 1 is nan"),
        (np.full((2, 3, 2), 0.5), [0, 1], "Average over the draws"),
        ([], [], "shape"),
    ):
        with pytest.raises(InvalidValueError, match=words):
            score(p, y)
    with pytest.raises(InvalidTypeError, match="numbers"):
        score("yes", [1])


def test_wrong_log_likelihoods():
    for values, counts, words in (
        ([], None, "at least one"),
        ([np.nan], None, "not NaN"),
        ([-1.0], [1.0, 2.0], "shape of `log_likelihoods`"),
        ([-1.0], [0.0], "not all 0"),
        ([-1.0, -1.0], [2.0, -1.0], ">= 0"),
    ):
        with pytest.raises(InvalidValueError, match=words):
            perplexity(values, counts)
    with pytest.raises(InvalidValueError, match="bins"):
        calibration([0.5], [1], bins=0)
