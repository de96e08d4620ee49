"""What a command imports: nothing of the papers, no ArviZ, no models that it does not show."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

HEAVY = ("scirocco_papers", "arviz", "matplotlib", "numpyro", "scirocco.models", "scirocco.analysis")
REPORT = """
import json, sys
from scirocco import cli
try:
    cli.main(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
print("\\n" + json.dumps(sorted(sys.modules)))
"""


def imported(*words):
    """Modules after a command."""
    done = subprocess.run(
        [sys.executable, "-c", REPORT, *words],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("words", [["version"], ["version", "--json"], ["cite", "SGHMC"], ["cite", "--list"]])
def test_what_needs_no_numbers_needs_no_jax(words):
    assert not {"jax", "scirocco._public", "scirocco.run"} & set(imported(*words))


@pytest.mark.parametrize("words", [["version"], ["--version"], ["cite", "SGLD", "LDA"], ["runs", "{}"]])
def test_a_command_imports_what_it_shows(words, tmp_path):
    found = imported(*(word.format(tmp_path) for word in words))
    assert not [name for name in found if name.startswith(HEAVY)]


def test_the_list_of_experiments_imports_none_of_them():
    found = imported("reproduce", "--list")
    assert "scirocco_papers" in found
    assert not [
        name for name in found if name.startswith(("arviz", "matplotlib")) or name.endswith(".run.run")
    ]
    assert not [name for name in found if name.startswith("scirocco_papers.") and name.endswith(".run")]


def test_the_front_door_opens_when_it_is_asked():
    code = """
import sys, scirocco as sc
assert "jax" not in sys.modules and sc.__version__ and set(dir(sc)) == set(sc.__all__)
from scirocco import _public
names = {name for name in vars(_public) if not name.startswith("_")}
rooms = {name for name in sc.__all__ if f"scirocco.{name}" in sys.modules or not hasattr(_public, name)}
assert names == set(sc.__all__) - rooms, names ^ (set(sc.__all__) - rooms)
assert all(getattr(sc, name) is getattr(_public, name) for name in names)
assert all(getattr(sc, name) is not None for name in rooms) and sc.samplers.SGLD is sc.SGLD
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_demonstration_imports_no_experiment():
    code = "import sys, scirocco.demo; print([n for n in sys.modules if n.startswith(('scirocco_papers', 'arviz'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
