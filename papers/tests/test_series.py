"""Experiments in a row: what is skipped, what is summed up, what the exit status says."""

import json
import re

import pytest

import scirocco_papers
from scirocco import cli, errors
from scirocco.datasets import files
from scirocco_papers.base import Claim, Experiment, Outcome, Settings, reproduce
from scirocco_papers.series import Series

GOOD = Claim("water is wet", "97 % wet", "above 90 %", True)
BAD = Claim("pigs fly", "0 of 12 flew", "all fly", False)
NEAR = Claim("pigs are pink", "pale", "pink", False, margin=-1.0)
EXCUSED = Claim("pigs swim", "3 of 12 swam", "all swim", False, "they were asleep")


def fake(name, *claims, error=None, needs=()):
    def run(settings):
        if error is not None:
            raise error
        return Outcome(list(claims), {}, lambda figure: figure.set_size_inches(1, 1))

    return Experiment(name, f"The {name} one", "nowhere", run, needs=needs)


NO_DATA = fake("rows", GOOD, error=errors.MissingDataError("the rows are not here. Put them\n  there (9 bytes)."))
NO_PACKAGE = fake("packed", GOOD, needs=("no_such_package",))


@pytest.fixture
def say(tmp_path, monkeypatch, capsys):
    """Exit status, stdout and stderr of `scirocco reproduce`, with experiments that take no time."""

    def run(*words, among):
        monkeypatch.setattr(scirocco_papers, "ALL", {one.name: one for one in among})
        with pytest.raises(SystemExit) as end:
            cli.main(["reproduce", *words, "--out", str(tmp_path)])
        shown = capsys.readouterr()
        return end.value.code, shown.out, shown.err

    return run


def test_all_sums_up(say, tmp_path):
    experiments = [fake("sea", GOOD, GOOD, EXCUSED), fake("sty", GOOD, BAD), fake("pen", GOOD, NEAR)]
    status, out, _ = say("all", "--quick", among=experiments)
    table = out[out.index("All experiments") :]
    assert status == 1, "a claim that counts does not hold"
    for row in (r"sea +yes +2 of 2 +0 +1 ", r"sty +NO +1 of 2 +0 +0 ", r"pen +yes +1 of 2 +1 +0 "):
        assert re.search(row, table), row
    assert "not decided: -1.0 standard errors from the limit" in " ".join(out.split())
    assert re.search(r"total +\d+", table)
    record = json.loads((tmp_path / "all-quick.json").read_text("utf-8"))
    assert record["command"] == "scirocco reproduce all --quick"
    assert record["experiments"]["sty"] | {"seconds": 0} == {
        "hold": 1,
        "undecided": 0,
        "counted": 2,
        "not_counted": 0,
        "seconds": 0,
    }
    assert record["seconds"]["wall"] > sum(one["seconds"] for one in record["experiments"].values())
    assert record["versions"]["scirocco"] and record["machine"]["cores"]


def test_what_is_not_decided_is_no_failure(say):
    assert say("all", "--quick", among=[fake("pen", GOOD, NEAR)])[0] == 0
    assert say("all", among=[fake("pen", GOOD, NEAR)])[0] == 1, "a full run decides"


def test_what_is_not_here_is_skipped_and_said(say, tmp_path):
    status, out, _ = say("all", "--seed", "7", among=[NO_DATA, fake("sea", GOOD), NO_PACKAGE])
    assert status == 0
    assert "rows: skipped. the rows are not here.\n" in out, "one sentence of the message, on one line"
    assert "packed: skipped." in out and "no_such_package" in out
    assert re.search(r"rows +skipped", out[out.index("All experiments") :])
    record = json.loads((tmp_path / "all.json").read_text("utf-8"))
    assert list(record["skipped"]) == ["rows", "packed"] and list(record["experiments"]) == ["sea"]
    assert record["command"] == "scirocco reproduce all --seed 7"


@pytest.mark.parametrize("name", ["rows", "packed"])
def test_by_its_name_it_is_an_error(name, say, tmp_path):
    status, out, err = say(name, among=[NO_DATA, NO_PACKAGE])
    assert status == 2 and not out and len(err.splitlines()) == 1
    assert not list(tmp_path.glob("all*"))


def test_nothing_can_be_made(say):
    status, _, err = say("all", among=[NO_DATA])
    assert status == 2 and "none of the experiments can be made here. the rows are not here." in err


def test_one_by_name_has_no_summary(say, tmp_path):
    status, out, _ = say("sea", among=[fake("sea", GOOD)])
    assert status == 0 and "All experiments" not in out and not list(tmp_path.glob("all*"))


@pytest.mark.parametrize("error", [errors.StoreError("broken. Call a plumber."), ZeroDivisionError("by 0")])
def test_one_that_fails_hides_neither_the_others_nor_the_table(error, say, tmp_path):
    status, out, _ = say("all", "--quick", among=[fake("burst", error=error), fake("sea", GOOD)])
    assert status == 1
    said = f"burst: FAILED. {type(error).__name__}: {str(error).split(' Call')[0]}\n"
    assert said in out, "one sentence of the message, on one line"
    table = out[out.index("All experiments") :]
    assert re.search(r"burst +FAILED", table) and re.search(r"sea +yes", table)
    record = json.loads((tmp_path / "all-quick.json").read_text("utf-8"))
    assert list(record["failed"]) == ["burst"] and not record["skipped"]


def test_all_fail(say):
    status, out, _ = say("all", among=[fake("burst", error=ZeroDivisionError("by 0"))])
    assert status == 1 and re.search(r"burst +FAILED", out[out.index("All experiments") :])


def test_by_its_name_an_error_is_an_error(tmp_path):
    with pytest.raises(errors.StoreError):
        Series(Settings(out_dir=tmp_path), all_of_them=False).add(fake("x", error=errors.StoreError("broken")))


def test_a_data_set_that_is_nowhere_is_what_is_skipped(tmp_path):
    entry = files.Entry("rows", (files.File("rows.npz", "0", 1),), "nowhere", "By hand.", "none")
    with pytest.raises(errors.MissingDataError, match="was not found"):
        files.find(entry, tmp_path)


def test_pictures_have_a_palette(tmp_path):
    from PIL import Image

    with Image.open(reproduce(fake("sea", GOOD), Settings(out_dir=tmp_path)).picture) as picture:
        assert picture.mode == "P"
