"""Commands that need no input: the demonstration, the papers' figures."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import io
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated

from scirocco.cli._common import JSON, OUT, print_json, typer
from scirocco.cli._exit import ending_at_once
from scirocco.errors import InvalidValueError, MissingExtraError

MISSING = (
    "the papers' figures require the package `scirocco-papers`, which is not installed. It is in the repository of "
    "scirocco: run `pip install ./papers` in a checkout of it."
)


def find_papers() -> ModuleType | None:
    """The package with the experiments, found by its entry point or, if not installed, by its name on the path."""
    known = [point.value for point in importlib.metadata.entry_points(group="scirocco.papers")]
    for name in (*known, "scirocco_papers"):
        if importlib.util.find_spec(name) is not None:
            return importlib.import_module(name)
    return None


def demo(
    out: Annotated[Path, OUT] = Path("results"),
    seed: Annotated[int, typer.Option("--seed", min=0, help="Random seed of the data and the chains.")] = 0,
    open_it: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open",
            help="Open the report in the browser. Default: in a terminal, unless CI is set.",
        ),
    ] = None,
) -> None:
    """Sample a logistic regression on 100,000 rows, check it against the exact posterior, and open a report.

    Ends with a formula, texts and a network, one line each. Takes about a minute.

    Example: scirocco demo --out results
    """
    from scirocco.demo import run_demo, show_models

    if open_it is None:
        open_it = sys.stdout.isatty() and not os.environ.get("CI")
    with ending_at_once("interrupted; nothing was saved."):
        run_demo(out, seed, open_page=open_it)
    with ending_at_once("interrupted; the report was saved."):
        show_models(seed)


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="Name of an experiment, or `all`.", metavar="NAME")
    ] = None,
    list_them: Annotated[bool, typer.Option("--list", help="Show the experiments and exit.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A smaller version that takes about a minute.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            envvar="SCIROCCO_DATA",
            help="Folder with the data sets.",
        ),
    ] = None,
    out: Annotated[Path, OUT] = Path("results"),
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Random seed, instead of the experiment's own.")
    ] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Reproduce a figure of the papers, and check the papers' claims about it.

    Writes NAME.json and NAME.png. Exit status 1 when a claim that should hold does not. Ctrl-C ends the command;
    finished experiments stay on disk. `all` skips, with a note, experiments whose data or packages are missing, and
    ends with a table of all experiments.

    Example: scirocco reproduce gaussian-mixture --quick
    """
    papers = find_papers()
    if papers is None:
        raise MissingExtraError(MISSING, name="scirocco_papers")
    if list_them:
        known = list(papers.ALL.values())
        if as_json:
            print_json([{"name": e.name, "title": e.title, "figure": e.figure} for e in known])
        else:
            papers.print_experiments(known)
        return
    if name is None:
        raise InvalidValueError(
            "NAME is missing: give an experiment or `all`; `scirocco reproduce --list` shows them."
        )
    chosen = papers.find(name)
    settings = papers.Settings(quick, data, out, seed)
    row = papers.Series(settings, all_of_them=name == "all")
    for experiment in chosen:
        if sys.stdout.isatty() and not as_json:
            print(f"{experiment.title} ...", flush=True)
        with ending_at_once(
            f"interrupted; {experiment.name} was not finished, and nothing was written for it."
        ):
            made = row.add(experiment)
        if not as_json:
            papers.print_one(made)
    with contextlib.redirect_stdout(io.StringIO()) if as_json else contextlib.nullcontext():
        row.finish()
    if as_json:
        print_json(row.as_json())
    if not row.ok:
        raise typer.Exit(1)
