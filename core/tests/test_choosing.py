"""The pure parts of benchmarks/choosing.py: true posteriors, and what draws are judged by."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scirocco as sc

pytestmark = pytest.mark.unit

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def truth() -> Any:
    return _module("choosing_truth")


@pytest.fixture(scope="module")
def measures() -> Any:
    pytest.importorskip("arviz")
    return _module("choosing_measures")


def _module(name: str) -> Any:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCHMARKS))


def _logistic_log_density(x: np.ndarray, y: np.ndarray, prior_sd: np.ndarray) -> Any:
    def log_density(points: np.ndarray) -> np.ndarray:
        scores = points @ x.T
        return scores @ y - np.logaddexp(0, scores).sum(axis=1) - 0.5 * np.sum((points / prior_sd) ** 2, axis=1)

    return log_density


def test_importance_sampling_agrees_with_quadrature(truth: Any) -> None:
    rng = np.random.default_rng(0)
    x = np.stack([np.ones(200), rng.normal(size=200)], axis=1)
    y = 1.0 * (rng.random(200) < 1 / (1 + np.exp(-x @ [0.5, -1.0])))
    prior_sd = np.array([3.0, 2.0])
    found = truth.logistic(x, y, prior_sd)
    exact = truth.plane(_logistic_log_density(x, y, prior_sd), (-1.5, -3.0), (2.5, 1.0), points=121)
    assert np.allclose((found.mean - exact.mean) / exact.sd, 0, atol=0.01)
    assert np.allclose(found.sd / exact.sd, 1, atol=0.01)


def test_a_plane_of_normals(truth: Any) -> None:
    found = truth.plane(lambda p: -0.5 * ((p[:, 0] - 1) / 0.1) ** 2 - 0.5 * (p[:, 1] / 0.3) ** 2, (0, -3), (2, 3))
    assert np.allclose(found.mean, [1, 0], atol=1e-6)
    assert np.allclose(found.sd, [0.1, 0.3], rtol=1e-4)


def test_linear_regression_agrees_with_one_parameter_by_hand(truth: Any) -> None:
    found = truth.linear(np.array([[1.0], [2.0]]), np.array([1.0, 3.0]), 2.0)
    assert np.allclose(found.mean, 7 / 5.25)
    assert np.allclose(found.sd, 5.25**-0.5)


@pytest.mark.law
def test_hierarchical_agrees_with_gibbs(truth: Any) -> None:
    """The same posterior by a Gibbs sampler for μ and θ and a grid for the two scales, within five standard errors."""
    rng = np.random.default_rng(1)
    group = np.arange(90) % 6
    y = rng.normal(480, 30, 6)[group] + rng.normal(0, 15, 90)
    found = truth.hierarchical(y, group)
    draws = _gibbs(y, group, rng, 6_000)
    blocks = draws[600:].reshape(27, 200, -1).mean(axis=1)
    error = blocks.std(axis=0, ddof=1) / np.sqrt(len(blocks))
    assert np.all(np.abs(blocks.mean(axis=0) - found.mean) < 5 * error)
    assert np.allclose(draws[600:].std(axis=0) / found.sd, 1, atol=0.15)


def _gibbs(y: np.ndarray, group: np.ndarray, rng: np.random.Generator, num: int) -> np.ndarray:
    """Draws of mu, sigma, tau and theta."""
    sizes, sums = np.bincount(group), np.bincount(group, y)
    grid = np.linspace(np.log(5.0), np.log(400.0), 1_500)

    def scale(squares: float, count: int) -> float:
        logs = -count * grid - 0.5 * squares * np.exp(-2 * grid) - 0.5 * (grid - np.log(50.0)) ** 2
        chance = np.cumsum(np.exp(logs - logs.max()))
        return float(np.exp(grid[np.searchsorted(chance, rng.random() * chance[-1])]))

    mu, sigma, tau, theta, out = 480.0, 15.0, 30.0, sums / sizes, []
    for _ in range(num):
        precision = sizes / sigma**2 + tau**-2
        theta = (sums / sigma**2 + mu / tau**2) / precision + rng.normal(size=len(sizes)) / np.sqrt(precision)
        own = len(sizes) / tau**2 + 200.0**-2
        mu = (theta.sum() / tau**2 + 400 / 200.0**2) / own + rng.normal() / np.sqrt(own)
        tau, sigma = (scale(np.sum((theta - mu) ** 2), len(sizes)), scale(np.sum((y - theta[group]) ** 2), len(y)))
        out.append([mu, sigma, tau, *theta])
    return np.array(out)


def test_dirichlet_moments(truth: Any) -> None:
    concentration = np.array([2.0, 3.0, 5.0])
    found = truth.dirichlet(concentration)
    draws = np.random.default_rng(2).dirichlet(concentration, 100_000)
    assert np.allclose(draws.mean(axis=0), found.mean, atol=5 * found.sd.max() / 100_000**0.5)
    assert np.allclose(draws.std(axis=0) / found.sd, 1, atol=0.02)


def test_judged_draws(measures: Any) -> None:
    """Draws that are shifted by half a deviation and twice as wide say so."""
    mean, sd = np.array([1.0, -2.0]), np.array([0.1, 3.0])
    z = np.random.default_rng(3).normal(size=(4, 2_000, 2))
    right = measures.judge(mean + sd * z, mean, sd)
    wrong = measures.judge(mean + sd * (0.5 + 2 * z), mean, sd)
    assert right["mean_error"] < 5 / 2_000**0.5 and abs(right["sd_ratio"] - 1) < 5 * right["sd_ratio_se"] < 0.1
    assert abs(wrong["mean_error"] - 0.5) < 0.2 and abs(wrong["sd_ratio"] - 2) < 0.1
    assert 5_000 < right["ess"] < 12_000


def test_standard_error_of_a_spread(measures: Any) -> None:
    """The standard error by leaving out chains is that of the spread between independent replications."""
    rng = np.random.default_rng(4)
    found = [measures.judge(rng.normal(size=(8, 200, 1)), np.zeros(1), np.ones(1)) for _ in range(60)]
    spread = np.std([each["sd_ratio"] for each in found])
    claimed = np.mean([each["sd_ratio_se"] for each in found])
    assert 0.6 < claimed / spread < 1.6


@pytest.mark.parametrize(
    ("estimator", "cost"),
    [
        (sc.Full(), 10_000.0),
        (sc.Minibatch(100), 100.0),
        (sc.ControlVariates(100), 200.0),
        (sc.SVRG(100), 250.0),
        (sc.SAGA(100), 100.0),
        (sc.Weighted(100, np.ones(10_000)), 100.0),
    ],
)
def test_gradients_a_step(measures: Any, estimator: Any, cost: float) -> None:
    assert measures.gradients_a_step(estimator, 10_000) == cost


def test_draws_of_trees_are_flat(measures: Any) -> None:
    draws = {"b": np.zeros((2, 5, 3)), "a": np.ones((2, 5))}
    flat = measures.flat(draws)
    assert flat.shape == (2, 5, 4) and flat[0, 0].tolist() == [1, 0, 0, 0]
