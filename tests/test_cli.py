"""The command line: what it prints, and its exit status."""

import importlib.metadata
import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import scirocco
import scirocco_papers
from scirocco import cli
from scirocco.cli.running import find_papers
from scirocco_papers.base import Claim, Experiment, Outcome

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[1]


def call(capsys, *words):
    """Exit status, stdout and stderr of a command line."""
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    shown = capsys.readouterr()
    return end.value.code, shown.out, shown.err


@pytest.fixture
def fake(monkeypatch):
    """Replace the experiments by two instant ones, `good` and `bad`."""

    def make(name, holds):
        def run(settings):
            return Outcome([Claim(f"{name} holds", "1", "is 1", holds)], {"seed": settings.seed}, lambda figure: None)

        return Experiment(name, f"A {name} one", "nowhere", run)

    monkeypatch.setattr(scirocco_papers, "ALL", {name: make(name, name == "good") for name in ("good", "bad")})
    return scirocco_papers.ALL


def test_list():
    result = CliRunner().invoke(cli.app, ["reproduce", "--list"])
    assert result.exit_code == 0
    for name in ("gaussian-scaling", "gaussian-mixture", "4.2.1", "4.6.1"):
        assert name in result.output


@pytest.mark.parametrize("words", [["version"], ["--version"]])
def test_version(words):
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == 0 and result.output.strip() == scirocco.__version__


def test_without_the_papers_it_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for words in (["--list"], ["gaussian-mixture", "--quick"]):
        status, out, err = call(capsys, "reproduce", *words)
        assert status == 2 and not out and len(err.splitlines()) == 1
        assert "`pip install ./papers`" in err
    status, out, _ = call(capsys, "cite", "--list")
    assert status == 0 and "SGLD" in out and "gaussian-mixture" not in out


def test_the_papers_are_found_by_their_entry_point(monkeypatch):
    declared = tomllib.loads((ROOT / "papers" / "pyproject.toml").read_text("utf-8"))
    ((name, value),) = declared["project"]["entry-points"]["scirocco.papers"].items()
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: [importlib.metadata.EntryPoint(name, value, group)]
    )
    assert find_papers() is scirocco_papers
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [])
    assert find_papers() is scirocco_papers, "on the path, but not installed"


@pytest.mark.parametrize(
    "command", ["demo", "reproduce", "version", "sample", "resume", "runs", "data convert", "data info", "data list"]
)
def test_help_has_an_example(command):
    result = CliRunner().invoke(cli.app, [*command.split(), "--help"])
    assert result.exit_code == 0 and f"Example: scirocco {command}" in result.output


def test_without_words_it_helps(capsys):
    status, out, _ = call(capsys)
    assert status == 0 and "reproduce" in out and "demo" in out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["reproduce", "gausian-mixture"], "Did you mean `gaussian-mixture`?"),
        (["reproduce", "zzzzzz"], "`scirocco reproduce --list`"),
        (["reproduce"], "NAME is missing"),
        (["reproduce", "gaussian-mixture", "--data", "no/such/folder"], "no/such/folder does not exist"),
        (["reproduce", "--lost"], "No such option: --lost"),
        (["demo", "--seed", "-1"], "`scirocco demo --help`"),
        (["demo", "--seed", "half"], "--seed"),
        (["repoduce"], "No such command 'repoduce'"),
    ],
)
def test_a_mistake_gives_one_line_and_status_2(words, expected, capsys):
    status, out, err = call(capsys, *words)
    assert status == 2 and not out
    assert len(err.strip().splitlines()) == 1
    assert expected in err and err.startswith("scirocco: ")


def test_output_folder_that_is_a_file(fake, capsys, tmp_path):
    (tmp_path / "file").write_text("")
    for words in (["reproduce", "good"], ["demo"]):
        status, _, err = call(capsys, *words, "--out", str(tmp_path / "file"))
        assert status == 2 and "cannot be written" in err and len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(("name", "expected"), [("good", 0), ("bad", 1), ("all", 1)])
def test_status_tells_whether_the_claims_hold(name, expected, fake, capsys, tmp_path):
    status, out, _ = call(capsys, "reproduce", name, "--quick", "--seed", "5", "--out", str(tmp_path))
    assert status == expected
    names = list(fake) if name == "all" else [name]
    expected_files = {f"{each}-quick.{kind}" for each in names for kind in ("json", "png")}
    expected_files |= {"all-quick.json"} if name == "all" else set()
    assert {path.name for path in tmp_path.iterdir()} == expected_files
    assert "the paper's claim" in out and f"«{names[-1]} holds»" in out


def test_bugs_are_not_hidden(fake, monkeypatch, tmp_path):
    def run(settings):
        raise RuntimeError("a bug")

    monkeypatch.setitem(fake, "good", Experiment("good", "", "", run))
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main(["reproduce", "good", "--out", str(tmp_path)])


@pytest.mark.process
def test_module_runs_and_missing_typer_is_explained():
    ok = subprocess.run([sys.executable, "-m", "scirocco", "version"], capture_output=True, text=True, check=True)
    assert ok.stdout.strip() == scirocco.__version__
    code = "import sys; sys.modules['typer'] = None; import scirocco.cli"
    missing = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert missing.returncode == 2
    assert "needs the package `typer`" in missing.stderr and "Traceback" not in missing.stderr
