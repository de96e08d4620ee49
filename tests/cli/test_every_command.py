"""Every command with good input, with a missing file and with a wrong option: status, one line, no stack trace."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import types

import pytest

import scirocco_papers
from cli_table import COMMANDS, FITTED, GOOD_STATUS, NOWHERE, NUMBA, words_of, wrong_option
from scirocco import cli
from scirocco.cli._exit import in_words_of_the_command_line
from scirocco_papers.base import Claim, Experiment, Outcome

pytestmark = pytest.mark.compile


def leaves(group=None, path=""):
    """All commands of the application."""
    from typer.main import get_command

    group = get_command(cli.app) if group is None else group
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, f"{path}{name} ")
        else:
            yield path + name


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A demonstration and an experiment that take no time (they have tests of their own)."""
    from scirocco import demo

    def run(settings):
        return Outcome([Claim("holds", "1", "is 1", True)], {}, lambda figure: None)

    monkeypatch.setitem(scirocco_papers.ALL, "good", Experiment("good", "A good one", "nowhere", run))
    small_demo = types.SimpleNamespace(**vars(demo) | {"run_demo": _demo, "show_models": lambda seed: None})
    monkeypatch.setitem(sys.modules, "scirocco.demo", small_demo)


def _demo(out, seed, *, open_page):
    from scirocco._console import make_folder

    make_folder(out)
    assert not open_page, "no browser where there is no terminal"
    print(f"a demonstration with seed {seed}")


def test_the_table_is_complete():
    assert set(COMMANDS) == set(leaves())


@pytest.mark.parametrize("command", COMMANDS)
def test_good_input(command, request, say, quick_compiler):
    if command in NUMBA:
        pytest.importorskip("numba", reason="needs numba (the extra `compiled`)")
    if command == "report" and importlib.util.find_spec("scirocco.report.writing") is None:
        pytest.skip("the report room is not there")
    place = request.getfixturevalue("fitted" if command in FITTED else "place")
    status, out, err = say(*words_of(command, COMMANDS[command][0], place))
    assert status == GOOD_STATUS[command], err
    models = {"topics": "LDA: ", "hmm": "HMM: ", "network": "MixedMembership: ", "cluster": "DPMixture: "}
    chosen = models.get(command.removesuffix(" fit"), "?")
    assert out.strip() and (not err or err.startswith(chosen)), "one line says what was chosen"
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
    wrong, right = wrong_option(command)
    status, out, err = say(*command.split(), wrong)
    assert (status, out) == (2, "")
    assert f"No such option: {wrong}. Did you mean `{right}`? See `scirocco {command} --help`." in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("command", [*COMMANDS, "topics", "cluster", "hmm", "network", "model"])
def test_help_is_plain_and_has_one_example(command, say):
    status, out, _ = say(*command.split(), "--help")
    assert not any(sign in out for sign in ("{", "<bool>")) and "--help" in out
    text = " ".join(out.replace("│", " ").split())
    assert status == 0 and text.count(f"Example: scirocco {command}") == 1


@pytest.mark.rotates(2)
@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "demo"])
def test_json(command, request, say, quick_compiler):
    """One value on stdout and nothing else; what is for readers goes to stderr."""
    if command in NUMBA:
        pytest.importorskip("numba", reason="needs numba (the extra `compiled`)")
    place = request.getfixturevalue("fitted" if command in FITTED else "place")
    text = COMMANDS[command][0].replace("{root}/", "{root}/json-")
    status, out, err = say(*words_of(command, text, place), "--json", *["--once"] * (command == "watch"))
    assert status == GOOD_STATUS[command], err
    assert json.loads(out) and "Traceback" not in err


@pytest.mark.parametrize("command", ["", "topics", "cluster", "hmm", "network", "model", "data"])
def test_a_group_alone_shows_its_help(command, say):
    """The same as with --help, on stdout, and no complaint."""
    assert say(*command.split()) == say(*command.split(), "--help")
    status, out, err = say(*command.split())
    assert status == 0 and "Usage: scirocco" in out and not err


def test_shell_completion(place):
    """What a shell asks when Tab is pressed, and the script that makes it ask."""
    environment = os.environ | {"_SCIROCCO_COMPLETE": "complete_bash", "COMP_WORDS": "scirocco to", "COMP_CWORD": "1"}
    asked = subprocess.run([sys.executable, "-m", "scirocco"], env=environment, capture_output=True, text=True)
    assert asked.stdout.split() == ["topics"], asked.stderr
    # without this the shell is that of the parent process, whatever started the tests
    named = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    script = subprocess.run(
        [sys.executable, "-m", "scirocco", "--show-completion", "bash"], env=named, capture_output=True, text=True
    )
    assert "_SCIROCCO_COMPLETE=complete_bash" in script.stdout


@pytest.mark.parametrize(
    ("command", "message", "expected"),
    [
        ("sample", "use `sc.resume('a/b', ...)` to resume it", "use `scirocco resume a/b` to resume it"),
        ("sample", "resume=True to resume them, overwrite=True to", "--resume to resume them, --overwrite to"),
        ("resume", "more than num_samples=7. It", "more than --num-samples 7. It"),
        (
            "resume",
            "the run in a/b already has 9 draws. sc.load opens it.",
            "the run in a/b already has 9 draws. `scirocco report a/b` shows it.",
        ),
        (
            "resume",
            "the run in a b already has 9 draws. sc.load opens it.",
            "the run in a b already has 9 draws. `scirocco report 'a b'` shows it.",
        ),
        ("sample", "use `sc.resume('a b', ...)`.", "use `scirocco resume 'a b'`."),
        ("resume", "in Python, sc.resume('a', model, data).", "in Python, sc.resume('a', model, data)."),
        ("data", "choose some with columns={...}.", "choose some with --array NAME=COLUMNS."),
        ("cluster", "e.g. columns={'x': ['f_*'], 'y': 'label'}.", "e.g. --columns NAMES."),
    ],
)
def test_messages_are_in_the_words_of_the_command_line(command, message, expected):
    assert in_words_of_the_command_line(message, command) == expected


def test_a_folder_that_exists_is_answered_with_options(place, say):
    status, _, err = say("data", "convert", place.table, place.root / "twice")
    assert status == 0, err
    status, _, err = say("data", "convert", place.table, place.root / "twice")
    assert status == 2 and "--overwrite" in err and "overwrite=True" not in err


@pytest.mark.parametrize(("command", "name"), [("hmm", "states"), ("network", "blocks")])
def test_printed_commands_quote_paths(command, name, fitted, say, tmp_path):
    shutil.copytree(getattr(fitted, name), tmp_path / "a run")
    status, out, _ = say(command, "show", tmp_path / "a run")
    assert status == 0 and " ".join(out.split()).count(f"'{tmp_path}/a run'") == 2


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
