"""Commands that need nothing of the user: the demonstration, the papers' figures."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Annotated, Any

from scirocco.cli._ending import ending_at_once
from scirocco.cli._typer import JSON, OUT, print_json, typer
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
    quick: Annotated[bool, typer.Option("--quick", help="A smaller version, in a minute or so.")] = False,
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
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Make a figure of the papers again, and judge what the papers say about it.

    Writes NAME.json and NAME.png. Exit status 1 when a claim that should hold does not. Ctrl-C ends all of it; what was
    finished before stays written. `all` leaves out, and says so, what needs data or packages that are not here, and
    ends with a table of all.

    Example: scirocco reproduce gaussian-mixture --quick
    """
    from scirocco import experiments
    from scirocco.experiments import series, tables

    if list_them:
        known = list(experiments.ALL.values())
        if as_json:
            print_json([{"name": e.name, "title": e.title, "figure": e.figure} for e in known])
        else:
            tables.print_experiments(known)
        return
    if name is None:
        raise InvalidValueError(
            "which experiment? Give a name or `all`; `scirocco reproduce --list` shows them."
        )
    chosen = experiments.find(name)
    settings = experiments.Settings(quick, data, out, seed)
    row = series.Series(settings, all_of_them=name == "all")
    for experiment in chosen:
        if sys.stdout.isatty() and not as_json:
            print(f"{experiment.title} ...", flush=True)
        with ending_at_once(
            f"interrupted; {experiment.name} was not finished, and nothing of it was written."
        ):
            made = row.add(experiment)
        if not as_json:
            series.print_one(made)
    with contextlib.redirect_stdout(io.StringIO()) if as_json else contextlib.nullcontext():
        row.finish()
    if as_json:
        print_json(_as_json(row))
    if not row.ok:
        raise typer.Exit(1)


def _as_json(row: Any) -> dict[str, Any]:
    """What the files hold, and where they are."""
    made = {
        one.experiment.name: json.loads(one.record.read_text("utf-8"))
        | {"ok": one.ok, "files": [str(one.record), str(one.picture)]}
        for one in row.done
    }
    return {
        "ok": row.ok,
        "experiments": made,
        "skipped": {one.experiment.name: one.why for one in row.skipped},
    }
