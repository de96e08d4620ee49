"""Divergence by nearest neighbours: its mean for known laws, repeated points, and what it refuses."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from scirocco.analysis.distances import kl_knn
from scirocco.errors import InvalidTypeError, InvalidValueError, SciroccoWarning

pytestmark = pytest.mark.unit


def gaussian_kl(mean, covariance):
    """KL(N(mean, covariance) ‖ N(0, I))."""
    sign, logdet = np.linalg.slogdet(covariance)
    return 0.5 * (np.trace(covariance) + mean @ mean - len(mean) - sign * logdet)


@pytest.mark.parametrize("k", [1, 4])
def test_equal_laws_have_mean_zero(k, seed):
    """With m = n - 1 the k-th neighbours in both samples have one law: the mean is 0 whatever n, k and the law."""
    rng = np.random.default_rng([seed, k])
    found = [
        kl_knn(rng.gamma(1.0, size=(61, 3)), rng.gamma(1.0, size=(60, 3)), k=k, standardise=False) for _ in range(150)
    ]
    assert abs(np.mean(found)) < 5 * np.std(found, ddof=1) / math.sqrt(len(found))


@pytest.mark.parametrize("standardise", [True, False])
def test_known_gaussians(standardise, seed):
    """Within 5 standard errors and the bias of 4,000 points in two dimensions, about 0.01."""
    rng, mean = np.random.default_rng(seed), np.array([0.6, -0.4])
    root = np.array([[1.2, 0.0], [0.5, 0.8]])
    exact = gaussian_kl(mean, root @ root.T)
    found = [
        kl_knn(rng.normal(size=(4_000, 2)) @ root.T + mean, rng.normal(size=(4_000, 2)), standardise=standardise)
        for _ in range(12)
    ]
    assert np.mean(found) == pytest.approx(exact, abs=0.04 + 5 * np.std(found, ddof=1) / math.sqrt(12))


def test_not_symmetric(seed):
    """KL(narrow ‖ wide) is log 3 - 4/9, KL(wide ‖ narrow) is 4 - log 3."""
    rng = np.random.default_rng(seed)
    narrow, wide = rng.normal(size=(6_000, 1)), 3.0 * rng.normal(size=(6_000, 1))
    assert kl_knn(narrow, wide) == pytest.approx(math.log(3) - 4 / 9, abs=0.2)
    assert kl_knn(wide, narrow) > 1.5


def test_by_hand():
    """Distances 1, 1, 2 within a = {0, 1, 3}; 0.5, 0.5, 1.5 to b."""
    a, b = np.array([[0.0], [1.0], [3.0]]), np.array([[0.5], [1.5], [9.0], [20.0]])
    exact = (math.log(0.5) + math.log(0.5) + math.log(1.5 / 2)) / 3 + math.log(4 / 2)
    assert kl_knn(a, b, standardise=False) == pytest.approx(exact, rel=1e-12)


def test_units_do_not_matter(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(200, 3)), rng.normal(size=(150, 3)) + 0.5
    units = np.array([1e-6, 1.0, 1e5])
    assert kl_knn(a * units, b * units) == pytest.approx(kl_knn(a, b), abs=1e-8)


def test_same_sample_has_none(seed):
    a = np.random.default_rng(seed).normal(size=(2, 150, 4))
    assert kl_knn(a, a) == pytest.approx(0.0, abs=1e-9)


def test_repeated_points_count_once_as_neighbours(seed):
    """Every draw three times, in both samples: nothing changes; and a warning says that they are repeated."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(100, 2)), rng.normal(size=(80, 2))
    with pytest.warns(SciroccoWarning, match="67% of the draws in `[ab]` repeat") as caught:
        found = kl_knn(np.repeat(a, 3, axis=0), np.repeat(b, 3, axis=0), k=2)
    assert found == pytest.approx(kl_knn(a, b, k=2), rel=1e-9) and len(caught) == 2


def test_a_repeated_draw_weighs_as_often_as_it_comes():
    a, b = np.array([[0.0], [1.0], [1.0], [3.0]]), np.array([[0.5], [1.5], [9.0], [20.0]])
    exact = (math.log(0.5) + 2 * math.log(0.5) + math.log(1.5 / 2)) / 4 + math.log(4 / 2)
    with pytest.warns(SciroccoWarning, match="25%"):
        assert kl_knn(a, b, standardise=False) == pytest.approx(exact, rel=1e-12)


def test_few_repeated_points_pass_in_silence(seed):
    a = np.random.default_rng(seed).normal(size=(100, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert math.isfinite(kl_knn(np.concatenate([a, a[:5]]), a[::-1] + 0.1))


def test_wrong_inputs():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 2))
    for a, b, words in (
        (x, x[:, :1], "same dimension"),
        (x[:, 0], x, r"`a` must have the shape \(..., dimension\)"),
        (x, x[:2], "`b` must have at least k \\+ 2 = 3 distinct draws, got 2 among 2"),
        (np.where(np.arange(40).reshape(20, 2) == 7, np.nan, x), x, "`a` must be finite; 1 of its numbers"),
        (x * [1.0, 0.0], x * [1.0, 0.0], "coordinate 1 is the same"),
        (x @ [[1.0, 1.0], [0.0, 0.0]], x @ [[1.0, 1.0], [0.0, 0.0]], "linearly"),
    ):
        with pytest.raises(InvalidValueError, match=words):
            kl_knn(a, b)
    with pytest.raises(InvalidTypeError, match="whole number"):
        kl_knn(x, x, k=1.5)
    with pytest.raises(InvalidTypeError, match="numbers"):
        kl_knn("a", x)
