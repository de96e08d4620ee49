"""Ctrl-C in a real terminal while a command draws: exit status 130, no stack trace, and what survives.

Each command that takes long is started in a pseudo-terminal and interrupted when it is at work.
Commands that end before one can press are in `test_terminal_short.py`.
"""

import os
import pty
import subprocess
import sys
import time

import numpy as np
import pytest

import scirocco as sc
from scirocco import jobs
from scirocco.store import holds_run

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("quick_compiler")]

pexpect = pytest.importorskip("pexpect", reason="a real terminal is driven with pexpect")
fdpexpect = pytest.importorskip("pexpect.fdpexpect")
pytest.importorskip("numba", reason="topic models and mixtures need numba (the extra `compiled`)")

PATIENCE = 1_200
MANY = 100_000_000


# a program that takes the terminal it was given as its own, so that Ctrl-C reaches it, and becomes the command;
# forking from here instead (pexpect.spawn) is not safe once JAX has threads. Who runs the tests may ignore Ctrl-C.
TAKE = (
    "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
# what would be over soon: its first run stays at its first chunk until Ctrl-C comes
HELD = """
import time
from scirocco import cli
from scirocco.run import session

def chunk(self, inner=session.Session._chunk):
    inner(self)
    print("at work", flush=True)
    while not self._asked_to_stop:
        time.sleep(0.1)

session.Session._chunk = chunk
cli.main()
"""


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, *words, at_work, held=False):
        settings = {"TERM": "xterm", "COLUMNS": "200", "LINES": "50", "OMP_NUM_THREADS": "1"}
        self.at_work, self.output = at_work, ""
        ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", TAKE, *(("-c", HELD) if held else ("-m", "scirocco")), *map(str, words)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env=os.environ | settings,
        )
        os.close(theirs)
        self.screen = fdpexpect.fdspawn(ours, encoding="utf-8", codec_errors="replace", timeout=PATIENCE)

    def wait(self, pattern):
        """Read until a pattern is on the screen."""
        self.screen.expect(pattern)
        self.output += self.screen.before + self.screen.after

    def press(self):
        """Ctrl-C; the exit status."""
        self.screen.send("\x03")
        self.screen.expect(pexpect.EOF)
        self.output += self.screen.before
        return self.process.wait(PATIENCE)

    def close(self):
        """End it, whatever it does."""
        self.process.kill()
        self.process.wait()
        self.screen.close()


@pytest.fixture(scope="module")
def start(place, tmp_path_factory):
    """A folder, and a function that starts one of the commands; all are ended after the tests."""
    root = tmp_path_factory.mktemp("terminals")
    text = place.config.read_text().replace("num_samples = 60", f"num_samples = {MANY}")
    config = root / "long.toml"
    config.write_text(text.replace("rows.npz", str(place.rows)))
    long = ("--steps", str(10**8))
    topics = ("topics", "fit", place.text, "--topics", "2", "--min-documents", "1", "--held-out", "0", *long)
    commands = {
        "sample": (("sample", config), r"sampling .* it/s", False),
        "watch": (("watch", root / "run", "--every", "0.2"), r"sampling", False),
        "topics fit": ((*topics, "--out", root / "topics"), r"burn-in .* it/s", False),
        "cluster fit": (("cluster", "fit", place.table, *long, "--out", root / "clusters"), r"burn-in .* it/s", False),
        "demo": (("demo", "--out", root / "demo"), r"at work", True),
        "reproduce": (("reproduce", "gaussian-scaling", "--quick", "--out", root / "figures"), r"at work", True),
    }
    started = []

    def begin(command):
        words, at_work, held = commands[command]
        started.append(Terminal(*words, at_work=at_work, held=held))
        return started[-1]

    yield root, begin
    for terminal in started:
        terminal.close()


def interrupt(terminal):
    terminal.wait(terminal.at_work)
    assert terminal.press() == 130, terminal.output
    assert "Traceback" not in terminal.output and "Error" not in terminal.output
    return terminal.output


@pytest.mark.rotates(2, "demo")
def test_demo(start):
    root, begin = start
    assert "scirocco: interrupted; nothing was saved." in interrupt(begin("demo"))
    assert not list(root.glob("demo/*"))


@pytest.mark.rotates(2, "terminal")
def test_reproduce(start):
    """The whole experiment ends, not only the first of its runs; no verdict is written."""
    root, begin = start
    assert "scirocco: interrupted; gaussian-scaling was not finished" in interrupt(begin("reproduce"))
    assert not list(root.glob("figures/*"))


@pytest.mark.rotates(2, "terminal")
def test_sample_is_watched_keeps_its_draws_and_is_resumed(start):
    """Who stops watching does not stop the run. The chain is resumed where it was, bit for bit."""
    root, begin = start
    sampling = begin("sample")
    end = time.monotonic() + PATIENCE
    while not holds_run(root / "run"):
        assert time.monotonic() < end and sampling.process.poll() is None
        time.sleep(0.1)
    shown = interrupt(begin("watch"))
    assert "no longer watching" in shown and "the run continues" in shown
    assert sc.load(root / "run").status == "running"
    shown = interrupt(sampling)
    assert "interrupted after" in shown and f"scirocco resume {root / 'run'}" in shown
    run = sc.load(root / "run")
    kept = run.num_draws
    assert run.status == "interrupted" and kept > 0
    # the state that was committed belongs to the draws that were
    before = np.asarray(run.draws["coef"][:, -5:])
    more = jobs.resume_job(root / "run", kept + 5, None, progress=False)
    np.testing.assert_array_equal(np.asarray(more.draws["coef"][:, kept - 5 : kept]), before)
    assert more.num_draws == kept + 5 and more.status == "complete"


@pytest.mark.rotates(2)
@pytest.mark.parametrize("command", ["topics fit", "cluster fit"])
def test_fits_can_be_resumed(command, start):
    root, begin = start
    shown = interrupt(begin(command))
    assert "repeat the command with --resume" in shown
    run = sc.load(root / {"topics fit": "topics", "cluster fit": "clusters"}[command])
    assert run.status == "interrupted"
