"""What the plain call draws from: exact posteriors in raw units, from starts far away."""

from __future__ import annotations

import os

import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from scirocco.run.choose import methods
from scirocco.run.choose.limits import LIMITS

pytestmark = pytest.mark.law

SEED = int(os.environ.get("SCIROCCO_TEST_SEED", "0"))


@pytest.fixture(autouse=True, scope="module")
def _hurry(quick_compiler):
    """Programs that run for less than a second."""


def assert_moments(draws, mean, covariance):
    """Means and variances within five standard errors, which are taken from blocks that are longer than any memory."""
    centred = np.asarray(draws, np.float64) - mean
    blocks = centred.reshape(centred.shape[0], 10, -1, centred.shape[-1])
    for values, wanted in ((blocks, 0.0), (blocks**2, np.diagonal(covariance))):
        means = values.mean(axis=2).reshape(-1, values.shape[-1])
        error = means.std(axis=0, ddof=1) / np.sqrt(len(means))
        z = (means.mean(axis=0) - wanted) / error
        assert np.all(np.abs(z) < 5), z


@pytest.mark.rotates(3)
@pytest.mark.filterwarnings("error::scirocco.errors.SciroccoWarning")
@pytest.mark.parametrize(("num_rows", "start"), [(1, 5.0), (400, -300.0), (5_000, 0.0)])
def test_regression_in_raw_units(num_rows, start):
    """Columns of sizes 1, 100 and 0.01, a prior that matters where rows are few."""
    rng = np.random.default_rng([SEED, num_rows])
    x = np.column_stack([np.ones(num_rows), rng.normal(200, 100, num_rows), rng.normal(0, 0.01, num_rows)])
    y = (x @ [3.0, 0.01, 50.0] + rng.normal(size=num_rows)).astype(np.float32)
    x, scale = x.astype(np.float32), np.array([10.0, 1.0, 100.0], np.float32)
    model = sc.Model(
        lambda beta, row: -0.5 * (row["y"] - row["x"] @ beta) ** 2, lambda beta: -0.5 * jnp.sum((beta / scale) ** 2)
    )
    wide = x.astype(np.float64)
    covariance = np.linalg.inv(wide.T @ wide + np.diag(1.0 / scale.astype(np.float64) ** 2))
    run = sc.sample(
        model,
        {"x": x, "y": y},
        np.full(3, start, np.float32),
        num_samples=1_000,
        num_chains=4,
        seed=SEED,
        progress=False,
    )
    assert_moments(run.draws, covariance @ (wide.T @ y), covariance)


@pytest.mark.rotates(3, "defaults")
def test_location_and_scale_from_afar():
    """Started where the log density bends the wrong way; the mean is a Student t variable."""
    rng = np.random.default_rng([SEED, 1])
    y = rng.normal(87.0, 20.0, 434).astype(np.float32)
    model = sc.Model(lambda p, y: -0.5 * ((y - p["mean"]) / jnp.exp(p["log_sd"])) ** 2 - p["log_sd"])
    start = {"mean": np.float32(0.0), "log_sd": np.float32(0.0)}
    run = sc.sample(model, y, start, num_samples=1_000, num_chains=4, seed=SEED, progress=False)
    assert run.preparation["distance_to_mode_in_sd"] < 0.25
    # flat in the mean and in log sd: (n - 1) s² / σ² is chi-square with n - 1 degrees
    n, exact = len(y), y.astype(np.float64)
    sd = exact.std(ddof=1) / np.sqrt(n) * np.sqrt((n - 1) / (n - 3))
    draws = np.asarray(run.draws["mean"], np.float64)
    # steps of finite length inflate what is not Gaussian, by less than two per cent here
    assert abs(draws.mean() - exact.mean()) < 0.1 * sd
    assert abs(draws.std() / sd - 1) < 0.1


def test_a_likelihood_of_absolute_values():
    """Its second derivatives are 0 wherever they are taken: scales follow from the gradients. Truth by quadrature."""
    x = np.random.default_rng([SEED, 2]).normal(size=200).astype(np.float32)
    model = sc.Model(lambda p, x: -jnp.abs(p - x), lambda p: -0.005 * p**2)
    run = sc.sample(model, x, np.float32(3.0), num_samples=1_000, num_chains=4, seed=SEED, progress=False)
    grid = np.linspace(-1.0, 1.0, 4_001)
    log_density = -np.abs(grid[:, None] - x).sum(axis=1) - 0.005 * grid**2
    weights = np.exp(log_density - log_density.max())
    mean = np.average(grid, weights=weights)
    sd = np.sqrt(np.average((grid - mean) ** 2, weights=weights))
    assert abs(run.draws.mean() - mean) < 0.1 * sd
    assert abs(run.draws.std() / sd - 1) < 0.1


@pytest.mark.rotates(3, "defaults")
def test_rare_rows_that_cause_most_of_the_noise():
    """Twenty of 100,000 rows have all the information about one coefficient; few batches contain any of them."""
    rng = np.random.default_rng([SEED, 3])
    x = rng.normal(size=(100_000, 3))
    x[:, 2] = 0.0
    x[rng.choice(100_000, 20, replace=False), 2] = 10.0
    y = (x @ [1.0, -1.0, 0.5] + rng.normal(size=100_000)).astype(np.float32)
    x = x.astype(np.float32)
    model = sc.Model(lambda beta, row: -0.5 * (row["y"] - row["x"] @ beta) ** 2, lambda beta: -0.5 * beta @ beta)
    run = sc.sample(model, {"x": x, "y": y}, np.zeros(3, np.float32), seed=SEED, progress=False)
    assert run.configuration["sampler"]["name"] == "Preconditioned"
    wide = x.astype(np.float64)
    covariance = np.linalg.inv(wide.T @ wide + np.eye(3))
    ratio = np.asarray(run.draws, np.float64).reshape(-1, 3).std(axis=0) / np.sqrt(np.diagonal(covariance))
    assert np.all(np.abs(ratio - 1) < 0.1), ratio
    assert run.certificate.trustworthy


@pytest.mark.rotates(3, "defaults")
def test_many_parameters_with_strong_directions(changed):
    """Parameters that are too many for a matrix, whose precision is diagonal and five directions 10⁴ times as stiff."""
    few = {"trajectory_parameters": 400, "dense_parameters": 400}
    changed(LIMITS, **few)
    rng = np.random.default_rng([SEED, 4])
    size = 500
    own, stiff = np.exp(rng.normal(size=size)), 3 * rng.normal(size=(size, 5))
    y = rng.normal(size=size).astype(np.float32)
    rows = {"number": np.arange(size), "y": y, "own": own.astype(np.float32)}
    across = jnp.asarray(stiff, jnp.float32)
    model = sc.Model(
        lambda p, row: -0.5 * row["own"] * (row["y"] - p[row["number"]]) ** 2,
        lambda p: -0.5 * jnp.sum((p @ across) ** 2),
    )
    run = sc.sample(model, rows, np.zeros(size, np.float32), num_samples=200, seed=SEED, progress=False)
    assert "correlated directions" in run.preparation["chosen"]
    precision = np.diag(own) + stiff @ stiff.T
    values, vectors = np.linalg.eigh(precision)
    places = np.r_[0:5, 200:210, size - 5 : size]
    mean = np.linalg.solve(precision, own * y)
    scaled = (np.asarray(run.draws, np.float64) - mean) @ vectors[:, places] * np.sqrt(values[places])
    assert_moments(scaled, 0.0, np.eye(len(places)))
    assert np.min(sc.diagnostics.ess(scaled)) > 100  # of 800 draws; about 300, and 5 with a diagonal alone
    assert run.configuration["thin"] < 50


@pytest.mark.rotates(2)
@pytest.mark.parametrize("all_rows", [False, True])
def test_few_rows_of_many_numbers(all_rows, changed, tmp_path):
    """Batches of nearly all rows are noisy, too; where all rows are less work they are used, and a run is resumed."""
    if all_rows:
        changed(LIMITS, largest_batch=8)
    rng = np.random.default_rng([SEED, 6])
    num_rows, size = 2_500, 100
    x = rng.normal(size=(num_rows, size)) + 0.7 * rng.normal(size=(num_rows, 1))
    y = x[:, 0] + rng.normal(size=num_rows)
    model = sc.Model(lambda b, row: -0.5 * (row["y"] - row["x"] @ b) ** 2, lambda b: -0.5 * jnp.sum(b**2))
    rows = {"x": x.astype(np.float32), "y": y.astype(np.float32)}
    how = {"num_chains": 2, "seed": SEED, "progress": False}
    run = sc.sample(model, rows, np.zeros(size, np.float32), num_samples=200, **how)
    assert ("Full (all" in run.preparation["chosen"]) == all_rows
    covariance = np.linalg.inv(x.T @ x + np.eye(size))
    assert_moments(run.draws, covariance @ (x.T @ y), covariance)
    if all_rows:
        sc.sample(model, rows, np.zeros(size, np.float32), num_samples=100, store=tmp_path / "run", **how)
        again = sc.resume(tmp_path / "run", model, rows, num_samples=200, progress=False)
        np.testing.assert_array_equal(again.draws, run.draws)


@pytest.mark.rotates(3, "defaults")
@pytest.mark.parametrize("seed", [SEED, 10])
def test_rare_events(seed):
    """Twenty ones in 100,000 rows, beside importance weights.

    The curvature in the tails is five times that at the mode: with a step for the mode, chains of seed 10 leave.
    """
    rng = np.random.default_rng([seed, 8])
    x = rng.normal(size=(100_000, 5)).astype(np.float32)
    rates = np.exp(x @ np.array([1.0, -1.0, 0.5, 0.0, 0.0]))
    y = np.zeros(len(x), np.float32)
    y[rng.choice(len(x), 20, replace=False, p=rates / rates.sum())] = 1.0
    model = sc.Model(
        lambda b, row: row["y"] * (b[0] + row["x"] @ b[1:]) - jnp.logaddexp(0.0, b[0] + row["x"] @ b[1:]),
        lambda b: -0.5 * b[0] ** 2 / 100 - 0.5 * jnp.sum(b[1:] ** 2) / 9,
    )
    run = sc.sample(model, {"x": x, "y": y}, np.zeros(6, np.float32), seed=seed, progress=False)
    assert "ControlVariates" in run.preparation["chosen"]
    draws = np.asarray(run.draws, np.float64).reshape(-1, 6)
    centre, factor = draws.mean(axis=0), np.linalg.cholesky(np.cov(draws.T))
    u = rng.standard_t(8, size=(600, 6))
    places = centre + u @ factor.T
    logits = np.column_stack([np.ones(len(x)), x]) @ places.T
    logs = y @ logits - np.logaddexp(0.0, logits).sum(axis=0)
    logs -= 0.5 * places[:, 0] ** 2 / 100 + 0.5 * np.sum(places[:, 1:] ** 2, axis=1) / 9
    weights = np.exp(logs - logs.max()) * np.prod((1 + u**2 / 8) ** 4.5, axis=1)
    weights /= weights.sum()
    assert 1 / np.sum(weights**2) > 90, "the draws are elsewhere"
    mean = weights @ places
    sd = np.sqrt(weights @ (places - mean) ** 2)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 0.3 * sd)
    np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.2)


@pytest.mark.rotates(3, "defaults")
def test_many_parameters_far_from_gaussian(changed):
    """The signs of sixty parameters are not known: no mode stands for all of it, and the run says so."""
    changed(LIMITS, trajectory_parameters=50)
    rng = np.random.default_rng([SEED, 7])
    rows = rng.normal(0.03, 1.0, size=(200, 60)).astype(np.float32)
    model = sc.Model(lambda p, x: -0.5 * jnp.sum((x - p**2) ** 2), lambda p: -0.5 * jnp.sum(p**2))
    with pytest.warns(sc.errors.SciroccoWarning):
        run = sc.sample(model, rows, np.full(60, 0.1, np.float32), num_samples=100, seed=SEED, progress=False)
    assert run.preparation["chosen"].startswith("SGHMC (the posterior is far from Gaussian")
    assert run.preparation["roundness"] > 1 and run.configuration["thin"] == 10


@pytest.mark.rotates(3, "defaults")
def test_fewer_draws_of_very_many_parameters():
    model = sc.Model(lambda p, x: -0.5 * jnp.sum((x - p) ** 2))
    sizes = {10: 1_000, 10**5: 500, 10**6: 50, 10**8: 50}
    found = {
        size: methods.default_lengths(model, None, None, None, np.broadcast_to(np.float32(0), size))[0]
        for size in sizes
    }
    assert found == sizes
