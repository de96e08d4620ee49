"""The command line: it turns arguments into calls, and errors into one line and an exit status.

Exit status: 0 success; 1 a claim or a check failed, or a watched run ended badly; 2 the command failed; 130 Ctrl-C;
141 the reader of the output closed the pipe.
"""

from __future__ import annotations

import pkgutil
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated

from scirocco import _interrupt
from scirocco._version import __version__, versions
from scirocco.cli import _exit
from scirocco.cli._common import JSON, print_json, say, typer
from scirocco.cli._models import predict_command, show_command
from scirocco.cli.citing import cite
from scirocco.cli.data import data_app
from scirocco.cli.inspect import diagnose, report, runs, verify, watch
from scirocco.cli.models import model_app, predict, show
from scirocco.cli.running import demo, reproduce, resume, sample_config
from scirocco.errors import SciroccoError, SciroccoWarning
from scirocco.models._core.registry import MODELS, refuse_if_missing

app = typer.Typer(
    name="scirocco",
    cls=_exit.CommandGroup,
    help="Bayesian inference on data too large for ordinary MCMC.\n\nExample: scirocco demo",
    epilog=_exit.STATUSES,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit()


@app.callback()
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options that come before a command."""


app.command()(demo)
app.command("sample")(sample_config)
app.command()(resume)
app.command()(runs)
app.command()(watch)
app.command()(verify)
app.command()(diagnose)
app.command()(report)
show_command(app)(show)
predict_command(app)(predict)
for group, module in sorted({entry.group: entry.commands for entry in MODELS.values() if entry.group}.items()):
    app.add_typer(pkgutil.resolve_name(f"{module}:{group}_app"), name=group)
app.add_typer(model_app, name="model")
app.add_typer(data_app, name="data")
app.command()(reproduce)
app.command()(cite)


@app.command()
def version(as_json: Annotated[bool, JSON] = False) -> None:
    """Show the version of scirocco; with --json also the versions of its dependencies.

    Example: scirocco version
    """
    if as_json:
        print_json(versions())
    else:
        print(__version__)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    _interrupt.release()
    _exit.open_closed_streams()
    _exit.let_broken_pipes_be_known()
    _exit.write_plain_help()
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = words[0] if words else ""
    if words in ([], *([group.name] for group in app.registered_groups)):
        words.append("--help")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warner(warnings.showwarning, command)
            refuse_if_missing(command, f"`scirocco {command}`")
            status = app(words, prog_name="scirocco", standalone_mode=False)
    except SciroccoError as error:
        _exit.fail(_exit.in_words_of_the_command_line(str(error), command))
    except _exit.UsageError as error:
        _exit.fail(_exit.mistake(error))
    except BrokenPipeError:
        _exit.leave_unheard()
    except OSError as error:
        if error.errno is None:  # not from the operating system: a bug
            raise
        _exit.fail(_exit.of_file(error))
    except _exit.Interrupted as stop:
        _exit.leave(str(stop), own_process=arguments is None)
    except (KeyboardInterrupt, _exit.Abort):
        _exit.leave("interrupted.", own_process=arguments is None)
    else:
        _interrupt.guard()  # shutting down the interpreter takes a while
        sys.exit(status or 0)


def _warner(usual: Callable[..., None], command: str) -> Callable[..., None]:
    """Print our own warnings as one line on stderr, without the line of source code."""

    def show(message: Warning | str, category: type[Warning], *where: object, **more: object) -> None:
        if issubclass(category, SciroccoWarning):
            told = _exit.in_words_of_the_command_line(" ".join(str(message).split()), command)
            say(f"scirocco: {told}", file=sys.stderr)
        else:
            usual(message, category, *where, **more)

    return show
