"""The command line. No logic of its own: it turns words into calls, and errors into one line and an exit status.

Exit status: 0 all is well; 1 a claim that should hold does not; 2 the command cannot be carried out as typed.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

from scirocco import __version__
from scirocco.cli._typer import typer
from scirocco.cli.data import data_app
from scirocco.cli.papers import demo, reproduce
from scirocco.cli.running import resume, runs, sample_config
from scirocco.cli.topics import topics_app
from scirocco.errors import SciroccoError, SciroccoWarning

app = typer.Typer(
    name="scirocco",
    help="Bayesian inference on data too large for ordinary MCMC.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # click's own, wherever this typer has it from

app.command()(demo)
app.command()(reproduce)
app.command("sample")(sample_config)
app.command()(resume)
app.command()(runs)
app.add_typer(data_app, name="data")
app.add_typer(topics_app, name="topics")


@app.command()
def version() -> None:
    """The version of scirocco.

    Example: scirocco version
    """
    print(__version__)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warner(warnings.showwarning)
            status = app(words or ["--help"], prog_name="scirocco", standalone_mode=False)
    except SciroccoError as error:
        _fail(str(error))
    except _UsageError as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "scirocco"
        _fail(f"{error.format_message().rstrip('.')}. See `{command} --help`.")  # type: ignore[attr-defined]
    except KeyboardInterrupt:
        sys.exit(130)
    else:
        sys.exit(status or 0)


def _warner(usual: Any) -> Any:
    """Our own warnings as one line on stderr, without the line of code that no user of a command wants to see."""

    def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, SciroccoWarning):
            print(f"scirocco: {' '.join(str(message).split())}", file=sys.stderr)
        else:
            usual(message, category, *where, **more)

    return show


def _fail(message: str) -> None:
    """One line on stderr, exit status 2."""
    print(f"scirocco: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)
