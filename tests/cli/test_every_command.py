"""Every command with good input, with a missing file and with a wrong option: status, one line, no stack trace."""

import importlib.util
import json

import pytest

from scirocco import cli, experiments
from scirocco.experiments.base import Claim, Experiment, Outcome

NOWHERE = "no/such/thing"

# command -> (good words, words with a missing file or name); {…} are files of the fixture `place`
COMMANDS = {
    "demo": ("--out {root}/demo --seed 1", "--out {table}/below"),
    "sample": ("{config} --out {root}/sampled --chains 1 --seed 3", NOWHERE),
    "resume": ("{run} --num-samples 80", NOWHERE),
    "runs": ("{root}", NOWHERE),
    "watch": ("{run}", NOWHERE),
    "diagnose": ("{run}", NOWHERE),
    "report": ("{run} --out {root}/run.html", NOWHERE),
    "reproduce": ("good --out {root}/figures", "godo"),
    "bench": ("--quick", None),
    "cite": ("SGLD", "SGDL"),
    "version": ("", None),
    "data convert": ("{table} {root}/made", f"{NOWHERE} {{root}}/made-2"),
    "data info": ("{folder} --verify", NOWHERE),
    "data list": ("", None),
    "topics fit": (
        "{text} --out {root}/t --topics 2 --min-documents 1 --epochs 4 --held-out 0",
        f"{NOWHERE} --out {{root}}/u",
    ),
    "topics show": ("{topics}", NOWHERE),
    "topics transform": (
        "{topics} {text} --out {root}/shares.csv",
        f"{{topics}} {NOWHERE} --out {{root}}/s.csv",
    ),
    "topics compare": ("{topics} {topics}", f"{{topics}} {NOWHERE}"),
    "cluster fit": ("{table} --out {root}/c --epochs 4", f"{NOWHERE} --out {{root}}/d"),
    "cluster show": ("{clusters}", NOWHERE),
    "cluster predict": (
        "{clusters} {table} --out {root}/labels.csv",
        f"{{clusters}} {NOWHERE} --out {{root}}/no.csv",
    ),
}
FITTED = ("topics show", "topics transform", "topics compare", "cluster show", "cluster predict")
NUMBA = (*FITTED, "topics fit", "cluster fit")
JSON = {
    "runs": "{root}",
    "diagnose": "{run}",
    "topics show": "{topics}",
    "data info": "{folder}",
    "cluster show": "{clusters}",
    "cite": "SGLD",
    "version": "",
    "resume": "{run}",
}


def leaves(group=None, path=""):
    """All commands of the application."""
    from typer.main import get_command

    group = get_command(cli.app) if group is None else group
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, f"{path}{name} ")
        else:
            yield path + name


def words_of(command, text, place):
    names = ("root", "config", "table", "text", "run", "topics", "clusters", "folder")
    return [*command.split(), *text.format(**{name: getattr(place, name) for name in names}).split()]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A demonstration and an experiment that take no time (they have tests of their own), speeds that are given."""
    from scirocco import demo
    from scirocco.cli import benchmark

    def run(settings):
        return Outcome([Claim("holds", "1", "is 1", True)], {}, lambda figure: None)

    monkeypatch.setattr(experiments, "ALL", {"good": Experiment("good", "A good one", "nowhere", run)})
    monkeypatch.setattr(demo, "run_demo", _demo)
    monkeypatch.setattr(
        benchmark, "_speed", lambda data, estimator, num_steps: 1e6 / (10 + estimator.batch_size)
    )


def _demo(out, seed):
    from scirocco.experiments.base import make_folder

    make_folder(out)
    print(f"a demonstration with seed {seed}")


def test_the_table_is_complete():
    assert set(COMMANDS) == set(leaves())


@pytest.mark.parametrize("command", COMMANDS)
def test_good_input(command, request, say, quick_compiler):
    if command in NUMBA:
        pytest.importorskip("numba", reason="needs numba (the extra `compiled`)")
    if command == "report" and importlib.util.find_spec("scirocco.report.page") is None:
        pytest.skip("the report room is not there")
    place = request.getfixturevalue("fitted" if command in FITTED else "place")
    status, out, err = say(*words_of(command, COMMANDS[command][0], place))
    # 60 draws are too few, and `diagnose` says so
    assert status == (1 if command == "diagnose" else 0), err
    assert out.strip() and not err
    assert "\x1b" not in out, "no colours where there is no terminal"


@pytest.mark.parametrize("command", [name for name, (_, missing) in COMMANDS.items() if missing])
def test_missing_file(command, request, say):
    if command in NUMBA:
        pytest.importorskip("numba", reason="needs numba (the extra `compiled`)")
    place = request.getfixturevalue("fitted" if command in FITTED else "place")
    status, _, err = say(*words_of(command, COMMANDS[command][1], place))
    assert status == 2
    assert err.startswith("scirocco: ") and len(err.splitlines()) == 1
    assert any(word in err for word in (NOWHERE, "godo", "SGDL", "table.csv"))


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_option(command, say):
    """An option with a slip: the one that was meant is named."""
    from typer.main import get_command

    found = get_command(cli.app)
    for name in command.split():
        found = found.commands[name]
    options = [o for parameter in found.params for o in parameter.opts if o.startswith("--")] or ["--help"]
    right = options[-1]
    wrong = right[:-1] + ("x" if right[-1] != "x" else "y")
    status, out, err = say(*command.split(), wrong)
    assert (status, out) == (2, "")
    assert f"No such option: {wrong}. Did you mean `{right}`? See `scirocco {command} --help`." in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("command", [*COMMANDS, "topics", "cluster"])
def test_help_has_one_example(command, say):
    status, out, _ = say(*command.split(), "--help")
    text = " ".join(out.replace("│", " ").split())
    assert status == 0 and text.count(f"Example: scirocco {command}") == 1


@pytest.mark.parametrize("command", JSON)
def test_json(command, request, say):
    place = request.getfixturevalue("fitted" if command in FITTED else "place")
    status, out, err = say(*words_of(command, JSON[command], place), "--json")
    assert status == (1 if command == "diagnose" else 0) and not err
    assert json.loads(out)


def test_the_help_documents_the_exit_status(say):
    status, out, _ = say("--help")
    assert status == 0
    for part in ("Exit status: 0", "1 a claim", "2 the command", "130 Ctrl-C"):
        assert part in " ".join(out.split())


@pytest.mark.parametrize(
    ("typed_word", "meant"), [("smaple", "sample"), ("topics shw", "show"), ("cluster fti", "fit")]
)
def test_an_unknown_command_gets_a_suggestion(typed_word, meant, say):
    status, _, err = say(*typed_word.split())
    assert status == 2 and f"Did you mean `{meant}`?" in err and len(err.splitlines()) == 1


@pytest.mark.parametrize("command", ["watch", "diagnose", "report", "resume", "topics show", "cluster show"])
@pytest.mark.parametrize("what", ["broken", "damaged", "table.csv"])
def test_not_a_run_and_a_damaged_one(command, what, place, say):
    if command in NUMBA:
        pytest.importorskip("numba", reason="needs numba (the extra `compiled`)")
    status, out, err = say(*command.split(), place.root / what)
    assert (status, out) == (2, "") and len(err.splitlines()) == 1 and what in err


def test_what_cannot_be_written(place, say, tmp_path):
    """The operating system's complaints are one line too."""
    status, _, err = say("data", "convert", place.table, place.table / "below")
    assert status == 2 and len(err.splitlines()) == 1 and "Traceback" not in err
