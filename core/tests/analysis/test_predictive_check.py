"""Predictive checks: what is found, what is not, and what a report shows."""

from __future__ import annotations

import re

import jax
import numpy as np
import pytest

import scirocco as sc
from scirocco.analysis import predictive_check, prior_draws
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.run.result import Origin, Run

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("quick_compiler")]

DRAWS = np.full((2, 100), 1.0, np.float32)
"""The truth is known, so that simulated and observed data have the same distribution."""


def normal(mu, row, key):
    return mu + jax.random.normal(key)


def coin(mu, row, key):
    return jax.random.bernoulli(key, jax.nn.sigmoid(mu * row["x"]))


def rows_of(seed, kind, count=400):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=count).astype(np.float32)
    outcomes = {
        "normal": 1.0 + rng.normal(size=count),
        "heavy": 1.0 + rng.standard_t(1.5, size=count),
        "coin": rng.random(count) < 1 / (1 + np.exp(-x)),
        "many": rng.poisson(3.0, size=count),
    }
    return {"x": x, "y": outcomes[kind].astype(np.float32), "group": (x > 0).astype(np.int32)}


def test_data_of_the_model_pass(seed):
    rows = rows_of(seed, "normal")
    check = predictive_check(DRAWS, normal, rows, group="group", seed=seed)
    assert check.kind == "continuous" and min(row.p_value for row in check.statistics) > 1e-4
    assert [row.name.partition(" (")[0] for row in check.groups] == ["group 0", "group 1"]
    assert check.groups[1].mean == pytest.approx(check.simulated[:, rows["group"] == 1].mean(), abs=1e-9)
    assert check.simulated.shape == (200, 400) and "400 rows, 200 draws" in check.words
    assert abs(check.simulated.mean() - 1.0) * np.sqrt(80_000) < 5


def test_heavy_tails_are_found(seed):
    check = predictive_check(DRAWS, normal, rows_of(seed, "heavy"), statistics={"range": np.ptp}, seed=seed)
    assert not check.ok
    assert {"sd", "range"} <= {row.name for row in check.flagged}
    assert check.words.startswith("the observed data differ")
    assert check.frame.loc["range", "p_value"] < 1e-3


def test_a_group_that_differs_is_found(seed):
    rows = rows_of(seed, "normal")
    rows["y"] = rows["y"] + np.where(rows["group"] == 1, 0.8, -0.8).astype(np.float32)
    check = predictive_check(DRAWS, normal, rows, group="group", seed=seed)
    assert {row.name[:7] for row in check.flagged} >= {"group 0", "group 1"}


def test_binary_outcomes_are_calibrated(seed):
    check = predictive_check(DRAWS, coin, rows_of(seed, "coin", 2000), seed=seed)
    assert check.kind == "binary" and [row.name for row in check.statistics] == ["mean"]
    worst = max(abs(row.observed - row.predicted) / row.standard_error for row in check.calibration.table)
    assert worst < 6


def test_counts_have_roots_of_frequencies(seed):
    def poisson(mu, row, key):
        return jax.random.poisson(key, 3.0 * mu)

    check = predictive_check(DRAWS, poisson, rows_of(seed, "many", 200), num_draws=50, seed=seed)
    edges, observed, simulated = check.curve()
    assert check.kind == "counts" and np.all(np.diff(edges) == 1)
    assert np.sum(observed**2) == pytest.approx(200) and simulated.shape == (50, len(edges) - 1)
    assert min(row.p_value for row in check.statistics) > 1e-4


def test_many_rows_are_sampled_and_prior_draws_work(seed):
    draws = prior_draws(lambda key: 1.0 + 10.0 * jax.random.normal(key), 150, seed)
    assert draws.shape == (1, 150)
    assert abs(draws.std() / 10.0 - 1.0) < 5 / np.sqrt(300)
    check = predictive_check(draws, normal, rows_of(seed, "normal"), num_rows=50, title="Prior predictive check")
    assert check.simulated.shape == (150, 50) and "50 of 400 rows" in check.words
    assert check.simulated.mean(axis=1).std() > 5


def test_the_model_of_a_run_knows_how_outcomes_are_drawn(seed):
    """By a function of the model: one outcome, or one of several by name, each with the column that was observed."""

    def both(mu, row, key):
        return {"plain": mu + jax.random.normal(key), "squared": (mu + jax.random.normal(key)) ** 2}

    def run_with(**functions):
        model = sc.Model(lambda mu, row: -0.5 * (row["y"] - mu) ** 2, **functions)
        origin = Origin(model, sc.data.as_source(rows), None, None, None)
        return Run(DRAWS, None, {}, {}, {}, {}, "complete", [], origin=origin)

    rows = rows_of(seed, "normal", 50)
    wanted = predictive_check(DRAWS, normal, rows, seed=seed)
    np.testing.assert_array_equal(predictive_check(run_with(simulate=normal), seed=seed).simulated, wanted.simulated)
    two = run_with(simulate=both, observed=lambda rows: {"plain": rows["y"], "squared": rows["y"] ** 2})
    check = predictive_check(two, observed="squared", seed=seed)
    np.testing.assert_array_equal(check.observed, rows["y"] ** 2)
    np.testing.assert_allclose(check.simulated, wanted.simulated**2, rtol=1e-5)
    with pytest.raises(InvalidValueError, match=r"several outcomes are simulated: .*observed='plain'"):
        predictive_check(two)
    with pytest.raises(InvalidTypeError, match="does not know how outcomes are drawn"):
        predictive_check(run_with())


def test_a_report_shows_every_check():
    configuration = {"kind": "own loop", "model": "test", "sampler": "given", "dimension": 1, "num_rows": 400}
    draws = np.random.default_rng(0).normal(size=(2, 100)).astype(np.float32)
    run = Run(draws, None, {}, configuration, {}, {}, "complete", [])
    checks = [
        predictive_check(DRAWS, normal, rows_of(0, "normal"), group="group"),
        predictive_check(DRAWS, coin, rows_of(0, "coin"), title="Of <coins>"),
    ]
    page = sc.report.html(run, checks=checks)
    names = re.findall(r'id="([^"]+)"', page)
    assert len(names) == len(set(names)), "an id stands twice"
    assert {"predictive-check", "predictive-check-2", "predictive-check-2-statistics"} <= set(names)
    assert "Of &lt;coins&gt;" in page and "Of <coins>" not in page
    with pytest.raises(InvalidTypeError, match="`checks` must contain"):
        sc.report.html(run, checks=[3])


def test_what_is_refused():
    rows = rows_of(0, "normal", 20)
    with pytest.raises(InvalidTypeError, match="\\(params, row, key\\)"):
        predictive_check(DRAWS, lambda mu, row: mu, rows)
    with pytest.raises(InvalidValueError, match="requires the rows"):
        predictive_check(DRAWS, normal)
    with pytest.raises(InvalidValueError, match="`observed` is 'z'"):
        predictive_check(DRAWS, normal, rows, observed="z")
    with pytest.raises(InvalidValueError, match="one number for each of the 20 rows"):
        predictive_check(DRAWS, normal, rows, observed=lambda rows: rows["y"][:5])
    with pytest.raises(InvalidValueError, match="one number for one row"):
        predictive_check(DRAWS, lambda mu, row, key: jax.random.normal(key, (3,)), rows)
    with pytest.raises(InvalidValueError, match="NaN or inf"):
        predictive_check(DRAWS, lambda mu, row, key: jax.random.normal(key) / 0.0, rows)
    with pytest.raises(InvalidValueError, match="statistic `odd` must return one number"):
        predictive_check(DRAWS, normal, rows, statistics={"odd": lambda y: y[:2]})
