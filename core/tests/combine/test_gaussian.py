"""Gaussian subposteriors: every method but the kernel densities is exact, up to the estimated covariances."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from scirocco.combine.gaussian import consensus, gaussian_product
from scirocco.combine.weierstrass import weierstrass

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

MEANS = np.array([[0.0, 0.0], [0.7, -0.5], [-0.2, 0.9]])
COVARIANCES = np.array([[[1.0, 0.6], [0.6, 1.0]], [[2.0, 0.9], [0.9, 0.6]], [[0.8, 0.4], [0.4, 1.5]]])
PRECISIONS = np.linalg.inv(COVARIANCES)
COVARIANCE = np.linalg.inv(PRECISIONS.sum(axis=0))
MEAN = COVARIANCE @ np.einsum("sij,sj->i", PRECISIONS, MEANS)


def subposteriors(rng, num_draws):
    """Independent draws."""
    return [
        mean + rng.normal(size=(num_draws, 2)) @ np.linalg.cholesky(covariance).T
        for mean, covariance in zip(MEANS, COVARIANCES, strict=True)
    ]


METHODS = {
    "consensus": lambda draws, seed: consensus(draws),
    "gaussian_product": lambda draws, seed: gaussian_product(draws, seed=seed),
    "weierstrass-1": lambda draws, seed: weierstrass(draws, acceptance=1.0, seed=seed),
    "weierstrass-0.5": lambda draws, seed: weierstrass(draws, acceptance=0.5, seed=seed),
    "weierstrass-0.1": lambda draws, seed: weierstrass(draws, acceptance=0.1, seed=seed),
}


@pytest.mark.law
@pytest.mark.parametrize("name", METHODS)
def test_the_law_is_that_of_the_product(name, seed):
    """Mean and covariance over 40 independent repetitions, whose scatter is the standard error."""
    rng, whitening = np.random.default_rng([seed, len(name)]), np.linalg.inv(np.linalg.cholesky(COVARIANCE))
    found = []
    for repetition in range(40):
        draws = METHODS[name](subposteriors(rng, 1_000), 100 * seed + repetition).draws
        z = (draws - MEAN) @ whitening.T
        found.append([*z.mean(axis=0), *(z.T @ z / len(z) - np.eye(2))[np.triu_indices(2)]])
    found = np.array(found)
    errors = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    assert np.all(errors < 0.05)
    assert np.all(np.abs(found.mean(axis=0)) < 6.0 * errors)  # Student's t with 39 degrees: p = 5e-7


@pytest.mark.parametrize("weights", ["matrix", "diagonal", "uniform"])
def test_consensus_is_the_weighted_average(weights, seed):
    draws = subposteriors(np.random.default_rng(seed), 50)
    matrices = [
        {"matrix": np.linalg.inv(c), "diagonal": np.diag(1 / np.diag(c)), "uniform": np.eye(2)}[weights]
        for c in (np.cov(part, rowvar=False) for part in draws)
    ]
    for i in (0, 49):
        expected = np.linalg.solve(sum(matrices), sum(w @ part[i] for w, part in zip(matrices, draws, strict=True)))
        np.testing.assert_allclose(consensus(draws, weights=weights).draws[i], expected, rtol=1e-10)


def test_longer_subposteriors_are_thinned_evenly(seed):
    draws = np.random.default_rng(seed).normal(size=(2, 60))
    found = consensus([draws[0], np.repeat(draws[1], 3)], weights="uniform").draws
    np.testing.assert_allclose(found, draws.mean(axis=0), rtol=1e-12)
    assert consensus([draws[0], draws[1][:40]]).draws.shape == (40,)


def test_the_fitted_product_is_reported(seed):
    draws = subposteriors(np.random.default_rng(seed), 100)
    found = gaussian_product(draws, num_draws=20_000, seed=seed)
    precisions = [np.linalg.inv(np.cov(part, rowvar=False)) for part in draws]
    covariance = np.linalg.inv(sum(precisions))
    mean = covariance @ sum(p @ part.mean(axis=0) for p, part in zip(precisions, draws, strict=True))
    np.testing.assert_allclose(found.diagnostics["mean"], mean, rtol=1e-9)
    np.testing.assert_allclose(found.diagnostics["covariance"], covariance, rtol=1e-9)
    z = (found.draws - mean) @ np.linalg.inv(np.linalg.cholesky(covariance)).T
    assert np.all(np.abs(z.mean(axis=0)) < 5 / np.sqrt(20_000))
    assert np.all(np.abs(np.cov(z, rowvar=False) - np.eye(2)) < 5 * np.sqrt(2 / 20_000))


def test_means_agree_to_rounding(seed):
    """Every draw is averaged once by consensus, and by a merge that keeps all pairs: the mean is the product's."""
    draws = subposteriors(np.random.default_rng(seed), 200)[:2]
    expected = gaussian_product(draws).diagnostics["mean"]
    np.testing.assert_allclose(consensus(draws).draws.mean(axis=0), expected, rtol=1e-9)
    np.testing.assert_allclose(weierstrass(draws, acceptance=1).draws.mean(axis=0), expected, rtol=1e-9)


def test_scales_do_not_matter(seed):
    """Units of 1e-8 and 1e8 in one draw: covariances are inverted as correlations."""
    draws, units = subposteriors(np.random.default_rng(seed), 300), np.array([1e-8, 1e8])
    for method in (consensus, gaussian_product, weierstrass):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            scaled = method([part * units for part in draws]).draws
        np.testing.assert_allclose(scaled / units, method(draws).draws, rtol=1e-6, atol=1e-9)
