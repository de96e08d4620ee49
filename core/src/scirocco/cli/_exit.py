"""How a command ends: one line and an exit status for an error and for Ctrl-C, never a stack trace."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from scirocco._checks import did_you_mean
from scirocco._interrupt import STATUS as INTERRUPTED
from scirocco.cli._common import say, typer

WRONG = 2  # the exit status
STATUSES = (
    "Exit status: 0 success; 1 a claim or a check failed (`reproduce`, `diagnose`, `verify`), or a watched run "
    "ended badly; 2 the command failed (wrong usage, a missing or damaged file, a chain that diverged to NaN or "
    "inf); 130 Ctrl-C (every committed draw is kept); 141 the reader of the output closed the pipe."
)

UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # click's, wherever this version of typer imports it from
Abort: type[BaseException] = typer.Abort
_NO_SUCH = re.compile(r"No such (option|command):? ['\"]?([^'\"\s]+?)['\"]?(\.|\s|$)")
_SOON = 0.1  # until Ctrl-C is sent again, if it was dropped


class Interrupted(BaseException):
    """Ctrl-C, with a message for the user; not a KeyboardInterrupt, which makes a run end early."""


class CommandGroup(typer.core.TyperGroup):
    """Commands that end with one line on Ctrl-C; Typer would exit silently."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            with ending_at_once("interrupted."):
                done = super().invoke(ctx)
                sys.stdout.flush()
                return done
        except KeyboardInterrupt:
            raise Interrupted("interrupted.") from None
        except BrokenPipeError:
            return leave_unheard()


class _Pressed:
    """Ctrl-C while a command is running.

    An exception alone would be lost if the signal comes during a garbage collection, because exceptions in JAX's
    garbage collection callback are dropped; an import may turn it into an ImportError. So it is remembered and raised
    again until the command has ended.
    """

    def __init__(self, words: str, again: float):
        self.words, self.again = words, again
        self.yes = False
        self._again: threading.Timer | None = None
        self._usual = sys.unraisablehook

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.yes = True
        self._remind(self.again)
        raise Interrupted(self.words)

    def dropped(self, what: sys.UnraisableHookArgs) -> None:
        """Raise a dropped exception again soon, instead of printing Python's stack trace."""
        if isinstance(what.exc_value, Interrupted):
            self._remind(_SOON)
        else:
            self._usual(what)

    def _remind(self, seconds: float) -> None:
        self.heard()
        self._again = threading.Timer(seconds, _press)
        self._again.daemon = True
        self._again.start()

    def heard(self) -> None:
        """Cancel the reminder."""
        if self._again is not None:
            self._again.cancel()


def _press() -> None:
    """Send Ctrl-C from another thread; on POSIX in a way that also ends a sleep."""
    if os.name == "posix":
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def ending_at_once(words: str, again: float = 2.0) -> Iterator[None]:
    """Ctrl-C ends the whole command, also where it would only end the first of several runs.

    Where it is ignored (a command that a script runs in the background), it stays ignored.
    If it was lost it is sent again, after `again` seconds.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is signal.SIG_IGN:
        yield
        return
    pressed, hook = _Pressed(words, again), sys.unraisablehook
    signal.signal(signal.SIGINT, pressed)
    sys.unraisablehook = pressed.dropped
    try:
        yield
    except Exception as error:
        if pressed.yes:
            raise Interrupted(words) from error
        raise
    finally:
        pressed.heard()
        sys.unraisablehook = hook
        signal.signal(signal.SIGINT, before)
    if pressed.yes:
        raise Interrupted(words)


@contextlib.contextmanager
def ending_with_its_draws() -> Iterator[None]:
    """The run itself handles Ctrl-C: it keeps its draws and ends."""
    before = signal.getsignal(signal.SIGINT)
    if not isinstance(before, _Pressed):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_COLUMNS = {"data": "--array NAME=COLUMNS", "cluster": "--columns NAMES"}
_OPTIONS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (
        re.compile(r"(the run in (.+?) (?:ended|already) .*)\bsc\.load opens"),
        lambda found: f"{found[1]}`scirocco report {shlex.quote(found[2])}` shows",
    ),
    (
        re.compile(r"(?<!in Python, )`?sc\.resume\('([^']*)'(, [^)]*)?\)`?"),
        lambda found: f"`scirocco resume {shlex.quote(found[1])}`",
    ),
    (re.compile(r"\b(pass|use|with) (overwrite|resume)=True"), r"\1 --\2"),
    (re.compile(r"\b(overwrite|resume)=True"), r"--\1"),
    (re.compile(r"\bnum_samples=(\d+)"), r"--num-samples \1"),
    (re.compile(r"\bcolumn=(\.\.\.|'[^']*')"), "--column NAME"),
    (re.compile(r'\bencoding="'), '--encoding "'),
    (re.compile(r"`num_communities`"), "--blocks"),
    (re.compile(r"\(num_epochs\)"), "(--epochs)"),
    (re.compile(r"`co_membership` and `predict_proba` average"), "`scirocco network predict` averages"),
    (re.compile(r"`by`='([^']*)'"), r"--by \1"),
    (re.compile(r"\bpass directed=True"), "pass --directed"),
    (re.compile(r"\bpass degree_corrected=False"), "pass --plain"),
    (re.compile(r"\btable\[\[.*?\]\], on the command line "), ""),
)
_OPTIONS_OF_GROUPS = (
    (re.compile(r'\b(emissions|likelihood|sampler|device)="(\w+)"'), r"--\1 \2"),
    (re.compile(r"`(?:num_)?(blocks|states|starts|emissions|likelihood|sampler|sticky|by)`(?!=)"), r"--\1"),
)
"""Arguments that are options of the groups; `model fit` takes them by --set."""


def in_words_of_the_command_line(message: str, command: str) -> str:
    """A message of the library, with options in place of Python's arguments and calls."""
    for pattern, words in (*(() if command == "model" else _OPTIONS_OF_GROUPS), *_OPTIONS):
        message = pattern.sub(words, message)
    return re.sub(r"columns=\{.*?\}", _COLUMNS.get(command, r"\g<0>"), message)


def fail(message: str, status: int = WRONG) -> None:
    """Print one line on stderr and exit."""
    say(f"scirocco: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(status)


def leave(message: str, own_process: bool) -> None:
    """The same for Ctrl-C; everything that was committed is on disk.

    A computation may still run in a thread of XLA and would crash the interpreter during shutdown: in our own process
    we exit without that shutdown.
    """
    try:
        fail(message, INTERRUPTED)
    finally:
        if own_process:
            with contextlib.suppress(OSError):  # the reader has closed the pipe
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(INTERRUPTED)


def open_closed_streams() -> None:
    """Print to nowhere where a stream is closed (`>&-`): the next file that is opened would take its place."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")


def let_broken_pipes_be_known() -> None:
    """Raise BrokenPipeError when the reader has closed the pipe; rich would exit with status 1, which is taken."""
    from rich.console import Console

    def on_broken_pipe(self: Console) -> None:
        raise BrokenPipeError

    Console.on_broken_pipe = on_broken_pipe  # type: ignore[method-assign]


def write_plain_help() -> None:
    """Write RUN for an argument and no type for a switch, where Typer would write `{RUN}` and `<bool>`."""
    argument, option = typer.core.TyperArgument, typer.core.TyperOption
    pieces, shown = argument.get_usage_pieces, getattr(option, "display_type_rich", None)
    if getattr(pieces, "plain", False):
        return

    def plain_pieces(self: Any, ctx: Any) -> list[str]:
        return [piece.strip("{}") for piece in pieces(self, ctx)]

    plain_pieces.plain = True  # type: ignore[attr-defined]
    argument.get_usage_pieces = plain_pieces  # type: ignore[method-assign]
    if shown is not None:  # some versions of Typer write no type for a switch

        def plain_type(self: Any, ctx: Any) -> str | None:
            return None if self.is_flag else shown(self, ctx)

        option.display_type_rich = plain_type  # type: ignore[method-assign]


def leave_unheard() -> None:
    """Exit silently, as other programs do, when the reader has closed the pipe (`scirocco runs | head -1`)."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(128 + 13)


def mistake(error: Any) -> str:
    """The message of a usage error: what is wrong, what was probably meant, where the help is."""
    context = error.ctx
    path = context.command_path if context is not None else "scirocco"
    message = _suggesting(error, context) or error.format_message().rstrip(".") + "."
    return f"{message} See `{path} --help`."


def _suggesting(error: Any, context: Any) -> str | None:
    found = _NO_SUCH.match(error.format_message())
    if found is None or context is None:
        return None
    kind, word = found[1], found[2]
    if kind == "command":
        known = list(context.command.commands)
        return f"No such command '{word}'.{did_you_mean(word, known)}"
    known = [name for p in context.command.params for name in (*p.opts, *p.secondary_opts) if name[:1] == "-"]
    return f"No such option: {word}.{did_you_mean(word, known)}"


def of_file(error: OSError) -> str:
    """The message of an error from the operating system: the file and the reason."""
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}."
