"""The judgement of `posterior-bias` on known numbers, and its measures on draws of a known law."""

import copy
import math

import jax.numpy as jnp
import numpy as np
import pytest

import helpers
from scirocco.demo import save_figure
from scirocco.errors import DivergenceError, InvalidValueError
from scirocco.estimators import SAGA, SVRG, ControlVariates, Full, Minibatch
from scirocco_papers import ALL
from scirocco_papers.base import Settings, reproduce
from scirocco_papers.covertype_rows import Rows
from scirocco_papers.posterior_bias import measures
from scirocco_papers.posterior_bias import run as experiment
from scirocco_papers.posterior_bias.claims import MATCHED, judge, notes
from scirocco_papers.posterior_bias.run import draw
from shared_data import data_folder

SAMPLERS = ("SGLD", "BAOAB", "SGLD, round", "BAOAB, round")
WAYS = ("Full", "Minibatch", "ControlVariates", "SVRG", "SAGA")


def cell(name, way):
    found = measures.Measured(0.03, 1.01 if way != "Minibatch" else 1.06, 0.02, 500.0, 0.02, 1e7)
    if name == MATCHED:
        return found._asdict() | {"sd_ratio": 1.9 if way == "Minibatch" else 1.01, "ess_per_million": 9.0}
    if not name.endswith("round"):
        found = found._replace(sd_ratio=0.4, ess=5.0)
    if way == "Minibatch":
        found = found._replace(sd_error=0.07, ess=found.ess / 4)
    return found._asdict() | {"ess_per_million": found.ess_per_million}


@pytest.fixture
def numbers():
    def table(names, ways):
        return {name: {way: cell(name, way) for way in ways} for name in names}

    truth = {"num_columns": 34, "independent": 12.0, "condition": 6e3, "least_ess": 5_000.0}
    return {
        "truth": {5_800: truth, 58_000: truth},
        "tables": {
            5_800: table(SAMPLERS, WAYS),
            58_000: table((*SAMPLERS[2:], MATCHED), ("Minibatch", "ControlVariates")),
        },
        "kinked": cell("SGLD, round", "Full") | {"sd_ratio": 1.15},
    }


def test_claims_hold(numbers):
    claims = judge(numbers)
    assert len(claims) == 5 and all(claim.holds for claim in claims)
    assert len(judge(numbers | {"tables": {5_800: numbers["tables"][5_800]}})) == 3, "a quick run"
    said = notes(numbers)
    assert (
        "1.0% of itself" in said[0]
        and "SGLD 0.40, BAOAB 0.40" in said[2]
        and "in round coordinates" in said[3]
        and "1.150" in said[5]
    )


@pytest.mark.parametrize(
    ("fails", "size", "name", "way", "field", "value"),
    [
        ([0], 5_800, "SGLD, round", "Full", "sd_ratio", 1.06),
        ([0], 5_800, "BAOAB, round", "ControlVariates", "sd_ratio", 0.94),
        ([], 5_800, "BAOAB, round", "Minibatch", "sd_ratio", 1.2),
        ([1], 5_800, "SGLD, round", "SAGA", "mean_bias", 0.11),
        ([2], 5_800, "BAOAB", "ControlVariates", "ess_per_million", 26.0),
        ([3], 58_000, MATCHED, "ControlVariates", "sd_ratio", 1.06),
        ([3], 58_000, MATCHED, "Minibatch", "sd_ratio", 1.04),
        ([4], 58_000, "BAOAB, round", "ControlVariates", "ess_per_million", 20.0),
    ],
)
def test_each_claim_can_fail(numbers, fails, size, name, way, field, value):
    changed = copy.deepcopy(numbers)
    changed["tables"][size][name][way][field] = value
    assert [k for k, claim in enumerate(judge(changed)) if claim.failed] == fails


@pytest.mark.parametrize(("ratio", "verdict"), [(1.03, "yes"), (1.06, "not decided"), (1.1, "NO")])
def test_a_quick_run_knows_an_sd_ratio_by_its_coefficients(numbers, ratio, verdict):
    numbers["tables"][5_800]["SGLD, round"]["Full"]["sd_ratio"] = ratio
    assert judge(numbers)[0].of_a_quick_run().verdict == verdict
    assert judge(numbers)[1].of_a_quick_run().verdict == "yes"


def test_few_draws_excuse_an_error_of_the_mean(numbers):
    numbers["tables"][5_800]["SGLD, round"]["SAGA"] |= {"mean_bias": 0.11, "monte_carlo": 0.06}
    assert judge(numbers)[1].holds and "0.060 is the number of draws" in judge(numbers)[1].here


def test_figure_shows_runs_that_diverged(numbers, tmp_path):
    numbers["tables"][5_800]["SGLD"]["SAGA"] = dict.fromkeys(cell("SGLD", "SAGA"), math.nan)
    save_figure(lambda figure: draw(figure, numbers), tmp_path / "figure.png")
    helpers.assert_drawn(tmp_path / "figure.png")


def test_gradients_of_rows_are_counted():
    def count(estimator, passes=0.0):
        return measures.row_gradients(estimator, 10_000, 1_000, 5, {"passes": passes})

    assert count(Full()) == 5 * 1_000 * 10_000
    assert count(Minibatch(500)) == 5 * 1_000 * 500
    assert count(ControlVariates(500), 12.5) == 5 * 1_000 * 500 * 2 + 125_000
    assert count(SAGA(500), 1.0) == 5 * 1_000 * 500 + 10_000
    refreshes = 1_000 // 40  # every 2 N/n steps
    assert count(SVRG(500), 1.0) == 5 * (1_000 * 500 * 2 + refreshes * 10_000) + 10_000


def at_of(mean, sd):
    rows = Rows(jnp.zeros((10, len(mean))), jnp.zeros(10))
    return measures.Subset(measures.MODEL, rows, jnp.zeros(len(mean)), jnp.eye(len(mean)), mean, sd, 1e6)


def test_measures_of_independent_draws(seed):
    """Of a known normal law: no bias, the right sd, as many effective draws as there are; and with known faults."""
    rng = np.random.default_rng(seed)
    mean, sd, count = np.linspace(-1, 1, 20), np.linspace(0.1, 2.0, 20), 5 * 800
    draws = mean + sd * rng.normal(size=(5, 800, 20))
    found = measures.judge_draws(draws, at_of(mean, sd), 1e6)
    assert abs(found.mean_bias - count**-0.5) < 5 * count**-0.5 / np.sqrt(2 * 20)
    assert abs(found.sd_ratio - 1) < 5 / np.sqrt(2 * count * 20) and found.sd_error < 5 / np.sqrt(2 * count)
    assert found.ess_per_million == pytest.approx(count, rel=0.2)
    assert found.monte_carlo == pytest.approx(count**-0.5, rel=0.2)
    wide = measures.judge_draws(mean + 1.2 * (draws - mean) + 0.3 * sd, at_of(mean, sd), 1e6)
    assert wide.sd_ratio == pytest.approx(1.2 * found.sd_ratio)
    assert wide.mean_bias == pytest.approx(0.3, abs=5 * 1.2 * count**-0.5 / np.sqrt(20))


def test_a_run_that_diverges_is_measured_as_one(monkeypatch):
    def diverge(*_, **__):
        raise DivergenceError("chain 0 diverged at step 3.")

    monkeypatch.setattr(measures, "sample", diverge)
    found = measures.measure(at_of(np.zeros(3), np.ones(3)), None, Full(), 100, 10, 5, 0)
    assert all(math.isnan(value) for value in found)


def test_step_of_psgld_follows_units():
    """Columns twice as large: deviations, and so the step, half as large."""
    factor = jnp.array([[1.0, 0.0], [0.8, 0.6]])
    at = at_of(np.zeros(2), np.ones(2))
    whole, half = (experiment._rms_step(at._replace(factor=c * factor)) for c in (1.0, 0.5))
    assert whole == pytest.approx(0.1 * (1 - 0.8), rel=1e-5) and half == pytest.approx(whole / 2, rel=1e-5)


def test_no_data(tmp_path):
    with pytest.raises(InvalidValueError, match="the data set `covertype` was not found"):
        experiment.run(Settings(data_dir=tmp_path))


@pytest.mark.rotates(5, "small runs")
def test_quick_run(tmp_path):
    done = reproduce(ALL["posterior-bias"], Settings(quick=True, data_dir=data_folder("covertype"), out_dir=tmp_path))
    assert done.ok, [claim for claim in done.outcome.claims if claim.failed]
    helpers.assert_drawn(done.picture)
