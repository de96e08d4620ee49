"""Commands for hidden Markov models: fit, show, predict, forecast."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from scirocco.cli import _common
from scirocco.cli._common import JSON, drawn_so_far, print_json, say, typer, write_whole
from scirocco.cli._exit import INTERRUPTED, ending_with_its_draws

if TYPE_CHECKING:
    from scirocco.models import HMM

hmm_app = typer.Typer(
    help="Hidden Markov models of one or more series.\n\nExample: scirocco hmm fit series.csv --states 3 --out run",
)
_TABLE = "A table with one row per time: CSV, TSV, text, Parquet, Arrow or .npy."
_COLUMNS = typer.Option("--columns", metavar="NAMES", help="Columns of observations: x,y. All by default.")
_BY = typer.Option("--by", metavar="NAME", help="The column with the id of the series of each row.")


@hmm_app.command("fit")
def hmm_fit(
    data: Annotated[Path, typer.Argument(help=_TABLE, metavar="DATA", show_default=False)],
    out: Annotated[
        Path, typer.Option("--out", metavar="RUN", help="Folder for the run.", show_default=False)
    ],
    states: Annotated[int, typer.Option("--states", min=1, help="Number of states.")] = 2,
    emissions: Annotated[
        str,
        typer.Option("--emissions", help="gaussian, poisson (counts), categorical (labels), or auto."),
    ] = "auto",
    columns: Annotated[str | None, _COLUMNS] = None,
    by: Annotated[str | None, _BY] = None,
    sticky: Annotated[
        float, typer.Option("--sticky", min=0, help="Prior pseudo-counts of staying in a state.")
    ] = 0.0,
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset", metavar="NAME", help="Sampler of a paper: baker2018, barile2024, aicher2019."
        ),
    ] = None,
    sampler: Annotated[
        str | None, typer.Option("--sampler", metavar="NAME", help="gibbs (default), scir, scir_cv, sgrld.")
    ] = None,
    epochs: Annotated[
        float | None, typer.Option("--epochs", help="Length of the run in passes over the series.")
    ] = None,
    steps: Annotated[int | None, _common.STEPS] = None,
    seconds: Annotated[float | None, _common.SECONDS] = None,
    chains: Annotated[int, typer.Option("--chains", min=1, help="Independent chains.")] = 4,
    draws: Annotated[int | None, _common.DRAWS] = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", min=1, help="Observations per step.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Random seed of the chains.")] = 0,
    threads: Annotated[int | None, _common.THREADS] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device", metavar="NAME", help="auto (default: long series on an accelerator), cpu, gpu."
        ),
    ] = None,
    resume: Annotated[bool, _common.RESUME] = False,
    overwrite: Annotated[bool, _common.OVERWRITE] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Fit a hidden Markov model and store its draws in the folder RUN as it runs.

    Example: scirocco hmm fit visits.csv --emissions poisson --states 3 --by user --out visits-run
    """
    _common.check_source(data)
    from scirocco.models import HMM

    length = _common.Length(steps, epochs, seconds)
    _common.check_fit(out, length, resume, overwrite)
    options: dict[str, Any] = {
        "sampler": sampler,
        "num_samples": draws,
        "batch_size": batch_size,
        "num_threads": threads,
        "device": device,
    }
    given = {name: value for name, value in options.items() if value is not None}
    given |= {"emissions": emissions, "sticky": sticky, "num_chains": chains, "seed": seed}
    model = HMM(states, **given) if preset is None else HMM.preset(preset, states, **given)
    series = _read(data, columns, by)
    if not as_json:
        say(f"{_common.counted(len(series), 'observation')}, {_common.counted(states, 'state')}", flush=True)
    try:
        with ending_with_its_draws():
            model.fit(series, by=by, **length._asdict(), store=out, resume=resume, overwrite=overwrite)
        interrupted = model.run_.status == "interrupted"
    except KeyboardInterrupt:
        if not _common.interrupted_early(out):
            raise
        interrupted = True
    if interrupted:
        say(_common.how_to_resume(out), file=sys.stderr if as_json else sys.stdout)
        raise typer.Exit(INTERRUPTED)
    _show(out, 0.9, as_json)


@hmm_app.command("show")
def hmm_show(
    run: Annotated[Path, _common.RUN],
    interval: Annotated[float, _common.INTERVAL] = 0.9,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Show the states of a run: shares, dwell times, emissions and transitions, with credible intervals.

    You can use it while the run is being fitted.

    Example: scirocco hmm show run --json
    """
    _show(run, interval, as_json)


@hmm_app.command("predict")
def hmm_predict(
    run: Annotated[Path, _common.RUN],
    data: Annotated[Path, typer.Argument(help=_TABLE, metavar="DATA", show_default=False)],
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FILE.csv", help="File to write; one line per row.", show_default=False
        ),
    ],
    columns: Annotated[str | None, _COLUMNS] = None,
    by: Annotated[str | None, _BY] = None,
    overwrite: Annotated[bool, _common.REPLACE] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Write the most probable state of every row, and its probability, given the whole series.

    Example: scirocco hmm predict run visits.csv --by user --out states.csv
    """
    _common.check_source(data)
    _common.check_target(out, (".csv",), overwrite)
    model, _ = _open(run)
    shares = model.predict_proba(_read(data, columns, by), by=by)
    table = _read(data, None, None).assign(state=shares.argmax(axis=1), probability=shares.max(axis=1))
    write_whole(out, table.to_csv(index=False))
    visited = np.bincount(shares.argmax(axis=1), minlength=shares.shape[1])
    if as_json:
        print_json({"run": str(run), "path": str(out), "num_rows": len(table), "rows": visited.tolist()})
    else:
        told = ", ".join(f"{count:,} in state {k}" for k, count in enumerate(visited))
        say(f"{_common.counted(len(table), 'row')} ({told}): {out}")


@hmm_app.command("forecast")
def hmm_forecast(
    run: Annotated[Path, _common.RUN],
    steps: Annotated[int, typer.Option("--steps", min=1, help="How many times ahead.")] = 10,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DATA", help="A series to continue; by default the one of the fit."),
    ] = None,
    columns: Annotated[str | None, _COLUMNS] = None,
    interval: Annotated[float, _common.INTERVAL] = 0.9,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Forecast the next observations after the end of a series, with the intervals in which they will be.

    Example: scirocco hmm forecast run --steps 5
    """
    from scirocco._console import print_table
    from scirocco.diagnostics.intervals import widest

    model, _ = _open(run)
    series = None if data is None else _read(data, columns, None)
    interval = widest(math.prod(model.draws_["initial"].shape[:2]), interval)
    found = model.forecast(steps, series, interval=interval)
    mean, low, high = (np.asarray(part).reshape(steps, -1) for part in found)
    names = model.observed_
    if as_json:
        parts = {"mean": mean.tolist(), "low": low.tolist(), "high": high.tolist()}
        print_json({"run": str(run), "interval": interval, "observed": names, **parts})
        return
    rows = [
        [f" {t + 1} ", *(f"{m:.3g} ({a:.3g} to {b:.3g})" for m, a, b in zip(*line, strict=True))]
        for t, line in enumerate(zip(mean, low, high, strict=True))
    ]
    print_table(f"forecasts; {100 * interval:g} % intervals", ["step", *names], rows, right=(0,))


def _read(path: Path, columns: str | None, by: str | None) -> Any:
    """A table as a pandas data frame, with the wanted columns only."""
    from scirocco.models.inputs.files import read_table

    wanted = _common.names_of(columns)
    if wanted is not None and by is not None and by not in wanted:
        wanted.append(by)
    return read_table(path, wanted)


def _open(path: Path) -> tuple[HMM, str]:
    """The model, and the status of its run."""
    from scirocco.models import HMM

    model = HMM.load(path)
    return model, model.run_.status


def _show(path: Path, interval: float, as_json: bool) -> None:
    from scirocco._console import print_table, print_wrapped
    from scirocco.diagnostics.intervals import widest

    model, status = _open(path)
    chains, draws = model.draws_["initial"].shape[:2]
    interval = widest(chains * draws, interval)  # of a short run, or of one that is still going
    table, moves = model.states(interval), model.transitions(interval)
    if as_json:
        print_json(
            {
                "run": str(path),
                "status": status,
                "num_chains": chains,
                "num_draws": draws,
                "interval": interval,
                "states": [
                    {"state": int(k), **row}
                    for k, row in zip(table.index, table.to_dict("records"), strict=True)
                ],
                "transitions": {name: np.asarray(part).tolist() for name, part in moves._asdict().items()},
            }
        )
        return
    names = [name for name in table.columns if not name.endswith(("_low", "_high"))]
    rows = [[f" {k} ", *(_cell(row, name) for name in names)] for k, row in table.iterrows()]
    title = f"{len(table)} states, {drawn_so_far(chains, draws, status)}; {100 * interval:g} % intervals"
    print_table(title, ["state", *names], rows, right=(0,))
    rows = [
        [
            f" {j} ",
            *(
                f"{moves.mean[j, k]:.3f} ({moves.low[j, k]:.3f}–{moves.high[j, k]:.3f})"
                for k in range(len(table))
            ),
        ]
        for j in range(len(table))
    ]
    print_wrapped("share: of time, in the long run; dwell: expected steps of a visit.")
    print_table("transitions", ["from", *(f"to {k}" for k in range(len(table)))], rows, right=(0,))
    print_wrapped(
        f"Every row: scirocco hmm predict {path} DATA --out FILE.csv. Pictures: scirocco report {path}."
    )


def _cell(row: Any, name: str) -> str:
    if f"{name}_low" not in row:
        return str(row[name])
    return f"{row[name]:.3g} ({row[f'{name}_low']:.3g} to {row[f'{name}_high']:.3g})"
