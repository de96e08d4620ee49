"""The posteriors and chains of the simplex experiments, and `sparse-dirichlet` by parts and as a whole."""

import copy
import json

import numpy as np
import pytest
from scipy import stats

import helpers
from scirocco_papers import ALL, Settings, reproduce
from scirocco_papers import dirichlet_posteriors as dp
from scirocco_papers import sparse_dirichlet as sd

BOTH = pytest.mark.parametrize("posterior", list(dp.COUNTS))


def test_the_posteriors_are_the_papers():
    np.testing.assert_allclose(dp.concentration("sparse"), [800.1, 100.1, 100.1, *[0.1] * 7])
    assert all(counts.sum() == dp.NUM_ROWS for counts in dp.COUNTS.values())
    np.testing.assert_array_equal(np.bincount(dp.rows("dense")), dp.COUNTS["dense"])


@BOTH
def test_standard_deviations_are_the_dirichlets(posterior):
    expected = stats.dirichlet(dp.concentration(posterior)).var() ** 0.5
    np.testing.assert_allclose(dp.standard_deviations(posterior), expected, rtol=1e-12)


@BOTH
def test_distance_of_exact_draws(posterior, seed):
    """Nine independent Kolmogorov statistics a set: mean 0.8687 and sd 0.2603 over √M + 0.12."""
    num_sets = 30
    found = dp.distances(posterior, dp.exact_draws(posterior, num_sets, np.random.default_rng([seed, 1])))
    scale = dp.NUM_DRAWS**0.5 + 0.12
    assert len(found) == num_sets
    assert np.mean(found) == pytest.approx(0.8687 / scale, abs=5.5 * 0.2603 / scale / (9 * num_sets) ** 0.5)


def test_choice_of_steps():
    found = dp.choose({0.5: [0.3, 0.1, 0.5], 0.1: [0.2, 0.2, 0.2], 0.05: [0.4, 0.3, 0.1]})
    assert found["best"] == [0.2, 0.1, 0.1] and found["best_steps"] == [0.1, 0.5, 0.05]
    assert found["median"] == 0.1 and found["step"] == 0.1, "best for the median, not the median of the best"
    assert found["distances"]["0.05"] == [0.4, 0.3, 0.1]


def test_samplers_have_their_step_and_form():
    assert dp.sampler("SCIR-CV (i)", 0.1).parametrization == 1
    assert dp.sampler("SCIR-CV (ii)", 0.1).parametrization == 2
    assert all(type(dp.sampler(name, 0.1)).__name__ == "SCIRCV" for name in dp.METHODS[1:3])
    assert all(set(dp.QUICK_STEP_SIZES[name]) <= set(dp.STEP_SIZES[name]) for name in dp.METHODS)


def test_share_of_small_values(seed):
    draws = dp.exact_draws("sparse", 5, np.random.default_rng([seed, 2]))
    assert sd.below_median(draws) == pytest.approx(0.5, abs=5.2 * 0.5 / 5000**0.5)
    assert sd.below_median(np.full((3, 10), 0.1)) == 0


def test_theory_of_the_spread():
    """SCIR: 1 + tanh(h/2) Var(â)/a."""
    variance = 1000**2 / 10 * 0.1 * 0.9 * 990 / 999
    expected = (1 + np.tanh(0.25) * variance / 100.1) ** 0.5
    assert sd.theory_of_theta("scir")[2] == pytest.approx(expected, rel=1e-10)
    assert sd.theory_of_theta("scir_cv")[2] == pytest.approx(1.2132, abs=1e-4)


def test_gaps_of_equal_and_different_draws(seed):
    draws = dp.exact_draws("sparse", 2, np.random.default_rng([seed, 3]))
    assert sd.unseen(draws, draws) == {"share_gap": 0, "leading_gap": 0}
    assert sd.unseen(draws[:1], draws[1:])["share_gap"] > 0.1


# -- judging -------------------------------------------------------------------------------------------------


@pytest.fixture
def numbers():
    def facts(value, step):
        return {"median": value, "best": [value] * 5, "best_steps": [step] * 5, "step": step}

    def ratios(value, unseen):
        return {"ratios": [value] * 3, "errors": [0.004] * 3, "mean_of_unseen": unseen}

    return {
        "samplers": {"SCIR": facts(0.09, 0.1), "SCIR-CV (ii)": facts(0.035, 0.5), "SGRLD": facts(0.367, 0.005)},
        "exact": {"median": 0.027, "distances": [0.027] * 5},
        "below_median": {"exact": 0.5, "SCIR": 0.52, "SGRLD": 0.02},
        "below_median_error": 0.003,
        "spread": {
            "num_draws": 1000,
            "SCIR": ratios(5.0, 1.0),
            "SCIR-CV (ii)": ratios(1.2, 1.0) | {"theory_of_theta": [1.0, 1.2, 1.213]},
            "SGRLD": ratios(5.8, 6.4),
        },
        "unseen": {"share_gap": 3e-7, "leading_gap": 0.05},
    }


def test_claims_hold_for_the_known_numbers(numbers):
    claims = sd.judge(numbers)
    assert len(claims) == 9 and all(claim.holds for claim in claims)
    assert ", safely below 1.25" in sd.notes(numbers)[0] and "6.4 times" in sd.notes(numbers)[1]
    numbers["spread"]["SCIR-CV (ii)"]["ratios"][2] = 1.24
    assert "not safely" in sd.notes(numbers)[0]


@pytest.mark.parametrize(
    ("path", "value", "fails"),
    [
        (("below_median", "SGRLD"), 0.11, 0),
        (("below_median", "SCIR"), 0.3, 1),
        (("below_median", "SCIR"), 0.72, 1),
        (("samplers", "SCIR", "median"), 0.12, 2),
        (("samplers", "SCIR-CV (ii)", "median"), 0.06, 3),
        (("samplers", "SGRLD", "median"), 0.25, 4),
        (("samplers", "SGRLD", "median"), 0.5, 4),
        (("exact", "median"), 0.04, 5),
        (("spread", "SCIR", "ratios"), [5.0, 3.0, 5.0], 6),
        (("spread", "SCIR-CV (ii)", "ratios"), [1.0, 1.2, 1.27], 7),
        (("unseen", "share_gap"), 0.01, 8),
    ],
)
def test_each_claim_can_fail(numbers, path, value, fails):
    changed = copy.deepcopy(numbers)
    place = changed
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    assert [k for k, claim in enumerate(sd.judge(changed)) if claim.failed] == [fails]
    assert sd.judge(changed)[fails].of_a_quick_run().failed


@pytest.mark.rotates(5, "small runs")
def test_small_run(tmp_path, monkeypatch, seed, quick_compiler):
    """One step size for each, chains of their usual length. Bounds are six standard deviations wide or more."""
    steps = {"SCIR": (0.1,), "SCIR-CV (ii)": (0.5,), "SGRLD": (0.01,)}
    monkeypatch.setattr(dp, "QUICK_STEP_SIZES", steps)
    done = reproduce(ALL["sparse-dirichlet"], Settings(quick=True, out_dir=tmp_path, seed=seed))
    claims = done.outcome.claims
    assert all(claims[k].holds for k in (0, 1, 6, 8)), claims
    record = json.loads(done.record.read_text("utf-8"))["numbers"]
    medians = [record["samplers"][name]["median"] for name in steps]
    assert 0.06 < medians[0] < 0.125 and 0.02 < medians[1] < 0.055 and 0.28 < medians[2] < 0.44
    assert 1.0 < max(record["spread"]["SCIR-CV (ii)"]["ratios"]) < 1.3
    assert record["spread"]["num_draws"] == 80_000
    assert record["unseen"]["leading_gap"] > 0.01, "control acts where there are data"
    assert [record["samplers"][name]["step"] for name in steps] == [0.1, 0.5, 0.01]
    helpers.assert_drawn(done.picture)
