"""The judgement of `lda-cv` on known numbers, and a small run of it."""

import json

import numpy as np
import pytest

import helpers

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")

from scirocco_papers import ALL, Settings, lda_cv, reproduce
from shared_data import data_folder

PLAIN = [700.0, 650, 620, 600, 590, 585]
CONTROL = [710.0, 660, 600, 590, 580, 570]


@pytest.fixture
def numbers():
    def curves(scores, pace):
        documents, seconds = [50, 100, 150, 200, 250, 300], [pace * k for k in range(1, 7)]
        return [
            {"documents": documents, "now": [*scores], "averaged": scores, "seconds": seconds},
            {"documents": documents, "now": [s + 2 for s in scores], "averaged": scores, "seconds": seconds},
        ]

    sizes = {
        label: {
            "num_documents": 100,
            "passes": 3,
            "curves": {"SGLD": curves(PLAIN, 1.0), "SGLD-CV": curves(CONTROL, 1.2)},
        }
        for label in lda_cv.SIZES
    }
    return {"sizes": sizes}


def test_claims_hold_for_such_numbers(numbers):
    claims = lda_cv.judge(numbers, quick=False)
    assert [claim.verdict for claim in claims] == ["yes", "yes (not counted)", "yes"]
    assert "N: after 6.0 s 581 against 586" in claims[0].here
    assert lda_cv.fall_at_switch(numbers["sizes"]["N"]["curves"]) == {"SGLD": 80.0, "SGLD-CV": 110.0}
    assert all(claim.because for claim in lda_cv.judge(numbers, quick=True))
    assert len(lda_cv.notes(numbers)) == 3


def test_each_claim_can_fail_at_one_size(numbers):
    curves = numbers["sizes"]["0.6 N"]["curves"]["SGLD-CV"]
    np.testing.assert_array_equal(lda_cv.late(curves), [575.0, 577.0])
    curves[1]["now"][-1] += 26.0
    assert [claim.holds for claim in lda_cv.judge(numbers, quick=False)] == [True, False, True]
    curves[1]["now"][-1] -= 26.0
    for curve in curves:
        curve["now"][2] += 40.0
    assert [claim.holds for claim in lda_cv.judge(numbers, quick=False)] == [True, True, False]
    for curve in curves:
        curve["now"][2] -= 40.0
        curve["seconds"] = [2 * spent for spent in curve["seconds"]]
    claims = lda_cv.judge(numbers, quick=False)
    assert [claim.failed for claim in claims] == [True, False, False], "the same scores, at twice the time"


def test_the_reference_is_read_too(numbers):
    """A pass over all 100 documents after a third of the 300 in batches."""
    facts = numbers["sizes"]["N"]
    assert lda_cv.read(facts, "SGLD").tolist() == [50, 100, 150, 200, 250, 300]
    assert lda_cv.read(facts, "SGLD-CV").tolist() == [50, 100, 250, 300, 350, 400]


def test_settings_are_those_of_the_thesis():
    model = lda_cv.model("SGLD-CV", 300, 8154, 8e-4)
    assert (model.alpha, model.beta, model.num_topics, model.batch_size) == (1.0, 1.0, 20, 50)
    assert model.step_size == 4e-4 and model.options == {"optimise_steps": 100}
    assert model.refresh_size == 8154 and lda_cv.model("SGLD", 300, 8154, 8e-4).sampler == "sgld_natural"
    assert lda_cv.NUM_MARKS % lda_cv.OPTIMISED == 0


@pytest.mark.rotates(5, "small runs")
def test_small_run(tmp_path, monkeypatch):
    folder = data_folder("wikipedia")
    monkeypatch.setattr(lda_cv, "QUICK_SIZES", {"0.01 N": (0.01, 1, 8e-4)})
    done = reproduce(ALL["lda-cv"], Settings(quick=True, data_dir=folder, out_dir=tmp_path))
    facts = json.loads(done.record.read_text("utf-8"))["numbers"]["sizes"]["0.01 N"]
    assert facts["num_documents"] == 815 and set(facts["curves"]) == {"SGLD", "SGLD-CV"}
    assert all(50 < value < 1000 for value in facts["curves"]["SGLD-CV"][1]["now"])
    helpers.assert_drawn(done.picture)
