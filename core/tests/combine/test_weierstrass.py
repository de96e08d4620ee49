"""The Weierstrass sampler: few atoms counted, two peaks, odd numbers of subposteriors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from scirocco.combine.gaussian import consensus
from scirocco.combine.weierstrass import merge, shuffled, weierstrass
from scirocco.errors import SciroccoWarning

pytestmark = pytest.mark.unit

A = np.array([[-1.0, 0.2], [0.3, 0.1], [1.0, -0.8]])
B = np.array([[0.0, 0.5], [0.9, -0.3], [-0.6, 0.2], [1.5, 1.0]])


@pytest.mark.law
@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("acceptance", [0.2, 0.6])
def test_pairs_have_their_probabilities(acceptance, diagonal, seed):
    """p_ij ∝ exp(-q_ij/(2h²)), h the one that is reported; every pair gives its own average."""
    number, rng = 20_000, np.random.default_rng(seed)
    found = merge(A, B, number, acceptance, ["x", "y"], rng, diagonal=diagonal)
    ca, cb = (np.cov(part, rowvar=False) for part in (A, B))
    if diagonal:
        ca, cb = np.diag(np.diag(ca)), np.diag(np.diag(cb))
    pa, pb = np.linalg.inv(ca), np.linalg.inv(cb)
    away = A[:, None] - B[None]
    q = np.einsum("ijk,kl,ijl->ij", away, np.linalg.inv(ca + cb), away).ravel()
    kept = np.exp(-q / (2 * found.bandwidth**2))
    averages = (np.einsum("kl,il->ik", pa, A)[:, None] + np.einsum("kl,jl->jk", pb, B)[None]).reshape(-1, 2)
    averages = averages @ np.linalg.inv(pa + pb).T
    distance = np.linalg.norm(found.points[:, None] - averages[None], axis=2)
    assert distance.min(axis=1).max() < 1e-10
    counts = np.bincount(distance.argmin(axis=1), minlength=12)
    assert stats.chisquare(counts, number * kept / kept.sum()).pvalue > 1e-6
    assert abs(kept.mean() - acceptance) < 0.02  # found from pairs at random
    assert abs(found.accepted - acceptance) < 0.03
    assert found.distinct == np.sum(counts > 0)


def test_two_peaks_are_kept(seed):
    """f ∝ N(-3, 1) + N(3, 1) twice: f² has peaks of variance 1/2 at ±3 and e⁻⁹ of its mass between."""
    rng = np.random.default_rng(seed)
    draws = [rng.normal(size=6_000) + rng.choice([-3.0, 3.0], size=6_000) for _ in range(2)]
    with pytest.warns(SciroccoWarning, match="not Gaussian .*two peaks"):
        averaged = consensus(draws).draws
    assert abs(np.mean(np.abs(averaged) < 1.5) - 0.5) < 0.1  # halves of two peaks meet in the middle
    found = weierstrass(draws, acceptance=0.02, seed=seed)
    assert found.warnings == ()
    assert np.mean(np.abs(found.draws) < 1.0) < 0.01
    assert abs(np.mean(found.draws > 0) - 0.5) < 5 * math.sqrt(1 / 6_000)
    peak = found.draws[found.draws > 0]
    assert abs(peak.mean() - 3.0) < 0.1
    assert abs(peak.var() - 0.5) < 0.1


@pytest.mark.parametrize("number", [2, 3, 5, 8])
def test_any_number_of_subposteriors(number, seed):
    rng = np.random.default_rng([seed, number])
    draws = [rng.normal(size=(500, 2)) for _ in range(number)]
    found = weierstrass(draws, num_draws=300, acceptance=0.5, seed=seed)
    assert found.draws.shape == (300, 2)
    levels = found.diagnostics["bandwidth"]
    assert sum(map(len, levels)) == number - 1
    assert len(levels) == math.ceil(math.log2(number))
    accepted = np.concatenate(found.diagnostics["accepted"])
    assert np.all(np.abs(accepted - 0.5) < 0.06)
    assert 0.5 < found.draws.var() * number < 2.0


def test_one_subposterior_is_the_posterior(seed):
    draws = np.random.default_rng(seed).normal(size=(100, 2))
    found = weierstrass([draws]).draws
    np.testing.assert_array_equal(np.sort(found, axis=0), np.sort(draws, axis=0))
    assert weierstrass([draws], num_draws=250).draws.shape == (250, 2)
    np.testing.assert_allclose(consensus([draws]).draws, draws, rtol=1e-9, atol=1e-12)


def test_shuffled_indices_are_spread_evenly(seed):
    counts = np.bincount(shuffled(7, 30, np.random.default_rng(seed)), minlength=7)
    assert counts.sum() == 30
    assert counts.max() - counts.min() == 1


def test_seeds(seed):
    draws = np.random.default_rng(seed).normal(size=(3, 100, 2))
    same = [weierstrass(draws, seed=seed).draws for _ in range(2)]
    np.testing.assert_array_equal(*same)
    assert not np.array_equal(same[0], weierstrass(draws, seed=seed + 1).draws)


def test_repeated_pairs_are_said(seed):
    draws = np.random.default_rng(seed).normal(size=(2, 20))
    with pytest.warns(SciroccoWarning, match=r"5,000 draws of [\d]+ distinct pairs"):
        weierstrass(draws, num_draws=5_000)


def test_wide_kernels_on_what_is_not_gaussian_are_said(seed):
    rng = np.random.default_rng(seed)
    draws = [rng.gamma(1.0, size=(2_000, 8)) for _ in range(2)]
    with pytest.warns(SciroccoWarning, match=r"weierstrass: .* Lower `acceptance` \(about 0.06 gives"):
        weierstrass(draws, acceptance=0.5)
    assert weierstrass([part[:, :1] for part in draws], acceptance=0.1).warnings == ()
