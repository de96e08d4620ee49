"""Commands in a real terminal: good input, a missing file, a wrong option, Ctrl-C.

Commands that end before one can press a key are given a disk that is slow: see `terminals.py`.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import helpers
from cli_table import COMMANDS, GOOD_STATUS, NOWHERE, words_of, wrong_option

pytestmark = pytest.mark.process

pytest.importorskip("pexpect", reason="a real terminal is driven with pexpect")
pytest.importorskip("numba", reason="topic models and mixtures need numba (the extra `compiled`)")

DRIVER = Path(__file__).with_name("terminals.py")
# where the disk is slow: a file that the command opens, or a module that only it imports
SLOW = {
    "sample": r"rows\.npz$",
    "resume": r"run/scirocco/run\.json$",
    "runs": r"run\.json$",
    "watch": r"run\.json$",
    "diagnose": r"run\.json$",
    "report": r"run\.json$",
    "cite": r"references\.bib$",
    "data convert": r"table\.csv$",
    "data info": r"/rows/",
    "topics fit": r"lines\.txt$",
    "topics show": r"run\.json$",
    "topics transform": r"lines\.txt$",
    "topics compare": r"run\.json$",
    "cluster fit": r"table\.csv$",
    "cluster show": r"run\.json$",
    "cluster predict": r"table\.csv$",
    "model fit": r"table\.csv$",
}
# the table's experiment lives in the process of the tests; in a terminal one is made that takes a second
REAL = {"reproduce": "scir-variance --quick --out {root}/figures"}
# tens of seconds; it is run in `test_demo.py` and `test_terminal.py`
LONG = ("demo",)
# what all commands say of such input is tested in `test_every_command.py`; here, that it is the same in a terminal
MISTAKEN = ("sample", "reproduce", "topics fit")


@pytest.fixture(scope="module")
def screens(request, fitted, tmp_path_factory):
    """[exit status, screen] of each command and case that was chosen, run one after the other by one driver."""
    root = tmp_path_factory.mktemp("screens")
    outputs = {
        name for texts in COMMANDS.values() for name in re.findall(r"\{root\}/([\w.-]+)", " ".join(filter(None, texts)))
    }
    unused = shutil.ignore_patterns("damaged", "broken", *outputs)  # other tests may have made these
    # a copy: other tests use and change the originals
    shutil.copytree(fitted.root, root, ignore=unused, dirs_exist_ok=True)
    place = fitted._replace(root=root)
    tests = {"good": test_good_input, "missing": test_missing_file, "wrong": test_wrong_option, "pressed": test_ctrl_c}
    chosen = {(c, case) for case, test in tests.items() for c in helpers.chosen_cases(request, test, "command")}
    jobs = {name: job for name, job in _jobs(place) if name in chosen}
    settings = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    driver = subprocess.run(
        [sys.executable, str(DRIVER)],
        input=json.dumps(list(jobs.values())),
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | settings,
        check=True,
    )
    return {name: tuple(result) for name, result in zip(jobs, json.loads(driver.stdout), strict=True)}


def _jobs(place):
    """The order matters: what is good changes no input of the others."""
    for number, (command, (good, missing)) in enumerate(COMMANDS.items()):
        common = {"columns": 80}
        if command in MISTAKEN:
            yield (command, "wrong"), common | {"words": [*command.split(), wrong_option(command)[0]]}
            yield (command, "missing"), common | {"words": words_of(command, missing, place)}
        if command in SLOW:
            text = "bnn-mnist" if command == "cite" else good  # an experiment, which is imported first
            words = words_of(command, text.replace("{root}/", f"{{root}}/pressed-{number}-"), place)
            yield (command, "pressed"), common | {"words": words, "slow": SLOW[command]}
        if command not in LONG:
            yield (command, "good"), common | {"words": words_of(command, REAL.get(command, good), place)}


@pytest.mark.rotates(4)
@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in LONG])
def test_good_input(command, screens):
    status, screen = screens[command, "good"]
    assert status == GOOD_STATUS[command] and "Traceback" not in screen, screen
    # but for paths and BibTeX, which must not be broken
    lines = [line for line in plain(screen).splitlines() if "/" not in line and "{" not in line]
    assert max(map(len, lines), default=0) <= 80


@pytest.mark.parametrize("command", MISTAKEN)
def test_missing_file(command, screens):
    status, screen = screens[command, "missing"]
    assert status == 2 and len(screen.splitlines()) == 1, screen
    assert screen.startswith("scirocco: ")
    assert any(word in screen for word in (NOWHERE, "godo", "SGDL", "table.csv"))


@pytest.mark.parametrize("command", MISTAKEN)
def test_wrong_option(command, screens):
    status, screen = screens[command, "wrong"]
    assert status == 2 and len(screen.splitlines()) == 1
    assert f"Did you mean `{wrong_option(command)[1]}`?" in screen


@pytest.mark.rotates(4)
@pytest.mark.parametrize("command", SLOW)
def test_ctrl_c(command, screens):
    status, screen = screens[command, "pressed"]
    assert status == 130 and "Traceback" not in screen, screen
    assert "interrupted" in screen.splitlines()[-1] or "no longer watching" in screen


def plain(screen):
    """Without colours and what redraws a line."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen).replace("\r", "\n")


@pytest.mark.parametrize("command", ["module", "script"])
def test_ctrl_c_while_jax_is_imported(command, tmp_path):
    """Before a line of the command line has run; every command begins like this."""
    script = Path(sys.executable).with_name("scirocco")
    if command == "script" and not script.exists():
        pytest.skip("the package is not installed as a command")
    start = ["-m", "scirocco"] if command == "module" else [str(script)]
    # who runs the tests may ignore Ctrl-C, and children inherit that
    hear = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.executable, sys.argv[1:])"
    )
    # python runs this before all else: the disk takes for ever to find JAX
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nsys.path.append({str(DRIVER.parent)!r})\nimport terminals\nterminals.slow_disk(r'^jax$')\n"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", hear, sys.executable, *start, "runs", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout.readline() == "the disk is slow\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=1_200)
    assert (process.returncode, out, err) == (130, "", "scirocco: interrupted.\n")
