"""Wasserstein distances: exact in one dimension, sliced in more."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from scirocco.analysis.distances import sliced_wasserstein, wasserstein
from scirocco.errors import InvalidTypeError, InvalidValueError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("order", [1, 2, 3.5])
def test_a_shift_costs_its_length(order, seed):
    x = np.random.default_rng(seed).normal(size=(4, 25))
    assert wasserstein(x, x - 2.5, order) == pytest.approx(2.5, rel=1e-12)
    assert wasserstein(x, np.repeat(x.ravel(), 3) + 2.5, order) == pytest.approx(2.5, rel=1e-12)
    assert wasserstein(x, x[::-1], order) == 0.0


@pytest.mark.parametrize(("n", "m"), [(7, 7), (30, 45), (8, 13), (1, 6)])
def test_agrees_with_scipy(n, m, seed):
    rng = np.random.default_rng([seed, n, m])
    x, y = rng.normal(size=n), rng.gamma(2.0, size=m)
    assert wasserstein(x, y) == pytest.approx(wasserstein_distance(x, y), rel=1e-12)


def test_unequal_sizes_are_those_of_repeated_draws(seed):
    """Every draw repeated until both samples have n m draws: the same laws, sizes equal."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=9), rng.normal(size=14)
    equal = wasserstein(np.repeat(x, 14), np.repeat(y, 9), order=2)
    assert wasserstein(x, y, order=2) == pytest.approx(equal, rel=1e-12)


def test_scale_at_order_two(seed):
    """Between x and s x it is |s - 1| times the root mean square."""
    x = np.random.default_rng(seed).normal(size=100)
    assert wasserstein(x, 1.5 * x, 2) == pytest.approx(0.5 * math.sqrt(np.mean(x**2)), rel=1e-12)


def test_sliced_shift(seed):
    """(u·c)² has the mean |c|²/d over the sphere and the variance |c|⁴ (2(d-1)) / (d²(d+2))."""
    rng, d, number = np.random.default_rng(seed), 6, 2_000
    x, c = rng.normal(size=(20, d)), rng.normal(size=d)
    found = sliced_wasserstein(x, x + c, num_projections=number, seed=seed)
    length = c @ c
    error = length * math.sqrt(2 * (d - 1) / (d**2 * (d + 2)) / number)
    assert abs(found**2 - length / d) < 5 * error


def test_sliced_is_exact_in_one_dimension(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, 15, 1)), rng.normal(size=(11, 1)) + 1.0
    for order in (1, 2):
        assert sliced_wasserstein(x, y, order=order, num_projections=3) == pytest.approx(
            wasserstein(x, y, order), rel=1e-12
        )


def test_sliced_in_blocks_is_the_same(seed):
    """Draws that all stand 500 times are the same distribution, and too many for one block of 64 MB."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(30, 3)), rng.normal(size=(30, 3))
    whole = sliced_wasserstein(x, y, num_projections=300)
    many = (np.repeat(part, 500, axis=0) for part in (x, y))
    assert sliced_wasserstein(*many, num_projections=300) == pytest.approx(whole, rel=1e-9)
    assert sliced_wasserstein(x, y, num_projections=300, seed=1) != pytest.approx(whole, rel=1e-12)
    assert sliced_wasserstein(x, x) == 0.0


def test_wrong_inputs():
    x = np.ones((4, 2))
    for call, words in (
        (lambda: wasserstein([], [1.0]), "`a` must have at least one draw"),
        (lambda: wasserstein([1.0], [np.nan]), "`b` must be finite; 1 of"),
        (lambda: wasserstein([1.0], [1.0], 0.5), "`order` must be at least 1, got 0.5"),
        (lambda: sliced_wasserstein(x, x[:, :1]), "same dimension"),
        (lambda: sliced_wasserstein(x[0], x), "or `wasserstein`"),
        (lambda: sliced_wasserstein(x, x, num_projections=0), "num_projections"),
    ):
        with pytest.raises(InvalidValueError, match=words):
            call()
    with pytest.raises(InvalidTypeError, match="numbers"):
        wasserstein("a", [1.0])
