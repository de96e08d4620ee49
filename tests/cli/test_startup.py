"""What a command imports: nothing of the papers, no ArviZ, no models that it does not show."""

import json
import os
import subprocess
import sys

import pytest

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


def test_the_demonstration_imports_no_experiment():
    code = "import sys, scirocco.demo; print([n for n in sys.modules if n.startswith(('scirocco_papers', 'arviz'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
