"""The command line. No logic of its own: it turns words into calls, and errors into one line and an exit status.

Exit status: 0 all is well; 1 a claim that should hold does not; 2 the command cannot be carried out as typed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from scirocco import __version__
from scirocco.cli._typer import typer
from scirocco.cli.data import data_app
from scirocco.cli.papers import demo, reproduce
from scirocco.cli.running import resume, runs, sample_config
from scirocco.cli.topics import topics_app
from scirocco.errors import SciroccoError

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


def _fail(message: str) -> None:
    """One line on stderr, exit status 2."""
    print(f"scirocco: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)
