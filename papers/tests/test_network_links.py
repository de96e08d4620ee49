"""`network-links` by its rules and as a whole."""

import copy
import json

import pytest

import helpers
from scirocco_papers import ALL, Settings, reproduce
from scirocco_papers import network_links as nl
from shared_data import data_folder

pytest.importorskip("numba", reason="mixed memberships need numba (the extra `compiled`)")


@pytest.fixture
def numbers():
    def found(proper, plain, auc):
        shifts = (-0.01, 0.0, 0.01)
        values = ([value + shift for shift in shifts] for value in (proper, plain, auc))
        return {**dict(zip(nl.SCORES, values, strict=True)), "step": [1.0, 1.0, 0.1]}

    each = {
        "exact": found(1.5, 10.3, 0.88),
        "SCIR": found(1.5, 10.3, 0.88),
        "SCIR-CV": found(1.501, 10.2, 0.88),
        "SCIR, CV counts": found(1.501, 10.2, 0.88),
        "SGRLD": found(1.8, 10.5, 0.75),
    }
    for name in ("SCIR-CV", "SCIR, CV counts"):
        each[name][nl.SCORES[0]] = [1.49, 1.501, 1.51]
    each["SGRLD"]["AUC"] = [0.74, 0.75, 0.77]
    scores = {"one": each, "other": copy.deepcopy(each)}
    return {"quick": False, "passes": 10, "scores": scores}


def test_claims_hold_for_such_numbers(numbers):
    claims = nl.judge(numbers)
    assert len(claims) == 5 and all(claim.holds for claim in claims)


@pytest.mark.parametrize(
    ("sampler", "of", "value", "fails"),
    [
        ("SGRLD", nl.SCORES[0], [1.5, 1.51, 1.49], 0),
        ("SCIR-CV", nl.SCORES[0], [1.6, 1.61, 1.6], 1),
        ("SCIR, CV counts", nl.SCORES[0], [1.6, 1.61, 1.6], 2),
        ("SGRLD", "AUC", [0.88, 0.9, 0.87], 4),
    ],
)
def test_each_claim_can_fail(numbers, sampler, of, value, fails):
    numbers["scores"]["other"][sampler][of] = value
    assert [k for k, claim in enumerate(nl.judge(numbers)) if claim.failed] == [fails]


@pytest.mark.rotates(3, "small runs")
def test_small_run(tmp_path, monkeypatch, seed):
    """Two samplers, one seed, four passes: what is measured has its form."""
    monkeypatch.setattr(nl, "SAMPLERS", {"exact": "gibbs", "SCIR": "scir"})
    found = nl.scores(data_folder("graphs"), "netscience", (0.1, 1.0), 4, [seed])
    assert list(found) == ["exact", "SCIR"] and found["exact"]["step"] == [0.0]
    assert all(len(values) == 1 for each in found.values() for values in each.values())
    assert all(1 < each[nl.SCORES[0]][0] < each["plain"][0] for each in found.values())
    numbers = {"quick": True, "passes": 4, "scores": {"netscience": found}}
    outcome = nl.Outcome([], numbers, lambda figure: nl.draw(figure, numbers))
    monkeypatch.setattr("scirocco_papers.network_links.run", lambda settings: outcome)
    done = reproduce(ALL["network-links"], Settings(quick=True, out_dir=tmp_path, seed=seed))
    assert json.loads(done.record.read_text("utf-8"))["numbers"]["passes"] == 4
    helpers.assert_drawn(done.picture)
