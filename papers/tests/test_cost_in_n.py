"""Parts of `cost-in-n` by themselves, and a small run of all of it."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest

import helpers
from scirocco_papers import ALL, Settings, reproduce
from scirocco_papers.cost_in_n import counted as cl
from scirocco_papers.cost_in_n import run as cn
from scirocco_papers.cost_in_n.claims import judge


@pytest.fixture
def rows(seed):
    return cl.simulate(200, seed)


def test_counts_are_those_of_the_rows(rows):
    counts = cl.count(rows)
    assert counts.tolist() == [int(np.all(rows == kind, axis=1).sum()) for kind in cl.TYPES]
    assert counts.sum() == len(rows)


def test_density_is_that_of_the_model(rows, seed):
    """From counts as from the rows, up to a constant; the largest smoothness is that of the rows."""
    points = np.random.default_rng(seed).normal(size=(3, 3))
    found = cl.log_posterior(points, cl.count(rows))
    exact = np.array([cl.MODEL.log_density(point.astype(np.float32), rows) for point in points])
    np.testing.assert_allclose(found - found[0], exact - exact[0], rtol=1e-4, atol=1e-3)
    assert pytest.approx(np.max(np.sum(rows**2, axis=1)) / 4) == cl.LARGEST_SMOOTHNESS


def test_quadrature_agrees_with_weighted_draws(rows, seed):
    """Draws of a normal law at the mode, twice as wide, weighted by the density (5 standard errors)."""
    counts = cl.count(rows)
    truth, (mode, curvature) = cl.exact(counts), cl.find_mode(counts)
    unit = np.random.default_rng(seed).normal(size=(100_000, 3))
    params = mode + 2**0.5 * unit @ np.linalg.inv(np.linalg.cholesky(curvature))
    logs = cl.log_posterior(params, counts) + 0.5 * np.sum(unit**2, axis=1)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    for value, exact in ((params, truth.mean), ((params - truth.mean) ** 2, truth.sd**2)):
        error = np.sqrt(weights**2 @ (value - exact) ** 2)
        assert np.all(np.abs(weights @ value - exact) < 5 * error)
        assert np.all(error < 0.02 * truth.sd)
    np.testing.assert_allclose(truth.mode, mode)


def test_mode_has_no_gradient(rows):
    """By central differences of the density."""
    counts = cl.count(rows)
    mode, curvature = cl.find_mode(counts)
    steps = 1e-3 * np.eye(3)
    up, here, down = (cl.log_posterior(mode + sign * steps, counts) for sign in (1, 0, -1))
    np.testing.assert_allclose(up - down, 0.0, atol=1e-6)
    np.testing.assert_allclose((2 * here - up - down) / 1e-6, np.diag(curvature), rtol=1e-3)


def test_noise_is_the_variance_over_rows(rows):
    """At one point, from the gradients of all rows; and none at the centre."""
    counts, point, centre = cl.count(rows), np.array([0.2, 0.4, -0.5]), np.array([0.3, 0.9, -0.8])

    def slopes(params, s):
        return 1 / (1 + np.exp(s @ params))

    each = slopes(point, rows)[:, None] * rows
    centred = each - slopes(centre, rows)[:, None] * rows
    for values, slope in (
        (each, slopes(point, cl.TYPES)),
        (centred, slopes(point, cl.TYPES) - slopes(centre, cl.TYPES)),
    ):
        found = cl._noise(slope[None], np.ones(1), counts)
        assert found == pytest.approx(len(rows) ** 2 * values.var(axis=0).sum(), rel=1e-5)


def truth_of(mean, sd):
    return cl.Truth(np.zeros(3), np.array(mean), np.array(sd), np.array([1.0, 2.0, 4.0]), 1.0, 1.0)


def test_error_of_a_law_is_its_distance(seed):
    """Large samples of N(mean + a sd, (b sd)²): √(a² + (b - 1)²); the square of small ones of the right law: 0."""
    rng, truth = np.random.default_rng(seed), truth_of([1.0, 0.0, -1.0], [0.1, 1.0, 3.0])
    draws = truth.mean + truth.sd * (0.3 + 1.4 * rng.normal(size=(4, 50_000, 3)))
    assert cn.law_error(draws, truth, 200_000) == pytest.approx(0.5, abs=0.02)
    one = truth_of([0.0], [1.0])
    squares = [np.mean(x) ** 2 + (np.std(x, ddof=1) - 1) ** 2 - 1.5 / 200 for x in rng.normal(size=(2_000, 200, 1))]
    # √ of an unbiased variance is low by 1/(4n): a square of 1/(16n²), far below the error of this mean
    assert abs(np.mean(squares)) < 5 * np.std(squares) / math.sqrt(len(squares))
    assert cn.law_error(np.array([[-0.7], [0.7]]), one, 2) == 0.0


def ensemble(seed, stationary):
    """Chains that start at the mean and whose sd grows to `stationary` like that of an autoregression."""
    rng, num_times = np.random.default_rng(seed), 40
    state, keep, out = np.zeros((4_000, 3)), 0.9, []
    for _ in range(num_times):
        state = keep * state + stationary * math.sqrt(1 - keep**2) * rng.normal(size=state.shape)
        out.append(state)
    return np.stack(out, axis=1)


def test_first_time_of_a_known_chain(seed):
    """sd_t = √(1 - 0.81^t) is at least 0.8 from the fifth step on; its later half is within 0.2."""
    error, time = cn.first_time(ensemble(seed, 1.0), truth_of([0.0] * 3, [1.0] * 3), 0.2)
    assert error < 0.1 and time in (5, 6)


def test_a_law_that_passes_by_does_not_count(seed):
    """Three times too wide in the end: right for a moment on the way."""
    draws, truth = ensemble(seed, 3.0), truth_of([0.0] * 3, [1.0] * 3)
    assert min(cn.law_error(draws[:, time], truth, 4_000) for time in range(3)) < 0.4
    error, time = cn.first_time(draws, truth, 0.4)
    assert error > 1.5 and time is None


@pytest.mark.parametrize("guess", [1, 7, 100, 900])
def test_search_finds_the_smallest_size(guess):
    tried = []

    def attempt(size):
        tried.append(size)
        return cn.Trial(1.0, size, 0.0, 3 if size >= 20 else None)

    grid = cn.batch_grid(1_000)
    found = cn.smallest(grid, guess, attempt)
    assert found.batch_size == min(size for size in grid if size >= 20) and found.cost == 3 * found.batch_size
    assert len(tried) == len(set(tried))


def test_search_gives_up():
    failed = cn.Trial(1.0, 1, 9.0, None)
    grid = cn.batch_grid(100)
    assert (grid[0], grid[-1]) == (1, 100) and failed.cost == math.inf
    assert cn.smallest(grid, 10, lambda size: failed) is None
    assert cn.smallest(grid, 10, lambda size: pytest.fail("tried"), ceiling=5.0) is None


def test_least_steps_are_those_of_the_autoregression():
    """sd² = (1 + a)² (1 - (1 - ρ/4)^(2K)), with curvatures from 1 to 4."""
    steps, low, high = cn.least_steps(0.2, truth_of([0.0] * 3, [1.0] * 3)), 1 - cn.ACCURACY, 1 + cn.ACCURACY
    reached = [high * math.sqrt(1 - 0.95 ** (2 * count)) >= low for count in (steps - 1, steps)]
    assert reached == [False, True]


def test_theory_is_flat_for_control_variates():
    tables = [cl.count(cl.simulate(10_000, 0)) * factor for factor in (1, 100)]
    small, large = (cn.theory(cl.exact(table), int(table.sum())) for table in tables)
    assert large["sgld_cv"] == pytest.approx(small["sgld_cv"], rel=0.01)
    assert large["sgld"] == pytest.approx(100 * small["sgld"], rel=0.05)


def table():
    def row(size, sgld, sgld_cv):
        trial = {"num_steps": 10, "batch_size": 3}
        return {
            "num_rows": size,
            "sgld": trial | {"rows": sgld},
            "sgld_cv": trial | {"rows": sgld_cv},
            "noise": 0.5 * size**2,
            "noise_cv": 1.5 * size,
            "theory": {"sgld": 1e4 * size, "sgld_cv": 1e7},
        }

    return [row(1_000, 600.0, 10.0), row(10_000, 8e3, 12.0), row(100_000, 7e4, 9.0)]


def test_claims_hold_for_the_thesis():
    assert all(claim.holds for claim in judge(table(), 0.1))


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (0, lambda row: row["sgld_cv"].update(rows=200.0)),
        (0, lambda row: row["sgld_cv"].update(rows=math.inf)),
        (1, lambda row: row["sgld"].update(rows=700.0)),
        (1, lambda row: row["sgld"].update(rows=math.inf)),
        (2, lambda row: row.update(noise_cv=0.1 * row["noise"])),
    ],
)
def test_each_claim_can_fail(number, change):
    changed = copy.deepcopy(table())
    change(changed[-1])
    assert not judge(changed, 0.1)[number].holds and judge(changed, 0.1)[number].of_a_quick_run().failed


@pytest.mark.rotates(5, "small runs")
def test_small_run(tmp_path, monkeypatch, quick_compiler):
    """Two sizes of batches at two small N: any of them is near enough."""
    monkeypatch.setattr(cn, "QUICK_SIZES", (100, 200))
    monkeypatch.setattr(cn, "NUM_CHAINS", 40)
    monkeypatch.setattr(cn, "ACCURACY", 0.6)
    monkeypatch.setattr(cn, "batch_grid", lambda num_rows: [num_rows // 4, num_rows])
    done = reproduce(ALL["cost-in-n"], Settings(quick=True, out_dir=tmp_path))
    results = done.outcome.numbers["results"]
    assert len(done.outcome.claims) == 3
    assert all(row[method]["num_steps"] for row in results for method in ("sgld", "sgld_cv"))
    helpers.assert_drawn(done.picture)
