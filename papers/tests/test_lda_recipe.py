"""The judgement of `lda-recipe` on known numbers, and a small run of it."""

import copy
import json

import pytest

import helpers

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")

from scirocco_papers import ALL, Settings, lda_recipe, reproduce
from shared_data import data_folder

ENDS = {"SGLD": 2440, "SGHMC": 2430, "SGRLD": 1610, "SGRHMC": 1600}


@pytest.fixture
def numbers():
    curves = {
        name: [
            {"documents": [0, 10_000], "seconds": [1.0, 9.0], "averaged": [end + run], "now": [end + 200]}
            for run in range(3)
        ]
        for name, end in ENDS.items()
    }
    seconds = dict.fromkeys(ENDS, 0.08)
    tuning = {"SGLD": {f"ε = {e}": {"averaged": 2450.0 + e, "now": 2600.0} for e in (1, 3)}}
    return {"curves": curves, "seconds_per_100": seconds, "tuning": tuning, "chosen": {"SGLD": "ε = 0.3"}}


def test_claims_hold_for_such_numbers(numbers):
    claims = lda_recipe.judge(numbers)
    assert [claim.holds for claim in claims] == [True] * 3
    assert "2453 and as they are 2600 (ε = 3)" in lda_recipe.notes(numbers)[1]


@pytest.mark.parametrize(("name", "value", "fails"), [("SGRHMC", 2435, [0]), ("SGHMC", 1612, [0]), ("SGLD", 1500, [0])])
def test_geometry_can_fail_by_one_run(numbers, name, value, fails):
    changed = copy.deepcopy(numbers)
    changed["curves"][name][1]["averaged"][-1] = value
    assert [k for k, claim in enumerate(lda_recipe.judge(changed)) if claim.failed] == fails


def test_the_others_can_fail(numbers):
    for curve in numbers["curves"]["SGRHMC"]:
        curve["averaged"][-1] += 20
    numbers["seconds_per_100"]["SGHMC"] = 0.13
    claims = lda_recipe.judge(numbers)
    assert not claims[1].holds and not claims[1].failed and claims[2].failed


def test_a_quick_run_decides_by_the_means(numbers):
    """One run on the wrong side is chance, all runs are not."""
    numbers["curves"]["SGRHMC"][1]["averaged"][-1] = 2435
    assert lda_recipe.judge(numbers)[0].of_a_quick_run().undecided
    for curve in numbers["curves"]["SGRHMC"]:
        curve["averaged"][-1] += 1_000
    numbers["seconds_per_100"]["SGHMC"] = 0.13
    refuted = [claim.of_a_quick_run().failed for claim in lda_recipe.judge(numbers)]
    assert not refuted[0], "means that one run moves are not known"
    numbers["curves"]["SGRHMC"][1]["averaged"][-1] -= 835
    assert [claim.of_a_quick_run().failed for claim in lda_recipe.judge(numbers)] == [True, False, True]


def test_per_hundred():
    """Without what comes before the first mark."""
    curves = [{"documents": [50, 500], "seconds": [1.0, seconds]} for seconds in (5.5, 10.0)]
    assert lda_recipe.per_hundred(curves) == [1.0, 2.0]


def test_models():
    model = lda_recipe.model("SGRHMC", lda_recipe.Try(0.14, 100.0), 7, 50)
    assert (model.sampler, model.options, model.sweeps, model.burn_in) == ("sgrhmc", {"friction": 100.0}, 50, 25)
    assert float(model.step_size(7000)) == pytest.approx(0.14 * 8**-0.3)
    assert lda_recipe.model("SGRLD", lda_recipe.Try(0.01), 7, 50).options is None
    assert all(lda_recipe.KNOWN[name] in grid for name, grid in lda_recipe.GRID.items())


@pytest.mark.rotates(5, "small runs")
def test_small_runs(tmp_path, monkeypatch):
    """The quick form, and the grid of the full one with two tries."""
    folder = data_folder("wikipedia")
    small = {"training": 600, "held": 60, "documents": 400, "marks": 2, "runs": 2}
    monkeypatch.setattr(lda_recipe, "QUICK", small)
    done = reproduce(ALL["lda-recipe"], Settings(quick=True, data_dir=folder, out_dir=tmp_path))
    numbers = json.loads(done.record.read_text("utf-8"))["numbers"]
    assert set(numbers["curves"]) == set(ENDS) and numbers["curves"]["SGLD"][1]["documents"] == [200, 400]
    helpers.assert_drawn(done.picture)
    for name, value in (("NUM_TRAINING", 600), ("NUM_HELD", 60), ("NUM_DOCUMENTS", 200), ("NUM_MARKS", 2)):
        monkeypatch.setattr(lda_recipe, name, value)
    tries = (lda_recipe.Try(1e-6), lda_recipe.Try(0.01))
    monkeypatch.setattr(lda_recipe, "GRID", {"SGRLD": tries})
    chosen, tuning = lda_recipe.tune(Settings(data_dir=folder), 0)
    assert chosen == {"SGRLD": tries[1]} and list(tuning["SGRLD"]) == ["ε = 1e-06", "ε = 0.01"]
