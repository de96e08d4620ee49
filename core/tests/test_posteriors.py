"""The battery of benchmarks/posteriors.py: its posteriors are well posed, and its references are right."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
SOME_ROWS = 20
SEED = int(os.environ.get("SCIROCCO_TEST_SEED", "0"))


def _module(name: str) -> Any:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCHMARKS))


problems, runner = _module("posteriors_problems"), _module("posteriors")
REFERENCES = json.loads(runner.REFERENCES.read_text(encoding="utf-8"))
NAMES = list(problems.POSTERIORS)


@pytest.fixture(scope="module")
def truth() -> Any:
    pytest.importorskip("scipy")
    return _module("posteriors_truth")


def test_every_posterior_has_a_reference_and_there_are_enough() -> None:
    assert list(REFERENCES) == NAMES
    assert len(NAMES) >= 36


@pytest.mark.rotates(3)
@pytest.mark.parametrize("name", NAMES)
def test_a_posterior_is_finite_at_its_start_and_a_reference_is_one_number_per_parameter(name: str) -> None:
    problem, reference = problems.POSTERIORS[name].build(), REFERENCES[name]
    rows = jax.tree.map(lambda leaf: leaf[:SOME_ROWS], problem.data)
    problem.model.check_domain(problem.start)
    look = jax.jit(jax.value_and_grad(problem.model.look))
    value, gradient = look(problem.model.unconstrain(problem.start), rows)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((value, gradient)))
    size = sum(leaf.size for leaf in problem.start.values())
    assert len(reference["parameters"]) == len(reference["mean"]) == len(reference["sd"]) == size
    assert np.all(np.isfinite(reference["mean"])) and np.all(np.array(reference["sd"]) > 0)
    assert reference["error"] <= 0.01


def _agree(found: Any, name: str, within: float) -> None:
    mean, sd = np.array(REFERENCES[name]["mean"]), np.array(REFERENCES[name]["sd"])
    np.testing.assert_allclose((found.mean - mean) / sd, 0, atol=within)
    np.testing.assert_allclose(np.log(found.sd / sd), 0, atol=within)


@pytest.mark.rotates(2)
@pytest.mark.parametrize(
    ("name", "points"),
    [
        ("normal_eight_rows", 201),
        ("linear_years", 61),
        ("ar1_one_row", 61),
        ("one_row", 201),
        ("proportion_near_zero", 1_001),
    ],
)
def test_closed_forms_agree_with_quadrature_of_the_model(truth: Any, name: str, points: int) -> None:
    with jax.enable_x64(True):
        found = truth.grid(problems.POSTERIORS[name].build(), points)
    _agree(found, name, 1e-3)


@pytest.mark.rotates(3)
@pytest.mark.parametrize("name", ["exponential_censored", "dose_response", "logistic_separated"])
def test_quadrature_agrees_with_importance_sampling_of_the_model(truth: Any, name: str) -> None:
    pytest.importorskip("arviz")
    with jax.enable_x64(True):
        found = truth.importance(problems.POSTERIORS[name].build(), draws=40_000)
    _agree(found, name, 2 * found.error)  # four standard errors of the worst parameter


def _drawn(rng: Any, logs: np.ndarray) -> np.ndarray:
    """Places, with probabilities in proportion to exp(logs)."""
    chances = np.exp(logs - logs.max()).ravel()
    return rng.choice(logs.size, 40_000, p=chances / chances.sum())


def _funnel_draws(rng: Any, data: Any) -> tuple[np.ndarray, np.ndarray]:
    y, grid = data["y"].astype(float), np.linspace(-20, 15, 20_001)
    spread = np.exp(grid)[:, None] + 4
    logs = -0.5 * np.sum(y**2 / spread + np.log(spread), axis=1) - 0.5 * (grid / 3) ** 2
    v = grid[_drawn(rng, logs)][:, None]
    share = np.exp(v) / (np.exp(v) + 4)
    x = share * y + np.sqrt(4 * share) * rng.normal(size=(len(v), 2))
    return np.column_stack([v, x]), np.column_stack([v, x])


def _school_draws(rng: Any, data: Any) -> tuple[np.ndarray, np.ndarray]:
    y, error = data["y"].astype(float), data["error"].astype(float)
    mean, log_sd = (a.ravel() for a in np.meshgrid(np.linspace(-25, 35, 601), np.linspace(-15, 6, 601)))
    spread = error**2 + np.exp(2 * log_sd)[:, None]
    logs = -0.5 * np.sum((y - mean[:, None]) ** 2 / spread + np.log(spread), axis=1)
    logs += -0.5 * (mean / 5) ** 2 - np.log1p(np.exp(2 * log_sd) / 25) + log_sd
    drawn = _drawn(rng, logs)
    mean, log_sd, spread = mean[drawn], log_sd[drawn], spread[drawn]
    share = np.exp(2 * log_sd)[:, None] / spread
    off = share * (y - mean[:, None]) + np.sqrt(share) * error * rng.normal(size=share.shape)
    points = np.column_stack([mean, log_sd, mean[:, None] + off])
    return points, np.column_stack([mean, log_sd, off])


def _standard_school_draws(rng: Any, data: Any) -> tuple[np.ndarray, np.ndarray]:
    _, points = _school_draws(rng, data)
    points[:, 2:] /= np.exp(points[:, 1:2])
    return points, points


@pytest.mark.parametrize(
    ("name", "draw", "checked"),
    [
        ("funnel", _funnel_draws, slice(0, 3)),
        ("schools_centred", _school_draws, slice(1, 10)),
        ("schools_noncentred", _standard_school_draws, slice(0, 10)),
    ],
)
def test_steins_identity_holds_at_exact_draws_that_have_the_moments_of_the_reference(
    truth: Any, name: str, draw: Any, checked: slice
) -> None:
    """E f_i ∂_i log p = -1 for the model's gradient and fields f with ∂_i f_i = 1."""
    problem = problems.POSTERIORS[name].build()
    points, fields = draw(np.random.default_rng(SEED), problem.data)
    with jax.enable_x64(True):
        target = truth.Target(problem)
        gradients = np.asarray(jax.vmap(target.gradient)(points))
        values = target.params(points)
    products = (fields * gradients)[:, checked]
    error = products.std(axis=0) / np.sqrt(len(points))
    np.testing.assert_array_less(np.abs(products.mean(axis=0) + 1), 5 * error)
    z = (values - np.array(REFERENCES[name]["mean"])) / np.array(REFERENCES[name]["sd"])
    np.testing.assert_array_less(np.abs(z.mean(axis=0)), 5 / np.sqrt(len(points)))
    np.testing.assert_array_less(np.abs((z**2).mean(axis=0) - 1), 5 * (z**2).std(axis=0) / np.sqrt(len(points)))


# -- verdicts ---------------------------------------------------------------------------------------------------------


def _found(**changes: Any) -> dict[str, Any]:
    plain = {"error": None, "mean_error": 0.0, "log_sd_ratio": 0.0, "warnings": [], "trustworthy": None}
    return plain | changes


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "right"),
        ({"warnings": ["careful"]}, "right"),
        ({"mean_error": 0.11}, "WRONG IN SILENCE"),
        ({"log_sd_ratio": -0.1}, "WRONG IN SILENCE"),
        ({"mean_error": float("inf"), "warnings": ["careful"]}, "warned"),
        ({"mean_error": 0.2, "trustworthy": False}, "warned"),
        ({"mean_error": 0.2, "trustworthy": True}, "WRONG IN SILENCE"),
        ({"error": "DivergenceError", "named": True}, "warned"),
        ({"error": "KeyError", "named": False}, "failed"),
    ],
)
def test_verdicts(changes: dict[str, Any], expected: str) -> None:
    assert runner.verdict(_found(**changes)) == expected


def test_the_worst_parameter_counts() -> None:
    rng = np.random.default_rng(0)
    draws = {"a": rng.normal(size=(4, 2_000)), "b": rng.normal(size=(4, 2_000, 2)) * [1.0, 2.0]}
    reference = {"parameters": ["a", "b[0]", "b[1]"], "mean": [1.0, 0.0, 0.0], "sd": [1.0, 1.0, 1.0]}
    found = runner.compare(draws, reference)
    assert found["mean_worst"] == "a" and abs(found["mean_error"] - 1) < 0.1
    assert found["sd_worst"] == "b[1]" and abs(found["log_sd_ratio"] - np.log(2)) < 0.1
    draws["a"] = draws["a"] * np.nan
    assert runner.compare(draws, reference)["mean_error"] == np.inf


def test_a_table_is_written_between_the_marks_of_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text((BENCHMARKS.parent / "docs" / "battery.md").read_text(encoding="utf-8"), encoding="utf-8")
    numbers = {"log_sd_ratio": 0.01, "ess": 900.0, "rhat": 1.0, "seconds": 2.0, "chosen": "A, B, C", "cold": True}
    runs = [_found(posterior="funnel", seed=0, verdict="right", **numbers)]
    runs.append(runs[0] | {"seed": 1, "verdict": "warned", "warnings": ["a funnel"], "cold": False})
    for _ in range(2):  # again: in place of the last
        runner.fill(page, runner.table(runs))
    text = page.read_text(encoding="utf-8")
    assert text.count("| 1 of 2; 1 warned | 0.000 | 1.010 | 900 | 1.000 | 2.0, 2.0 | A, B |") == 1
    assert text.count("- `funnel`: a funnel") == 1
    assert "2 runs of 1 posteriors (seeds 0 to 1): 1 right (50.0%)" in text
