"""`hmm-series` by its rules and as a whole."""

import copy
import json

import pytest

import helpers
from scirocco_papers import ALL, Settings, reproduce
from scirocco_papers import hmm_series as hs

pytest.importorskip("numba", reason="hidden Markov models need numba (the extra `compiled`)")


@pytest.fixture
def numbers():
    def posterior(shift):
        return {"mean": [0.5 + shift, 1.2, -3.0, -2.0], "sd": [0.1] * 4}

    return {
        "quick": False,
        "length": 1000,
        "passes": 10,
        "perplexities": {
            "exact": [7.0, 7.01, 6.99],
            "SCIR": [7.01, 7.02, 7.0],
            "SCIR-CV": [7.011, 7.019, 7.0],
            "SGRLD": [7.1, 7.12, 7.11],
        },
        "buffers": {"lengths": list(hs.BUFFERS), "errors": [1e-3, 3e-4, 1e-4, 1e-5, 1e-7], "chosen": 12, "left": 1e-5},
        "returns": {"exact": posterior(0.0), "SCIR": posterior(0.02)},
    }


def test_claims_hold_for_such_numbers(numbers):
    claims = hs.judge(numbers)
    assert len(claims) == 6 and all(claim.holds for claim in claims)


@pytest.mark.parametrize(
    ("path", "value", "fails"),
    [
        (("perplexities", "SGRLD"), [7.01, 7.02, 7.0], 0),
        (("perplexities", "SCIR-CV"), [7.2, 7.21, 7.2], 1),
        (("perplexities", "SCIR-CV"), [6.9, 6.91, 6.9], 2),
        (("buffers", "errors"), [1e-3, 1e-3, 1e-4, 1e-3, 1e-5], 3),
        (("buffers", "errors"), [1e-3, 9e-4, 8e-4, 6e-4, 3e-4], 3),
        (("buffers", "left"), 2e-3, 4),
        (("returns", "SCIR", "mean"), [0.5, 1.3, -3.0, -2.0], 5),
    ],
)
def test_each_claim_can_fail(numbers, path, value, fails):
    changed = copy.deepcopy(numbers)
    place = changed
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    assert [k for k, claim in enumerate(hs.judge(changed)) if claim.failed] == [fails]


@pytest.mark.rotates(3, "small runs")
def test_small_run(tmp_path, monkeypatch, seed):
    """Two samplers, one seed: what is measured has its form; the buffers' rule holds for any seed."""
    monkeypatch.setattr(hs, "SAMPLERS", {"exact": "gibbs", "SCIR": "scir"})
    x = hs.simulated(1_500, seed)
    found = hs.perplexities(x[:1_000], x[1_000:], 4, [seed])
    assert list(found) == ["exact", "SCIR"] and all(1 < each[0] < hs.NUM_CATEGORIES for each in found.values())
    facts = hs.buffer_errors(hs.series(), seed)
    assert hs._geometric(facts).holds and hs._chosen(facts).holds
    told = hs.returns(hs.series(), 40, seed)
    assert [len(part) for each in told.values() for part in each.values()] == [4] * 4

    numbers = {"quick": True, "length": 1, "passes": 4, "perplexities": found, "buffers": facts, "returns": told}
    outcome = hs.Outcome([], numbers, lambda figure: hs.draw(figure, numbers))
    monkeypatch.setattr("scirocco_papers.hmm_series.run", lambda settings: outcome)
    done = reproduce(ALL["hmm-series"], Settings(quick=True, out_dir=tmp_path, seed=seed))
    assert json.loads(done.record.read_text("utf-8"))["numbers"]["length"] == 1
    helpers.assert_drawn(done.picture)
