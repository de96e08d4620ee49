"""Parts of `scir-variance` by themselves, and all of it in the quick version."""

import copy
import json

import numpy as np
import pytest

import helpers
from scirocco.simplex import theory
from scirocco_papers import ALL, Settings, reproduce
from scirocco_papers import scir_variance as sv


def test_the_setting_is_the_papers():
    assert sv.COUNTS.mean == pytest.approx(150.1)
    assert sv.COUNTS.variance == pytest.approx(1000**2 / 100 * 0.15 * 0.85 * 900 / 999)


def test_printed_curves_are_what_is_left_given_the_batches():
    steps = np.arange(81)
    for name, (process, parametrization) in sv.PROCESSES.items():
        given = theory.conditional_variance(process, sv.THETA0, sv.COUNTS, 0.1, steps, parametrization)
        if name == "SCIR":
            np.testing.assert_allclose(sv.printed_variance(name, steps), sv.whole_variance(name, steps), rtol=1e-11)
        else:  # (9) takes b̂ < 0 at face value, which has the probability 4e-8
            np.testing.assert_allclose(sv.printed_variance(name, steps), given, rtol=2e-5, atol=1e-9)


@pytest.mark.parametrize("name", list(sv.PROCESSES))
def test_simulated_chains_have_the_variance(name, seed):
    found = sv.simulate(name, 5_000, np.random.default_rng([seed, 8]))
    scores = (np.array(found["variance"]) - sv.whole_variance(name, sv.MARKS)) / np.array(found["error"])
    assert len(scores) == len(sv.MARKS) and np.abs(scores).max() < 6


# -- judging -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def numbers():
    """What chains without Monte Carlo error would give."""
    processes = {}
    for name in sv.PROCESSES:
        whole = sv.whole_variance(name, sv.MARKS).tolist()
        processes[name] = {
            "printed": sv.printed_variance(name, sv.MARKS).tolist(),
            "whole": whole,
            "simulated": {"variance": list(whole), "error": [0.004 * value for value in whole]},
            "inflation_in_the_limit": 1.0,
        }
    return {"marks": list(sv.MARKS), "processes": processes}


def test_claims_of_the_true_variances(numbers):
    claims = sv.judge(numbers)
    assert not any(claim.failed for claim in claims)
    assert [k for k, claim in enumerate(claims) if not claim.holds] == [3, 6], "what (21) leaves out"
    assert "at M = 5 it is 45.8" in sv.notes(numbers)[0] and "(21) gives 26.9" in sv.notes(numbers)[0]


def test_the_uncounted_claims_would_hold_for_the_printed_curve(numbers):
    changed = copy.deepcopy(numbers)
    facts = changed["processes"]["SCIR-CV (ii)"]
    facts["whole"] = facts["simulated"]["variance"] = facts["printed"]
    assert all(claim.holds for claim in sv.judge(changed))


@pytest.mark.parametrize(
    ("name", "curve", "mark", "factor", "fails"),
    [
        ("SCIR", "simulated", -1, 1.05 / 1.38, [0, 1, 4, 7]),
        ("SCIR-CV (i)", "simulated", 4, 1.5, [1, 5, 7]),
        ("SCIR-CV (i)", "simulated", -1, 1.03, [5, 7]),
        ("SCIR-CV (ii)", "simulated", -1, 1.03, [7]),
        ("SCIR-CV (ii)", "whole", -1, 1.03, [2, 7]),
        ("exact CIR", "simulated", 0, 1.03, [7]),
        ("SCIR", "printed", 3, 1.03, [4]),
    ],
)
def test_each_claim_can_fail(numbers, name, curve, mark, factor, fails):
    changed = copy.deepcopy(numbers)
    facts = changed["processes"][name]
    values = facts["simulated"]["variance"] if curve == "simulated" else facts[curve]
    values[mark] *= factor
    assert [k for k, claim in enumerate(sv.judge(changed)) if claim.failed] == fails


def test_quick_run(tmp_path, seed):
    done = reproduce(ALL["scir-variance"], Settings(quick=True, out_dir=tmp_path, seed=seed))
    assert done.ok, [claim for claim in done.outcome.claims if claim.failed]
    assert [claim.holds for claim in done.outcome.claims].count(False) == 2
    record = json.loads(done.record.read_text("utf-8"))
    assert record["numbers"]["num_chains"] == 20_000
    assert record["numbers"]["processes"]["SCIR-CV (ii)"]["whole"][2] == pytest.approx(45.815, abs=1e-3)
    helpers.assert_drawn(done.picture)
