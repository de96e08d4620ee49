"""Commands for hidden Markov models: fit, show, predict, forecast."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from scirocco.cli import _common
from scirocco.cli._common import JSON, print_json, typer
from scirocco.cli._models import (
    Fitting,
    Opened,
    PredictedTable,
    Shown,
    chosen,
    fit_command,
    open_fit,
    predict_command,
    show_command,
)

hmm_app = typer.Typer(
    help="Hidden Markov models of one or more series.\n\nExample: scirocco hmm fit series.csv --states 3 --out run"
)
_TABLE = typer.Argument(
    help="A table with one row per time: CSV, TSV, text, Parquet, Arrow or .npy.", metavar="DATA", show_default=False
)
_COLUMNS = typer.Option("--columns", metavar="NAMES", help="Columns of observations: x,y. All by default.")
_BY = typer.Option("--by", metavar="NAME", help="The column with the id of the series of each row.")


@fit_command(hmm_app)
def fit(
    fitting: Fitting,
    data: Annotated[Path, _TABLE],
    states: Annotated[int, typer.Option("--states", min=1, help="Number of states.")] = 2,
    emissions: Annotated[
        str, typer.Option("--emissions", help="gaussian, poisson (counts), categorical (labels), or auto.")
    ] = "auto",
    columns: Annotated[str | None, _COLUMNS] = None,
    by: Annotated[str | None, _BY] = None,
    sticky: Annotated[float, typer.Option("--sticky", min=0, help="Prior pseudo-counts of staying in a state.")] = 0.0,
    preset: Annotated[
        str | None,
        typer.Option("--preset", metavar="NAME", help="Sampler of a paper: baker2018, barile2024, aicher2019."),
    ] = None,
    sampler: Annotated[
        str | None, typer.Option("--sampler", metavar="NAME", help="gibbs (default), scir, scir_cv, sgrld.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="NAME", help="auto (default: long series on an accelerator), cpu, gpu."),
    ] = None,
) -> None:
    """Fit a hidden Markov model and store its draws in the folder RUN as it runs.

    Example: scirocco hmm fit visits.csv --emissions poisson --states 3 --by user --out visits-run
    """
    fitting.check(data)
    from scirocco.models import HMM

    given = fitting.settings | chosen(sampler=sampler, device=device)
    given |= {"emissions": emissions, "sticky": sticky}
    model = HMM(states, **given) if preset is None else HMM.preset(preset, states, **given)
    series = _read(data, columns, by)
    fitting.say(f"{_common.counted(len(series), 'observation')}, {_common.counted(states, 'state')}")
    fitting.run(model, series, by=by)


@show_command(hmm_app, "hmm")
def shown(opened: Opened) -> Shown:
    """Show the states of a run: shares, dwell times, emissions and transitions, with credible intervals.

    You can use it while the run is being fitted.

    Example: scirocco hmm show run --json
    """
    table, moves = opened.model.states(opened.interval), opened.model.transitions(opened.interval)
    listed = zip(table.index, table.to_dict("records"), strict=True)
    values = {
        "states": [{"state": int(k), **row} for k, row in listed],
        "transitions": {name: np.asarray(part).tolist() for name, part in moves._asdict().items()},
    }
    return Shown(opened.values() | values, lambda: _print_states(opened, table, moves))


@predict_command(hmm_app, "hmm")
def predicted(
    opened: Opened,
    data: Annotated[Path, _TABLE],
    columns: Annotated[str | None, _COLUMNS] = None,
    by: Annotated[str | None, _BY] = None,
) -> PredictedTable:
    """Write the most probable state of every row, and its probability, given the whole series.

    Example: scirocco hmm predict run visits.csv --by user --out states.csv
    """
    _common.check_source(data)
    shares = opened.model.predict_proba(_read(data, columns, by), by=by)
    table = _read(data, None, None).assign(state=shares.argmax(axis=1), probability=shares.max(axis=1))
    visited = np.bincount(shares.argmax(axis=1), minlength=shares.shape[1])
    told = ", ".join(f"{count:,} in state {k}" for k, count in enumerate(visited))
    values = {"num_rows": len(table), "rows": visited.tolist()}
    return PredictedTable(table, values, f"{_common.counted(len(table), 'row')} ({told})")


@hmm_app.command("forecast")
def hmm_forecast(
    run: Annotated[Path, _common.RUN],
    steps: Annotated[int, typer.Option("--steps", min=1, help="How many times ahead.")] = 10,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DATA", help="A series to continue; by default the one of the fit.")
    ] = None,
    columns: Annotated[str | None, _COLUMNS] = None,
    interval: Annotated[float, _common.INTERVAL] = 0.9,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Forecast the next observations after the end of a series, with the intervals in which they will be.

    Example: scirocco hmm forecast run --steps 5
    """
    from scirocco._console import print_table

    fitted = open_fit(run, interval, "hmm")
    series = None if data is None else _read(data, columns, None)
    found = fitted.model.forecast(steps, series, interval=fitted.interval)
    mean, low, high = (np.asarray(part).reshape(steps, -1) for part in found)
    names = fitted.model.observed_
    if as_json:
        parts = {"mean": mean.tolist(), "low": low.tolist(), "high": high.tolist()}
        print_json({"run": str(run), "interval": fitted.interval, "observed": names, **parts})
        return
    rows = [
        [f" {t + 1} ", *(f"{m:.3g} ({a:.3g} to {b:.3g})" for m, a, b in zip(*line, strict=True))]
        for t, line in enumerate(zip(mean, low, high, strict=True))
    ]
    print_table(f"forecasts; {100 * fitted.interval:g} % intervals", ["step", *names], rows, right=(0,))


def _read(path: Path, columns: str | None, by: str | None) -> Any:
    """A table as a pandas data frame, with the wanted columns only."""
    from scirocco.models.inputs.files import read_table

    wanted = _common.names_of(columns)
    if wanted is not None and by is not None and by not in wanted:
        wanted.append(by)
    return read_table(path, wanted)


def _print_states(opened: Opened, table: Any, moves: Any) -> None:
    from scirocco._console import print_table, print_wrapped

    names = [name for name in table.columns if not name.endswith(("_low", "_high"))]
    rows = [[f" {k} ", *(_common.cell(row, name) for name in names)] for k, row in table.iterrows()]
    print_table(opened.title(f"{len(table)} states"), ["state", *names], rows, right=(0,))
    states = range(len(table))
    rows = [
        [f" {j} ", *(f"{moves.mean[j, k]:.3f} ({moves.low[j, k]:.3f}–{moves.high[j, k]:.3f})" for k in states)]
        for j in states
    ]
    print_wrapped("share: of time, in the long run; dwell: expected steps of a visit.")
    print_table("transitions", ["from", *(f"to {k}" for k in states)], rows, right=(0,))
    run = shlex.quote(str(opened.path))
    print_wrapped(f"Every row: scirocco hmm predict {run} DATA --out FILE.csv. Pictures: scirocco report {run}.")
