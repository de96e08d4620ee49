"""What a command imports: nothing of the papers, no ArviZ, no models that it does not show."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

HEAVY = ("scirocco_papers", "arviz", "matplotlib", "numpyro", "scirocco.models", "scirocco.analysis")
TABLE = {"scirocco.models", "scirocco.models._core", "scirocco.models._core.registry"}
"""The list of models, which imports none of them."""
REPORT = """
import contextlib, io, json, os, sys
from scirocco import cli
for words in json.loads(sys.argv[1]):
    child = os.fork()  # each in a copy of this process, which has imported what all commands do
    if child:
        assert os.waitpid(child, 0)[1] == 0, words
        continue
    status = 0
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            cli.main(words)
    except SystemExit as end:
        status = end.code or 0
    print(json.dumps(sorted(sys.modules)), flush=True)
    os._exit(status)
"""
LIGHT = ("version", "--version", "version --json", "cite SGHMC", "cite SGLD LDA", "cite --list")


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """Modules after each of several commands."""
    commands = [*map(str.split, LIGHT), ["runs", str(tmp_path_factory.mktemp("none"))], ["reproduce", "--list"]]
    done = subprocess.run(
        [sys.executable, "-c", REPORT, json.dumps(commands)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    return dict(zip((*LIGHT, "runs", "reproduce"), map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("words", LIGHT)
def test_what_needs_no_numbers_needs_no_jax(words, imported):
    assert not {"jax", "scirocco._public", "scirocco.run"} & set(imported[words])


@pytest.mark.parametrize("words", ["version", "--version", "cite SGLD LDA", "runs"])
def test_a_command_imports_what_it_shows(words, imported):
    assert not [name for name in imported[words] if name.startswith(HEAVY) and name not in TABLE]


def test_the_list_of_experiments_imports_none_of_them(imported):
    found = imported["reproduce"]
    assert "scirocco_papers" in found
    assert not [name for name in found if name.startswith(("arviz", "matplotlib")) or name.endswith(".run.run")]
    assert {name for name in found if name.startswith("scirocco_papers.")} == {
        "scirocco_papers.base",
        "scirocco_papers.series",
    }


def test_the_front_door_opens_when_it_is_asked_and_the_demonstration_imports_no_experiment():
    code = """
import sys, scirocco as sc
assert "jax" not in sys.modules and sc.__version__ and set(dir(sc)) == set(sc.__all__)
import scirocco.demo
assert not [name for name in sys.modules if name.startswith(("scirocco_papers", "arviz"))]
from scirocco import _public
rooms = {name for name in sc.__all__ if f"scirocco.{name}" in sys.modules or not hasattr(_public, name)}
names = set(sc.__all__) - rooms
assert "SGLD" in names and not hasattr(sc, "Gradient") and hasattr(_public, "Gradient")
assert all(getattr(sc, name) is getattr(_public, name) for name in names)
assert all(getattr(sc, name) is not None for name in rooms) and sc.samplers.SGLD is sc.SGLD
"""
    subprocess.run([sys.executable, "-c", code], check=True)
