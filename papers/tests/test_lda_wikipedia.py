"""The judgement of `lda-wikipedia` on known numbers, and a small run of it."""

import copy
import json

import pytest

import helpers

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")

from scirocco_papers import ALL, Settings, lda_wikipedia, reproduce
from scirocco_papers.lda_wikipedia import BAKER, BARILE, OURS, judge, notes, read
from shared_data import data_folder

ENDS = {
    BAKER: {"SCIR": 1430, "SGRLD": 1520, "Gibbs": 1380, "SCIR-CV, as SCIR": 1410, "SGRLD, prior of SCIR": 1445},
    BARILE: {"SCIR-CV": 1500, "SCIR": 1600, "SGRLD": 2100},
    OURS: {"LDA()": 1250, "LDA(sampler='gibbs')": 1240},
}


def curve(end):
    return {
        "documents": [5_000, 10_000],
        "seconds": [4.0, 8.0],
        "now": [end + 300, end + 150],
        "averaged": [end + 200, end],
        "from_start": [end + 200, end + 50],
    }


@pytest.fixture
def numbers():
    groups = {group: {name: [curve(end), curve(end + 4)] for name, end in each.items()} for group, each in ENDS.items()}
    return {"curves": groups}


def test_claims_hold_for_such_numbers(numbers):
    claims = judge(numbers, quick=False)
    assert len(claims) == 5 and all(claim.holds and not claim.because for claim in claims)
    assert "SCIR 1480 1484; SGRLD 1570 1574" in claims[0].here and "1582, 1672" in claims[0].here
    assert len(notes(numbers)) == 4 and "ends at 1447 in place of 1522" in notes(numbers)[0]
    assert [claim.ours for claim in claims] == [False, False, True, False, True]


def test_references_count_as_read_and_time_is_compared(numbers):
    """1,000 documents before every fifth batch of 50; after the time of SCIR, SCIR-CV is half way."""
    assert read(numbers["curves"][BAKER]["SCIR"][0], False).tolist() == [5_000, 10_000]
    assert read(numbers["curves"][BAKER]["SCIR-CV, as SCIR"][0], True).tolist() == [25_000, 50_000]
    for curve in numbers["curves"][BARILE]["SCIR-CV"]:
        curve["seconds"] = [8.0, 16.0]
    assert "50,000 in place of 10,000" in notes(numbers)[2]
    assert "p averaged over all marks 1702 and 1652; topics as they are 1802 and 1752" in notes(numbers)[2]


@pytest.mark.parametrize(
    ("group", "name", "score", "value", "fails"),
    [
        (BAKER, "SGRLD", "averaged", 1425, [0]),
        (BAKER, "SGRLD", "now", 1500, [0, 2]),
        (BAKER, "SGRLD", "from_start", 1470, [0]),
        (BARILE, "SCIR-CV", "averaged", 1610, [1]),
        (BARILE, "SGRLD", "now", 1740, [1]),
        (BARILE, "SCIR", "from_start", 3000, [1]),
        (BAKER, "SCIR-CV, as SCIR", "now", 1590, [2]),
        (OURS, "LDA()", "averaged", 1415, [4]),
    ],
)
@pytest.mark.parametrize("place", [0, 1])
def test_each_claim_can_fail_by_one_seed(numbers, group, name, score, value, fails, place):
    changed = copy.deepcopy(numbers)
    changed["curves"][group][name][place][score][-1] = value
    assert [k for k, claim in enumerate(judge(changed, quick=False)) if claim.failed] == fails
    assert all(k == 0 for k, claim in enumerate(judge(changed, quick=True)) if claim.failed)


@pytest.mark.parametrize(("name", "value", "fails"), [("Gibbs", 1290, [3]), ("SCIR-CV, as SCIR", 1433, [2])])
def test_claims_about_means(numbers, name, value, fails):
    for curve in numbers["curves"][BAKER][name]:
        curve["averaged"][-1] = value
    assert [k for k, claim in enumerate(judge(numbers, quick=False)) if claim.failed] == fails


def test_settings_are_the_papers():
    groups = lda_wikipedia.models((100, 50), {})
    scir, sgrld = groups[BAKER]["SCIR"], groups[BAKER]["SGRLD"]
    assert (scir.alpha, scir.beta, scir.num_topics, scir.batch_size, scir.sweeps) == (0.1, 0.5, 100, 50, 200)
    assert (sgrld.alpha, sgrld.beta, sgrld.sampler) == (0.01, 0.0001, "sgrld")
    assert [float(scir.step_size(m)) for m in (0, 90)] == pytest.approx([0.5, 0.5 * 10**-0.33])
    assert [float(sgrld.step_size(m)) for m in (0, 9000)] == pytest.approx([0.01, 0.01 * 10**-0.6])
    assert {model.num_topics for model in groups[BARILE].values()} == {50}
    control = groups[BARILE]["SCIR-CV"]
    assert (control.sampler, control.refresh_every, control.refresh_size) == ("scir_cv", 5, 1000)


@pytest.mark.rotates(5, "small runs")
def test_small_run(tmp_path, monkeypatch):
    folder = data_folder("wikipedia")
    small = {"training": 600, "held": 60, "documents": 200, "marks": 2, "seeds": 2}
    monkeypatch.setattr(lda_wikipedia, "QUICK", small)
    done = reproduce(ALL["lda-wikipedia"], Settings(quick=True, data_dir=folder, out_dir=tmp_path))
    record = json.loads(done.record.read_text("utf-8"))
    curves = record["numbers"]["curves"]
    assert {group: set(each) for group, each in curves.items()} == {g: set(e) for g, e in ENDS.items()}
    assert curves[BAKER]["SCIR"][1]["documents"] == [100, 200]
    assert curves[BAKER]["Gibbs"][0]["documents"][-1] == lda_wikipedia.PASSES["Gibbs"] * 600
    assert all(100 < value < 7702 for value in curves[BARILE]["SCIR-CV"][0]["now"])
    assert str(folder) not in json.dumps(record)
    helpers.assert_drawn(done.picture)
