"""Warnings come where a method's assumption fails, and not where it holds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter

from scirocco.combine import assumptions
from scirocco.combine.assumptions import effective_draws, moments_of
from scirocco.combine.draws import read_shards
from scirocco.combine.gaussian import consensus, gaussian_product
from scirocco.combine.kdemc import kdemc
from scirocco.errors import SciroccoWarning

pytestmark = pytest.mark.unit


def chains(rng, number, d, correlation, shards=10):
    """Gaussian subposteriors about one value, from autoregressive chains."""
    noise = rng.normal(size=(shards, number, d)) * np.sqrt(1 - correlation**2)
    noise[:, 0] = rng.normal(size=(shards, d))
    return rng.normal(size=(shards, 1, d)) + lfilter([1.0], [1.0, -correlation], noise, axis=1)


def peaks(rng, number, d, distance, stay=0.0, shards=10):
    """Two peaks of unit width, 2·distance apart along the diagonal; the side is kept with probability `stay`."""
    flips = rng.random((shards, number, 1)) < 0.5 * (1.0 - stay)
    side = np.where(np.cumsum(flips, axis=1) % 2, 1.0, -1.0)
    return rng.normal(size=(shards, number, d)) + distance * side / np.sqrt(d)


@pytest.mark.rotates(2)
@pytest.mark.law
@pytest.mark.parametrize(("d", "correlation"), [(1, 0.0), (2, 0.95), (10, 0.7), (40, 0.0)])
def test_gaussian_subposteriors_are_not_warned_of(d, correlation, seed):
    draws = chains(np.random.default_rng([seed, d]), 4_000, d, correlation)
    assert consensus(draws).warnings == ()


def test_few_correlated_draws_are_not_taken_for_another_shape(seed):
    """About 10 effective draws: all that is said is that there are few."""
    draws = chains(np.random.default_rng(seed), 1_000, 3, 0.98)
    with pytest.warns(SciroccoWarning, match="inverse covariances"):
        found = consensus(draws)
    assert len(found.warnings) == 1


@pytest.mark.filterwarnings("ignore:.*inverse covariances")
@pytest.mark.parametrize("stay", [0.0, 0.9])
@pytest.mark.parametrize("method", [consensus, gaussian_product])
def test_two_peaks_are_seen_along_any_direction(method, stay, seed):
    draws = peaks(np.random.default_rng(seed), 2_000, 4, 2.5, stay)
    with pytest.warns(SciroccoWarning, match=r"not Gaussian \(excess kurtosis -1\.\d+ \(two peaks"):
        found = method(draws)
    assert -2.0 < found.diagnostics["kurtosis_lowest"] < -1.0  # exactly -2 (6.25/7.25)² = -1.49


def test_chains_in_different_peaks_are_seen(seed):
    """The first half of the draws in one, the second in the other."""
    rng = np.random.default_rng(seed)
    side = np.where(np.arange(2_000) < 1_000, -3.0, 3.0)[:, None]
    finding = assumptions.gaussianity(read_shards(side + rng.normal(size=(6, 2_000, 1))), np.full(6, 1_000.0))
    assert "two peaks" in finding.message


def test_a_warped_gaussian_and_heavy_tails_are_seen(seed):
    rng = np.random.default_rng(seed)
    warped = rng.normal(size=(10, 2_000, 2))
    warped[..., 0] -= 1.5 * warped[..., 1] ** 2
    with pytest.warns(SciroccoWarning, match="skewness"):
        consensus(warped)
    with pytest.warns(SciroccoWarning, match="heavy tails"):
        consensus(rng.standard_t(3, size=(10, 4_000, 2)))


@pytest.mark.law
def test_kurtosis_of_gaussian_draws_is_standard_normal(seed):
    n = 60
    x = np.random.default_rng(seed).normal(size=(n, 20_000))
    scores = assumptions.normal_score(stats.kurtosis(x, axis=0), np.full(20_000, float(n)))
    np.testing.assert_allclose(scores[:5], stats.kurtosistest(x[:, :5], axis=0).statistic, rtol=1e-9)
    assert abs(scores.mean()) < 0.1
    assert abs(scores.std() - 1.0) < 0.1


@pytest.mark.parametrize("weights", ["matrix", "diagonal"])
def test_a_subposterior_that_lies_apart(weights, seed):
    draws = list(chains(np.random.default_rng(seed), 2_000, 3, 0.5))
    assert consensus(draws, weights=weights).warnings == ()
    draws[3] = draws[3] + 12.0
    with pytest.warns(SciroccoWarning, match="subposterior 3 lies apart"):
        found = consensus(draws, weights=weights)
    assert np.argmax(found.diagnostics["distance"]) == 3
    with pytest.warns(SciroccoWarning, match="subposterior 3 lies apart"):
        kdemc(draws, num_draws=10, num_burnin=5)


def test_distances_have_hotellings_law(seed):
    """Where the common mean is known, m² of n draws is d (n² - 1) / (n (n - d)) F_{d, n-d}: here n = 30, d = 2."""
    rng, n, d, number = np.random.default_rng(seed), 30, 2, 4_000
    away = rng.normal(size=(number, d))
    x = rng.normal(size=(number, n, d))
    means, centred = x.mean(axis=1), x - x.mean(axis=1, keepdims=True)
    covariances = np.einsum("sni,snj->sij", centred, centred) / (n - 1)
    squares = np.einsum("si,sij,sj->s", away - means, np.linalg.inv(covariances), away - means)
    scaled = squares * n * (n - d) / (d * (n**2 - 1))
    assert stats.kstest(scaled, stats.f(d, n - d).cdf).pvalue > 1e-6
    limit = assumptions.overlap(*_shards_of(x[:4]))
    expected = d * (n**2 - 1) / (n * (n - d)) * stats.f.isf(1e-6 / 4, d, n - d)
    np.testing.assert_allclose(limit.numbers["distance_limit"], np.sqrt(expected), rtol=1e-9)


def _shards_of(draws):
    shards = read_shards(draws)
    return shards, moments_of(shards), np.full(len(draws), float(draws.shape[1]))


def test_kernel_densities_in_many_dimensions(seed):
    rng, options = np.random.default_rng(seed), {"num_draws": 20, "num_burnin": 2}
    assert kdemc(rng.normal(size=(3, 400, 2)), **options).warnings == ()
    with pytest.warns(SciroccoWarning, match="5 dimensions need 768 effective draws"):
        kdemc(rng.normal(size=(3, 400, 5)), **options)
    with pytest.warns(SciroccoWarning, match="do not work in 12 dimensions"):
        kdemc(rng.normal(size=(3, 400, 12)), **options)


def test_a_walk_that_hardly_moves(seed):
    draws = np.random.default_rng(seed).normal(size=(3, 300, 1))
    with pytest.warns(SciroccoWarning, match='hardly moves: .* than 0.0001 or moves="gibbs"'):
        kdemc(draws, num_draws=100, num_burnin=300, bandwidth=1e-4, moves="independent")


def test_noisy_inverse_covariances(seed):
    draws = np.random.default_rng(seed).normal(size=(3, 60, 20))
    with pytest.warns(SciroccoWarning, match=r"inverse covariances that are (up to|mostly)"):
        consensus(draws)
    assert consensus(draws, weights="diagonal").warnings == ()


@pytest.mark.parametrize("num_chains", [1, 4])
@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_effective_draws_of_autoregressive_chains(correlation, num_chains, seed):
    """n (1 - ρ)/(1 + ρ), to the accuracy of the estimate; chains apart from each other count as few."""
    rng, n = np.random.default_rng([seed, num_chains]), 20_000
    x = chains(rng, n // num_chains, 1, correlation, num_chains)
    x -= x.mean(axis=1, keepdims=True)
    exact = n * (1 - correlation) / (1 + correlation)
    assert 0.7 < effective_draws(x.reshape(-1, 1), num_chains) / exact < 1.4
    if num_chains > 1:
        apart = x + 10.0 * np.arange(num_chains)[:, None, None]
        assert effective_draws(apart.reshape(-1, 1), num_chains) < 10 * num_chains
