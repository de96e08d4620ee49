"""The frame around every experiment, shown with one that takes no time."""

import json

import numpy as np
import pytest

import scirocco_papers
from scirocco import errors
from scirocco_papers.base import (
    CONFIRMED,
    REFUTED,
    Claim,
    Experiment,
    Outcome,
    Settings,
    error_of,
    in_errors,
    reproduce,
    to_json,
)
from scirocco_papers.series import print_reproduction

SEEN = []


def fake(claims, name="fake", needs=()):
    def run(settings):
        SEEN.append(settings)

        def draw(figure):
            figure.set_size_inches(2, 1)
            figure.subplots().plot([0, 1])

        numbers = {"array": np.arange(3.0), "nothing": np.nan, "count": np.int64(7), "yes": np.bool_(True)}
        return Outcome(list(claims), numbers, draw, ["a finding"])

    return Experiment(name, "A fake", "nowhere", run, seed=41, needs=needs)


GOOD = Claim("water is wet", "97 % wet", "above 90 %", True)
BAD = Claim("pigs fly", "0 of 12 flew", "all fly", False)
EXCUSED = Claim("pigs swim", "3 of 12 swam", "all swim", False, "they were asleep")


def test_files_and_their_contents(tmp_path):
    done = reproduce(fake([GOOD, EXCUSED]), Settings(out_dir=tmp_path / "new" / "folder"))
    record = json.loads(done.record.read_text("utf-8"))
    assert done.record.name == "fake.json" and done.picture.name == "fake.png"
    assert done.picture.read_bytes().startswith(b"\x89PNG")
    assert record["command"] == "scirocco reproduce fake --seed 41"
    assert record["seed"] == 41 and record["quick"] is False
    assert record["numbers"] == {"array": [0.0, 1.0, 2.0], "nothing": None, "count": 7, "yes": True}
    assert [claim["counts"] for claim in record["claims"]] == [True, False]
    assert record["claims"][1]["because"] == "they were asleep"
    assert {"python", "scirocco", "jax", "numpy"} <= set(record["versions"])
    assert record["seconds"]["wall"] >= 0
    assert str(tmp_path) not in done.record.read_text("utf-8"), "a record must not hold paths of the machine"


def test_quick_runs_have_names_of_their_own(tmp_path):
    done = reproduce(fake([GOOD]), Settings(quick=True, out_dir=tmp_path, seed=3))
    assert done.record.name == "fake-quick.json"
    assert json.loads(done.record.read_text("utf-8"))["command"] == "scirocco reproduce fake --quick --seed 3"
    assert SEEN[-1].quick and SEEN[-1].seed == 3


@pytest.mark.parametrize(("claims", "ok"), [([GOOD], True), ([GOOD, BAD], False), ([EXCUSED, GOOD], True)])
def test_only_claims_that_count_decide(claims, ok, tmp_path):
    assert reproduce(fake(claims), Settings(out_dir=tmp_path)).ok is ok


def near(holds, margin, because=""):
    return Claim("pigs are pink", f"{margin} errors from it", "pink", holds, because, margin=margin)


@pytest.mark.parametrize(
    ("claim", "verdict", "ok"),
    [
        (near(True, CONFIRMED), "yes", True),
        (near(True, CONFIRMED - 0.1), "not decided", True),
        (near(False, 4.0), "not decided", True),  # a rule for every run, broken by one, and a clear mean
        (near(False, REFUTED + 0.1), "not decided", True),
        (near(False, REFUTED), "NO", False),
        (near(False, np.nan), "not decided", True),
        (near(True, np.nan), "not decided", True),
        (near(False, -9.0, "asleep"), "no (not counted)", True),
        (BAD, "NO", False),
    ],
)
def test_a_quick_run_decides_what_its_errors_allow(claim, verdict, ok, tmp_path):
    """A full run decides by the rule alone."""
    done = reproduce(fake([claim]), Settings(quick=True, out_dir=tmp_path))
    record = json.loads(done.record.read_text("utf-8"))["claims"][0]
    assert (done.outcome.claims[0].verdict, done.ok) == (verdict, ok)
    assert record.get("decided", True) is (verdict != "not decided")
    full = reproduce(fake([claim]), Settings(out_dir=tmp_path))
    assert full.ok is (claim.holds or bool(claim.because))
    assert "margin" not in json.loads(full.record.read_text("utf-8"))["claims"][0]


def test_margins():
    assert in_errors((3.0, 1.0), (-1.0, 2.0)) == -0.5
    assert in_errors((3.0, 1.0), (2.0, 0.0)) == 3.0 and in_errors((-2.0, 0.0)) == -np.inf
    assert in_errors((3.0, np.nan)) == in_errors((np.nan, 1.0)) == in_errors((0.0, 0.0)) == 0.0
    draws = np.random.default_rng(0).normal(size=(20_000, 9))
    for of, found in (("mean", draws.mean(axis=1)), ("median", np.median(draws, axis=1))):
        errors = np.mean([error_of(row, of) ** 2 for row in draws]) ** 0.5
        assert errors == pytest.approx(found.std(), rel=0.05), of
    assert np.isnan(error_of([1.0]))


def test_verdicts():
    assert [claim.verdict for claim in (GOOD, BAD, EXCUSED)] == ["yes", "NO", "no (not counted)"]


@pytest.mark.parametrize("rich", [True, False])
def test_table_says_claim_numbers_rule_verdict_and_reason(rich, tmp_path, capsys, monkeypatch):
    if not rich:
        monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None)
    print_reproduction(reproduce(fake([GOOD, BAD, EXCUSED]), Settings(out_dir=tmp_path)))
    shown = " ".join(capsys.readouterr().out.split())
    for words in (
        "water is wet",
        "97 % wet",
        "above 90 %",
        "yes",
        "NO",
        "no (not counted)",
        "they were asleep",
        "a finding",
    ):
        assert words in shown


def test_missing_package_is_named_before_the_work(tmp_path):
    before = len(SEEN)
    with pytest.raises(errors.MissingExtraError, match="no_such_package"):
        reproduce(fake([GOOD], needs=("no_such_package",)), Settings(out_dir=tmp_path))
    assert len(SEEN) == before


def test_bad_folders(tmp_path):
    with pytest.raises(errors.InvalidValueError, match="does not exist"):
        Settings(data_dir=tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.InvalidValueError, match="cannot be written"):
        reproduce(fake([GOOD]), Settings(out_dir=tmp_path / "file"))


def test_find():
    assert [e.name for e in scirocco_papers.find("all")] == list(scirocco_papers.ALL)
    assert scirocco_papers.find("gaussian-mixture")[0].figure == "thesis, figure 4.6.1"
    with pytest.raises(errors.InvalidValueError, match="Did you mean `gaussian-scaling`"):
        scirocco_papers.find("gausian-scalling")


def test_to_json_has_no_infinities():
    assert (
        json.dumps(to_json({"a": [np.float32(1 / 3), -np.inf], 2: (True,)})) == '{"a": [0.333333, null], "2": [true]}'
    )
