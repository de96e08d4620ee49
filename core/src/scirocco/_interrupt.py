"""Ctrl-C while the command line is being imported: one line and an exit status, as later.

Import this module first; importing it installs the handler. It imports as little as possible, for the same reason.
"""

import os
import signal
import sys

STATUS = 130  # 128 + SIGINT, as shells have it


def end(number: int, frame: object) -> None:
    """End the process. An exception is not enough: imports catch exceptions and raise others."""
    os.write(2, b"scirocco: interrupted.\n")
    os._exit(STATUS)


def is_command(words: list[str]) -> bool:
    """Whether a process was started as the command line: `scirocco ...`, `python -m scirocco ...`.

    >>> is_command(["python", "-X", "dev", "-m", "scirocco", "demo"]), is_command(["python", "-c", "import scirocco"])
    (True, False)
    """
    rest = iter(words[1:])
    for word in rest:
        if word == "-m":
            return next(rest, "") == "scirocco"
        if not word.startswith("-"):
            return os.path.basename(word) in ("scirocco", "scirocco.exe")
        if word == "-c":
            return False
        if word in ("-X", "-W"):
            next(rest, None)
    return False


def guard() -> None:
    """In a process of the command line, make Ctrl-C end it at once. Otherwise nothing changes."""
    if is_command(sys.orig_argv) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end)


def release() -> None:
    """Return Ctrl-C to Python, if `guard` had taken it."""
    if signal.getsignal(signal.SIGINT) is end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


guard()
