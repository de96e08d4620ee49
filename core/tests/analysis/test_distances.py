"""The Rosenblatt-Kolmogorov-Smirnov distance: its law for exact draws, near the boundary, and what it refuses."""

from __future__ import annotations

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from scirocco.analysis import ks_dirichlet
from scirocco.errors import InvalidTypeError, InvalidValueError

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

SPARSE = np.array([800.1, 100.1, 100.1] + [0.1] * 7)
DENSE = np.array([112, 119, 92, 98, 95, 96, 102, 92, 91, 103]) + 0.1
UNEVEN = np.array([0.1, 30.0, 0.02, 2.0, 0.1, 0.5])
LAWS = pytest.mark.parametrize("concentration", [SPARSE, SPARSE[::-1], DENSE, UNEVEN])


def dirichlet(rng, concentration, size, dtype=np.float64):
    """From gammas, so that the small components keep their digits, which breaking a stick does not."""
    logs = np.log(rng.gamma(concentration + 1, size=(size, len(concentration))))
    logs += np.log(rng.random(logs.shape)) / concentration
    logs -= logs.max(axis=1, keepdims=True)
    weights = np.exp(logs).astype(dtype)
    return weights / weights.sum(axis=1, keepdims=True, dtype=dtype)


@functools.cache
def kolmogorov():
    """The law of the distance of 1,000 draws, on a grid (SciPy takes milliseconds for each value): cdf, mean, sd."""
    grid = np.linspace(0.0, 0.12, 601)
    cdf = stats.kstwo(1_000).cdf(grid)
    middle, mass = (grid[1:] + grid[:-1]) / 2, np.diff(cdf)
    mean = mass @ middle
    return functools.partial(np.interp, xp=grid, fp=cdf), mean, np.sqrt(mass @ (middle - mean) ** 2)


@pytest.mark.rotates(2)
@pytest.mark.law
@LAWS
def test_exact_draws_have_the_law_of_kolmogorov(concentration, seed):
    """The distances of 40 samples are independent, and their law is known."""
    rng = np.random.default_rng([seed, 1])
    found = np.concatenate(
        [ks_dirichlet(dirichlet(rng, concentration, 1000), concentration, each=True) for _ in range(40)]
    )
    cdf, mean, sd = kolmogorov()
    assert stats.kstest(found, cdf).pvalue > 1e-6
    assert found.mean() == pytest.approx(mean, abs=5 * sd / len(found) ** 0.5)


def test_components_are_those_of_kstest(seed):
    rng = np.random.default_rng([seed, 2])
    draws, wrong = rng.dirichlet(DENSE, size=500), DENSE[::-1]
    found = ks_dirichlet(draws, wrong, each=True)
    left, weight = 1.0, wrong.sum()
    for j in range(len(wrong) - 1):
        weight -= wrong[j]
        expected = stats.kstest(draws[:, j] / left, stats.beta(wrong[j], weight).cdf)
        assert found[j] == pytest.approx(expected.statistic, abs=1e-9)
        left = left - draws[:, j]
    assert ks_dirichlet(draws, wrong) == pytest.approx(found.mean())


def test_single_precision_and_jax(seed):
    rng = np.random.default_rng([seed, 3])
    draws = dirichlet(rng, SPARSE, 2000)
    single = dirichlet(np.random.default_rng([seed, 3]), SPARSE, 2000, np.float32)
    assert single.dtype == np.float32
    exact = ks_dirichlet(draws, SPARSE, each=True)
    np.testing.assert_allclose(ks_dirichlet(single, SPARSE, each=True), exact, atol=2e-3)
    assert ks_dirichlet(jnp.asarray(single), SPARSE) == ks_dirichlet(single, SPARSE)


def test_leading_axes_are_flattened(seed):
    draws = np.random.default_rng([seed, 4]).dirichlet(DENSE, size=(4, 100))
    assert ks_dirichlet(draws, DENSE) == ks_dirichlet(draws.reshape(400, 10), DENSE)
    assert ks_dirichlet(draws, list(DENSE), each=True).shape == (9,)


@pytest.mark.parametrize("place", [0, 4, 9])
def test_another_concentration_is_far(place, seed):
    draws = dirichlet(np.random.default_rng([seed, 5]), DENSE, 1000)
    wrong = DENSE.copy()
    wrong[place] *= 1.5
    found = ks_dirichlet(draws, wrong, each=True)
    assert found[min(place, 8)] > 0.5
    assert np.all(found[place + 1 :] < 0.1), "later shares do not depend on it"


def test_shares_next_to_one_have_their_digits():
    """1 - x far below the spacing of the floats: Beta(5, 0.1) there is 1 - (1-x)^0.1 / (0.1 B)."""
    for small in (1e-10, 1e-30, 1e-100, 1e-300):
        draws = np.array([[1.0, small / 2, small / 2]])
        expected = 1 - small**0.1 / (0.1 * special.beta(5, 0.1))
        found = ks_dirichlet(draws, [5.0, 0.05, 0.05], each=True)[0]
        assert found == pytest.approx(max(expected, 1 - expected), rel=1e-9)


def test_ties_count_on_both_sides_of_the_step():
    """Uniform on (0, 1) by Dir(1, 1): the gap above and the gap below a step of many equal draws."""
    for first, expected in ((0.9, 0.9), (0.2, 0.8), (0.5, 0.5), (0.0, 1.0), (1.0, 1.0)):
        draws = np.tile([first, 1 - first], (50, 1))
        assert ks_dirichlet(draws, [1.0, 1.0]) == pytest.approx(expected)
    some = np.repeat([[0.25, 0.75], [0.75, 0.25]], 5, axis=0)
    assert ks_dirichlet(some, [1.0, 1.0]) == pytest.approx(0.25)


def test_zeros_are_taken_at_face_value(seed):
    draws = dirichlet(np.random.default_rng([seed, 6]), SPARSE, 1000)
    lost = draws.copy()
    lost[:, 3:] = np.where(lost[:, 3:] < 1e-9, 0, lost[:, 3:])  # a quarter of each, and all in some draws
    lost /= lost.sum(axis=1, keepdims=True)
    found = ks_dirichlet(lost, SPARSE, each=True)
    shares = np.mean(lost[:, 3:9] == 0, axis=0)
    assert np.all(found[3:] >= shares - 1e-12) and np.all(np.isfinite(found)) and np.all(found <= 1)
    np.testing.assert_allclose(found[:3], ks_dirichlet(draws, SPARSE, each=True)[:3], atol=1e-5)
    corner = np.tile([1.0, 0.0, 0.0], (10, 1))
    assert ks_dirichlet(corner, [1.0, 1.0, 1.0], each=True) == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize(
    ("draws", "concentration", "error", "says"),
    [
        (np.full((5, 3), 1 / 3), [1.0, 1.0], InvalidValueError, r"shape \(\.\.\., 2\)"),
        (np.full(3, 1 / 3), [1.0] * 3, InvalidValueError, "shape"),
        (np.zeros((0, 3)), [1.0] * 3, InvalidValueError, "at least one"),
        ([[0.5, 0.4]], [1.0, 1.0], InvalidValueError, r"sum 0\.9.*Divide θ"),
        ([[0.5, 0.5], [1.5, -0.5]], [1.0, 1.0], InvalidValueError, "1 of 2 .* number 1"),
        ([[0.5, np.nan]], [1.0, 1.0], InvalidValueError, "not finite"),
        ([[np.inf, 0.5]], [1.0, 1.0], InvalidValueError, "not finite"),
        ([["a", "b"]], [1.0, 1.0], InvalidTypeError, "`draws` must be an array"),
        ([[0.5, 0.5]], [1.0, 0.0], InvalidValueError, "> 0 in all"),
        ([[0.5, 0.5]], [1.0, np.nan], InvalidValueError, "> 0 in all"),
        ([[1.0]], [1.0], InvalidValueError, "K >= 2"),
        ([[0.5, 0.5]], 1.0, InvalidValueError, "K >= 2"),
        ([[0.5, 0.5]], "ab", InvalidTypeError, "`concentration` must be"),
    ],
)
def test_bad_arguments(draws, concentration, error, says):
    with pytest.raises(error, match=says):
        ks_dirichlet(draws, concentration)


def test_rows_that_sum_to_one_in_single_precision_are_accepted():
    ks_dirichlet([[0.50004, 0.5]], [1.0, 1.0])
    with pytest.raises(InvalidValueError):
        ks_dirichlet([[0.5002, 0.5]], [1.0, 1.0])
