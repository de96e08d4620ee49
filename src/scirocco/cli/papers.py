"""Commands that need nothing of the user: the demonstration, the papers' figures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from scirocco.cli._ending import ending_at_once
from scirocco.cli._typer import OUT, typer
from scirocco.errors import InvalidValueError


def demo(
    out: Annotated[Path, OUT] = Path("results"),
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the data and the chains.")] = 0,
) -> None:
    """A logistic regression posterior on 100,000 rows in under a minute, checked against the exact mode.

    Example: scirocco demo --out results
    """
    from scirocco.demo import run_demo

    with ending_at_once("interrupted; nothing of the demonstration was kept."):
        run_demo(out, seed)


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
    out: Annotated[Path, OUT] = Path("results"),
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Instead of the experiment's own.")
    ] = None,
) -> None:
    """Make a figure of the papers again, and judge what the papers say about it.

    Writes NAME.json and NAME.png. Exit status 1 when a claim that should hold does not. Ctrl-C ends all of it; what was
    finished before stays written.

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
    done: list[experiments.Reproduction] = []
    for experiment in chosen:
        if sys.stdout.isatty():
            print(f"{experiment.title} ...", flush=True)
        with ending_at_once(
            f"interrupted; {experiment.name} was not finished, and nothing of it was written."
        ):
            done.append(experiments.reproduce(experiment, settings))
        tables.print_reproduction(done[-1])
    if not all(reproduction.ok for reproduction in done):
        raise typer.Exit(1)
