"""The judgement of `dp-msweb` on known numbers, and a small run of it."""

import copy
import json

import numpy as np
import pytest
from scipy import sparse

import helpers

pytest.importorskip("numba", reason="mixtures need numba (the extra `compiled`)")

from scirocco.datasets import Visits
from scirocco.errors import InvalidValueError
from scirocco.models import DPMixture
from scirocco_papers import ALL, Settings, reproduce
from scirocco_papers.dp_msweb import run as dp_msweb
from scirocco_papers.dp_msweb.claims import DEFAULT, KEPT, judge, notes, tail
from shared_data import data_folder

STATES = {"SCIR": 11.385, "SCIR-CV": 11.37, "SGRLD": 11.45, "Gibbs": 11.342, DEFAULT: 11.341, KEPT: 11.343}
AVERAGED = {"SCIR": 11.335, "SCIR-CV": 11.33, "SGRLD": 11.315, "Gibbs": 11.30, DEFAULT: 11.31, KEPT: 11.3}
OCCUPIED = {"SCIR": 21, "SCIR-CV": 21, "SGRLD": 33, "Gibbs": 20, DEFAULT: 20, KEPT: 20}


def curve(name, wave):
    now = [STATES[name] + 0.2] * 8 + [STATES[name] - wave, STATES[name] + wave]
    return {
        "steps": list(range(100, 1_001, 100)),
        "seconds": [0.1 * number for number in range(1, 11)],
        "now": now,
        "averaged": [*now[:9], AVERAGED[name]],
        "occupied": [30] * 9 + [OCCUPIED[name]],
    }


@pytest.fixture
def numbers():
    return {
        "one_component": 11.917,
        "curves": {name: [curve(name, 0.02 if name == "SGRLD" else 0.005) for _ in range(2)] for name in STATES},
    }


def test_claims_for_such_numbers(numbers):
    claims = judge(numbers, quick=False)
    assert [claim.verdict for claim in claims] == ["yes", "yes", "yes", *["no (not counted)"] * 3, "yes"]
    assert "SCIR 11.385 11.385; SGRLD 11.450 11.450" in claims[0].here
    assert "93 % of the way" in claims[5].here
    for claim in claims[3:6]:
        assert "Whether the paper's figure came from that commit is unknown" in claim.because
    assert len(notes(numbers)) == 3 and "SGRLD 11.315" in notes(numbers)[0]


@pytest.mark.parametrize(
    ("name", "score", "value", "fails"),
    [
        ("SCIR", "now", 11.46, [0, 1]),
        ("SGRLD", "now", 11.3, [0]),
        ("SCIR", "averaged", 11.41, [2]),
        (DEFAULT, "averaged", 11.35, [6]),
        ("Gibbs", "averaged", 12.0, []),
    ],
)
@pytest.mark.parametrize("place", [0, 1])
def test_each_claim_can_fail_by_one_seed(numbers, name, score, value, fails, place):
    changed = copy.deepcopy(numbers)
    marks = changed["curves"][name][place][score]
    marks[-1] = value + 0.07 if score == "now" and name == "SCIR" else value
    assert [k for k, claim in enumerate(judge(changed, quick=False)) if claim.failed] == fails
    assert all(k == 0 for k, claim in enumerate(judge(changed, quick=True)) if claim.failed)


def test_a_quick_run_decides_by_the_means(numbers):
    numbers["curves"]["SCIR"][0]["now"][-1] = 11.53
    assert judge(numbers, quick=True)[0].of_a_quick_run().undecided
    numbers["curves"]["SCIR"][1]["now"][-1] = numbers["curves"]["SCIR"][0]["now"][-1] = 11.9
    assert judge(numbers, quick=True)[0].of_a_quick_run().failed


def test_what_the_released_code_gives_is_seen(numbers):
    """Scores and clusters as that code has them: the paper's sentences hold, and are not counted."""
    for name, end in (("SCIR", 12.03), ("SGRLD", 12.06)):
        for each in numbers["curves"][name]:
            each["now"] = [12.03] * 8 + [end, end]
            each["occupied"][-1] = 200
    claims = judge(numbers, quick=False)
    assert [claim.verdict for claim in claims[3:6]] == ["yes (not counted)"] * 3


def test_tail_is_the_last_fifth():
    assert tail([{"now": [9.0] * 8 + [1.0, 2.0]}, {"now": [5.0, 3.0]}]).tolist() == [1.5, 3.0]


def test_settings_are_the_papers():
    found = dp_msweb.models()
    scir, sgrld, gibbs = (found[name] for name in ("SCIR", "SGRLD", "Gibbs"))
    assert (scir.batch_size, scir.initial_clusters, scir.counts) == (1_000, 20, "estimated")
    assert (sgrld.batch_size, sgrld.initial_clusters, sgrld.sampler) == (1_000, 30, "sgrld")
    assert [model.base.concentration for model in (scir, sgrld, gibbs)] == [0.5, 0.001, 0.5]
    assert (scir.step_size, scir.stick_step_size) == (0.1, 0.1)
    assert (sgrld.step_size, sgrld.stick_step_size) == (0.001, 0.005)
    assert found["SCIR-CV"].sampler == "scir_cv" and found["SCIR-CV"].step_size == 0.1
    assert found[DEFAULT].get_params() == DPMixture().get_params()
    assert found[KEPT].get_params() == DPMixture(sampler="scir").get_params()


@pytest.fixture
def visits():
    """Users of two kinds, who visit areas 0-4 or 5-9."""
    rng = np.random.default_rng(5)
    kind = rng.integers(2, size=300)
    chances = np.where(np.arange(10) // 5 == kind[:, None], 0.198, 0.002)
    matrix = sparse.csr_matrix(np.stack([rng.multinomial(6, p) for p in chances]).astype(np.int32))
    return Visits(matrix[:240], matrix[240:], tuple("abcdefghij"), "made here", {})


@pytest.mark.parametrize("name", ["SCIR", DEFAULT])
def test_follow(name, visits):
    """Marks at equal numbers of steps; the same for the same seed, in any thread."""
    model = dp_msweb.models()[name].set_params(batch_size=60, initial_clusters=3)
    jobs = {"one": [dp_msweb.Job(model, 40, 3)] * 2, "two": [dp_msweb.Job(model, 20, 3)]}
    jobs["other seed"] = [dp_msweb.Job(model, 40, 4)]
    found = dp_msweb.follow_all(visits, jobs, 4)
    first, again, other = *found["one"], *found["two"]
    assert first["steps"] == [10, 20, 30, 40] and other["steps"] == [5, 10, 15, 20]
    for score in ("now", "averaged", "occupied"):
        assert first[score] == again[score]
    assert other["now"][1::2] == first["now"][:2], "marks do not change the chain"
    assert found["other seed"][0]["now"] != first["now"] and first["averaged"][0] == first["now"][0]
    assert first["now"][-1] < dp_msweb.one_component(visits), "two kinds are better than one"
    assert np.all(np.diff(first["seconds"]) >= 0)


def test_one_component(visits):
    """As written out for the first test users."""
    share = (visits.train.toarray().sum(axis=0) + 0.5) / (visits.train.sum() + 5.0)
    rows = visits.test.toarray()
    assert dp_msweb.one_component(visits) == pytest.approx(np.mean([-(r * np.log(share)).sum() for r in rows]))


def test_no_data(tmp_path):
    with pytest.raises(InvalidValueError, match="the data set `msweb` was not found"):
        dp_msweb.run(Settings(data_dir=tmp_path))


def test_small_run(tmp_path, monkeypatch):
    folder = data_folder("msweb")
    monkeypatch.setattr(dp_msweb, "QUICK", {"steps": 40, "sweeps": 2, "marks": 2, "seeds": 2})
    done = reproduce(ALL["dp-msweb"], Settings(quick=True, data_dir=folder, out_dir=tmp_path))
    record = json.loads(done.record.read_text("utf-8"))
    curves = record["numbers"]["curves"]
    assert set(curves) == set(STATES) and record["numbers"]["one_component"] == 11.9166
    assert curves["SCIR"][1]["steps"] == [20, 40] and curves["Gibbs"][0]["steps"] == [1, 2]
    assert all(11 < value < 14 for each in curves.values() for value in each[0]["now"])
    assert str(folder) not in json.dumps(record)
    helpers.assert_drawn(done.picture)
