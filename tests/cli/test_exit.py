"""How commands end on Ctrl-C: also where an exception gets lost."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import time

import pytest

from scirocco import _interrupt
from scirocco.cli import _exit

pytestmark = pytest.mark.process

LONG = 600
"""Seconds: a sleep of this length that is not interrupted has missed Ctrl-C, however busy the machine is."""


def press():
    signal.raise_signal(signal.SIGINT)


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_during_a_garbage_collection():
    """What a callback of the collector raises is dropped, and JAX has one: `watch` once went on for ever."""

    def callback(phase, info):
        gc.callbacks.remove(callback)
        press()

    gc.callbacks.append(callback)
    with pytest.raises(_exit.Interrupted, match="heard"), _exit.ending_at_once("heard"):
        gc.collect()
        time.sleep(LONG)


@pytest.mark.parametrize("swallow", [BaseException, _exit.Interrupted])
def test_ctrl_c_that_is_swallowed(swallow):
    """It comes again, until the command has ended."""
    with pytest.raises(_exit.Interrupted, match="heard"), _exit.ending_at_once("heard", again=0.05):
        with contextlib.suppress(swallow):
            press()
        time.sleep(LONG)


def test_what_others_make_of_it():
    """An import that fails because of it is not a missing package; a command that swallows it has not ended well."""
    with pytest.raises(_exit.Interrupted), _exit.ending_at_once(""):
        try:
            press()
        except _exit.Interrupted:
            raise ImportError("numpy failed to import") from None
    with pytest.raises(_exit.Interrupted), _exit.ending_at_once(""):
        try:
            press()
        except _exit.Interrupted:
            pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_it_stays_ignored_where_it_is():
    """A script that puts a command into the background shields it from the keyboard."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with _exit.ending_at_once("not this"):
            press()
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_run_decides_itself():
    with pytest.raises(KeyboardInterrupt), _exit.ending_at_once("not this"), _exit.ending_with_its_draws():
        press()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("python -m scirocco demo", True),
        ("python -X dev -W error -m scirocco", True),
        ("python /usr/bin/scirocco demo", True),
        ("python -m pytest scirocco", False),
        ("python -c scirocco", False),
        ("python scirocco.py", False),
        ("python", False),
    ],
)
def test_only_the_command_line_is_guarded(words, expected):
    assert _interrupt.is_command(words.split()) is expected
    assert signal.getsignal(signal.SIGINT) is not _interrupt.end


@pytest.mark.parametrize("words", ["version", "cite --list", "--help"])
def test_a_reader_that_has_gone(words):
    """`scirocco cite --list | head -0`: no stack trace, no word. Text, a table, and Typer's help."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "scirocco", *words.split()]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("stream", [">&-", "2>&-", ">&- 2>&-"])
@pytest.mark.parametrize("words, expected", [("runs .", 0), ("runs nowhere", 2)])
def test_closed_streams(tmp_path, stream, words, expected):
    done = subprocess.run(
        f"{sys.executable} -m scirocco {words} {stream}", shell=True, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == expected and "Traceback" not in done.stderr
