"""The command line. No logic of its own: it turns words into calls, and errors into one line and an exit status.

Exit status: 0 all is well; 1 a claim that should hold does not; 2 the command cannot be carried out as typed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from scirocco import __version__
from scirocco._extras import require
from scirocco.errors import InvalidValueError, MissingExtraError, SciroccoError

if TYPE_CHECKING:
    import typer
else:
    try:
        typer = require("typer", "the command line of scirocco")
    except MissingExtraError as missing:
        print(f"scirocco: {missing}", file=sys.stderr)
        sys.exit(2)

app = typer.Typer(
    name="scirocco",
    help="Bayesian inference on data too large for ordinary MCMC.",
    add_completion=False,
    pretty_exceptions_enable=False,
)

_UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # click's own, wherever this typer has it from
_OUT = typer.Option("--out", metavar="DIR", help="Folder for results; made when it is missing.")


@app.command()
def demo(
    out: Annotated[Path, _OUT] = Path("results"),
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the data and the chains.")] = 0,
) -> None:
    """A logistic regression posterior on 100,000 rows in under a minute, checked against the exact mode.

    Example: scirocco demo --out results
    """
    from scirocco.demo import run_demo

    run_demo(out, seed)


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="Which experiment, or `all`.", metavar="NAME")] = None,
    list_them: Annotated[bool, typer.Option("--list", help="Show the experiments and stop.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A smaller version, in under a minute.")] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            envvar="SCIROCCO_DATA",
            help="Folder with data sets, where they are needed.",
        ),
    ] = None,
    out: Annotated[Path, _OUT] = Path("results"),
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Instead of the experiment's own.")
    ] = None,
) -> None:
    """Make a figure of the papers again, and judge what the papers say about it.

    Writes NAME.json and NAME.png. Exit status 1 when a claim that should hold does not.

    Example: scirocco reproduce gaussian-mixture --quick
    """
    from scirocco import experiments
    from scirocco.experiments import tables

    if list_them:
        tables.print_experiments(list(experiments.ALL.values()))
        return
    if name is None:
        raise InvalidValueError(
            "which experiment? Give a name or `all`; `scirocco reproduce --list` shows them."
        )
    chosen = experiments.find(name)
    settings = experiments.Settings(quick, data, out, seed)
    done = []
    for experiment in chosen:
        done.append(experiments.reproduce(experiment, settings))
        tables.print_reproduction(done[-1])
    if not all(reproduction.ok for reproduction in done):
        raise typer.Exit(1)


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
