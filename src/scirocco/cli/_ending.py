"""How a command ends: one line and an exit status for a mistake and for Ctrl-C, never a stack trace."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

from scirocco.cli._typer import typer

WRONG, INTERRUPTED = 2, 130
STATUSES = (
    "Exit status: 0 all is well; 1 a claim or a check does not hold (`reproduce`, `diagnose`), or a run that was "
    "watched ended badly; 2 the command cannot be carried out (wrong usage, a missing or damaged file, a chain that "
    "left the finite numbers); 130 Ctrl-C, after which every committed draw is still there."
)

UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # click's own, wherever this typer has it from
Abort: type[BaseException] = typer.Abort
_NO_SUCH = re.compile(r"No such (option|command):? ['\"]?([^'\"\s]+?)['\"]?(\.|\s|$)")


class Interrupted(BaseException):
    """Ctrl-C, with what the user should know; not a KeyboardInterrupt, which a run takes as the wish to end early."""


class Group(typer.core.TyperGroup):
    """Commands whose Ctrl-C reaches `main`; Typer would make it an exit without a word."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted("interrupted.") from None


@contextlib.contextmanager
def ending_at_once(words: str) -> Iterator[None]:
    """Ctrl-C ends everything, also where it would only end the first of several runs and let the rest go on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise Interrupted(words)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def fail(message: str, status: int = WRONG) -> None:
    """One line on stderr, and the exit."""
    print(f"scirocco: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(status)


def leave(message: str, own_process: bool) -> None:
    """The same for Ctrl-C; everything that was committed is on the disk.

    A computation may still run in a thread of XLA, and would crash the interpreter as it is taken down: where the
    process is ours, it ends without that.
    """
    try:
        fail(message, INTERRUPTED)
    finally:
        if own_process:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(INTERRUPTED)


def mistake(error: Any) -> str:
    """A usage error in words: what is wrong, what was probably meant, where the help is."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "scirocco"
    message = _suggesting(error, context) or error.format_message().rstrip(".") + "."
    return f"{message} See `{path} --help`."


def _suggesting(error: Any, context: Any) -> str | None:
    found = _NO_SUCH.match(error.format_message())
    if found is None or context is None:
        return None
    kind, word = found[1], found[2]
    if kind == "command":
        known = list(getattr(context.command, "commands", {}))
        return f"No such command '{word}'.{suggestion(word, known)}"
    known = [name for p in context.command.params for name in (*p.opts, *p.secondary_opts) if name[:1] == "-"]
    return f"No such option: {word}.{suggestion(word, known)}"


def suggestion(word: str, known: list[str]) -> str:
    """` Did you mean ...?`, or nothing."""
    lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), lower, 1, cutoff=0.5)
    return f" Did you mean `{lower[close[0]]}`?" if close else ""


def of_file(error: OSError) -> str:
    """An operating system's complaint: the file, and what is the matter with it."""
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}."
