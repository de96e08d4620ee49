"""Parts of `dks` by themselves, and a small run of it."""

import copy
import json
import types

import numpy as np
import pytest

import helpers
from scirocco_papers import ALL, Settings, dks, reproduce
from scirocco_papers import dirichlet_posteriors as dp


def test_batch_sizes():
    assert dks.batch_sizes(dks.PROPORTIONS) == [1, 5, 10, 50, 100, 250, 500]
    assert set(dks.QUICK_PROPORTIONS) <= set(dks.PROPORTIONS) and dks.BAR_AT in dks.QUICK_PROPORTIONS


def test_the_best_of_several_exact_sets_is_nearer(seed, monkeypatch):
    """A distance is a mean of nine Kolmogorov statistics, nearly normal; the least of 7 has the median -1.3 sd."""
    monkeypatch.setattr(dp, "NUM_DRAWS", 100)
    found = dks.selection(24, 7, np.random.default_rng([seed, 4]))
    scale = dp.NUM_DRAWS**0.5 + 0.12
    mean, sd = 0.8687 / scale, 0.2603 / 3 / scale
    assert found["num_tries"] == 7
    assert found["one"] == pytest.approx(mean, abs=1.6 * sd)
    assert found["best"] == pytest.approx(mean - 1.3 * sd, abs=0.85 * sd)


# -- judging -------------------------------------------------------------------------------------------------

PROPORTIONS = [0.01, 0.1, 0.5]
MEDIANS = {
    "sparse": {
        "SCIR": [0.09, 0.06, 0.04],
        "SCIR-CV (ii)": [0.04, 0.03, 0.03],
        "SCIR-CV (i)": [0.05, 0.03, 0.03],
        "SGRLD": [0.36, 0.35, 0.35],
    },
    "dense": {
        "SCIR": [0.2, 0.1, 0.05],
        "SCIR-CV (ii)": [0.05, 0.035, 0.03],
        "SCIR-CV (i)": [0.07, 0.035, 0.03],
        "SGRLD": [0.18, 0.1, 0.07],
    },
}


@pytest.fixture
def numbers():
    posteriors = {
        posterior: {
            "exact": {"distances": [0.027] * 5, "median": 0.027},
            "samplers": {
                method: [{"median": value, "best": [value] * 5} for value in values]
                for method, values in methods.items()
            },
        }
        for posterior, methods in MEDIANS.items()
    }
    chosen = {"num_tries": 7, "one": 0.027, "best": 0.0237}
    return {"proportions": PROPORTIONS, "posteriors": posteriors, "selection": chosen}


def test_claims_hold_for_the_known_numbers(numbers):
    claims = dks.judge(numbers)
    assert len(claims) == 6 and all(claim.holds for claim in claims)
    notes = dks.notes(numbers)
    assert "0.88 times" in notes[0] and len(notes) == 3
    del numbers["posteriors"]["dense"]["samplers"]["SCIR-CV (i)"]
    assert len(dks.notes(numbers)) == 2, "a quick run has no (i)"


@pytest.mark.parametrize(
    ("posterior", "method", "place", "value", "fails"),
    [
        ("sparse", "SGRLD", 1, 0.11, [0]),
        ("sparse", "SCIR", 2, 0.08, [1]),
        ("sparse", "SCIR", 0, 0.041, [1]),
        ("dense", "SGRLD", 0, 0.09, [2]),
        ("dense", "SCIR", 2, 0.15, [2]),
        ("sparse", "SCIR-CV (ii)", 2, 0.05, [3]),
        ("dense", "SCIR-CV (ii)", 0, 0.19, [4]),
        ("dense", "SCIR-CV (ii)", 1, 0.06, [5]),
        ("dense", "SCIR", 1, 0.15, [5]),
        ("dense", "SGRLD", 1, 0.06, [5]),
    ],
)
def test_each_claim_can_fail(numbers, posterior, method, place, value, fails):
    changed = copy.deepcopy(numbers)
    if method == "SCIR" and place == 0:  # what is flat does not converge
        changed["posteriors"][posterior]["samplers"][method][2]["median"] = 0.042
    changed["posteriors"][posterior]["samplers"][method][place]["median"] = value
    assert [k for k, claim in enumerate(dks.judge(changed)) if claim.failed] == fails
    assert [k for k, claim in enumerate(dks.judge(changed)) if claim.of_a_quick_run().failed] == fails


def test_medians_that_vary_decide_nothing(numbers):
    found = numbers["posteriors"]["sparse"]["samplers"]["SCIR-CV (ii)"][2]
    found |= {"median": 0.042, "best": [0.03, 0.036, 0.042, 0.045, 0.05]}
    assert dks.judge(numbers)[3].failed and dks.judge(numbers)[3].of_a_quick_run().undecided


def test_small_run(tmp_path, monkeypatch, seed):
    """One batch size, one step size for each; exact draws in place of the chains, which `sparse-dirichlet` has."""
    asked = []

    def exact(posterior, method, step_size, batch_size, *, seed, num_chains):
        asked.append((posterior, method, step_size, batch_size))
        return types.SimpleNamespace(draws=dp.exact_draws(posterior, num_chains, np.random.default_rng(seed)))

    steps = {"SCIR": (0.05,), "SCIR-CV (ii)": (0.5,), "SGRLD": (0.05,)}
    monkeypatch.setattr(dp, "QUICK_STEP_SIZES", steps)
    monkeypatch.setattr(dp, "run_chains", exact)
    monkeypatch.setattr(dks, "QUICK_PROPORTIONS", (0.1,))
    monkeypatch.setattr(dks, "selection", lambda *_: {"num_tries": 7, "one": 0.027, "best": 0.0237})
    done = reproduce(ALL["dks"], Settings(quick=True, out_dir=tmp_path, seed=seed))
    assert not done.outcome.claims[1].holds, "one batch size shows no trend"
    posteriors = json.loads(done.record.read_text("utf-8"))["numbers"]["posteriors"]
    expected = [(posterior, method, h, 100) for posterior in posteriors for method, (h,) in steps.items()]
    assert sorted(asked) == sorted(expected)
    for facts in posteriors.values():
        assert list(facts["samplers"]) == list(steps)
        assert all(0.018 < each[0]["median"] < 0.04 for each in facts["samplers"].values())
    assert len(posteriors["sparse"]["samplers"]["SGRLD"][0]["distances"]["0.05"]) == 5
    helpers.assert_drawn(done.picture)
