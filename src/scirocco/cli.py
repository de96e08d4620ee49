"""The command line. No logic of its own: it turns words into calls, and errors into one line and an exit status.

Exit status: 0 all is well; 1 a claim that should hold does not; 2 the command cannot be carried out as typed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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


@app.command("sample")
def sample_config(
    config: Annotated[Path, typer.Argument(help="A TOML file.", metavar="CONFIG.toml")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Delete the run that is there.")] = False,
    go_on: Annotated[bool, typer.Option("--resume", help="Go on with the run that is there.")] = False,
) -> None:
    """Draw from a posterior that a file describes; the draws go to the folder that it names.

    The file names the model (module:object), the data, the start, the sampler and the estimator; `python -m pydoc
    scirocco.jobs` shows one.

    Example: scirocco sample regression.toml
    """
    from scirocco import jobs

    job = jobs.read_job(config)
    _print_result(jobs.start(job, overwrite=overwrite, go_on=go_on))


@app.command()
def resume(
    path: Annotated[Path, typer.Argument(help="The folder of a stored run.", metavar="RUN")],
    num_samples: Annotated[
        int | None,
        typer.Option("--num-samples", min=1, help="Draws in all; by default as asked for at first."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="CONFIG.toml", help="Instead of the file it was started from."),
    ] = None,
) -> None:
    """Go on with a stored run that was started from a configuration file.

    Example: scirocco resume run --num-samples 20000
    """
    from scirocco import jobs

    _print_result(jobs.take_up(path, num_samples, config))


def _print_result(run: Any) -> None:
    print(run)
    print(f"in {run.path}; open it with sc.load({str(run.path)!r})")
    if run.draws is not None and run.configuration["dimension"] <= 20 and run.num_draws >= 4:
        print(run.summary().to_string())


@app.command()
def runs(
    path: Annotated[Path, typer.Argument(help="A folder with stored runs.", metavar="PATH")] = Path("."),
    as_json: Annotated[bool, typer.Option("--json", help="For programs: a list of objects.")] = False,
) -> None:
    """List stored runs: how far they are, at what step size, and the effective sample size so far.

    Example: scirocco runs results
    """
    import json

    from scirocco.experiments.tables import print_table
    from scirocco.run import list_runs

    found = list_runs(path)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    if not found:
        print(f"no stored run in {path}")
        return
    columns = ["run", "method", "chains", "draws", "done", "step size", "ESS", "status"]
    print_table("Stored runs", columns, [_run_row(run) for run in found], right=(2, 3, 4, 5, 6))


def _run_row(run: dict[str, Any]) -> list[str]:
    if "error" in run:
        return [run["path"], "", "", "", "", "", "", f"damaged: {run['error']}"]
    size, ess = run["step_size"], run["smallest_ess"]
    return [
        run["path"],
        f"{run['sampler']}, {run['estimator']}",
        str(run["num_chains"]),
        f"{run['draws']:,} of {run['num_samples']:,}",
        f"{run['percent']:.0f} %",
        f"{size:.3g}" if isinstance(size, float) else "see report",
        "" if ess is None else f"{ess:,.0f}",
        run["status"],
    ]


data_app = typer.Typer(help="Data folders: rows on disk, in an order that can be sampled from.")
app.add_typer(data_app, name="data")


@data_app.command("convert")
def data_convert(
    source: Annotated[
        Path, typer.Argument(help="Parquet, Arrow, Zarr, CSV, .npz or .npy.", metavar="SOURCE")
    ],
    folder: Annotated[Path, typer.Argument(help="The data folder to make.", metavar="FOLDER")],
    array: Annotated[
        list[str] | None,
        typer.Option(
            "--array",
            metavar="NAME=COLUMNS",
            help="An array from columns: x=age,income or 'x=feature_*'; may be repeated. By default every column.",
        ),
    ] = None,
    shuffle: Annotated[bool, typer.Option(help="Put the rows into random order.")] = True,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the order.")] = 0,
    dtype: Annotated[str | None, typer.Option("--dtype", help="float64 keeps double precision.")] = None,
    memory: Annotated[float, typer.Option("--memory", min=0.01, help="GiB to use.")] = 1.0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a data folder.")] = False,
) -> None:
    """Make a data folder from a file, in one pass that also shuffles the rows.

    Example: scirocco data convert flights.parquet flights --array 'x=delay_*' --array y=late
    """
    from scirocco import data

    columns = dict(_columns(text) for text in array) if array else None
    made = data.convert(
        source,
        folder,
        columns=columns,
        shuffle=shuffle,
        seed=seed,
        dtype=dtype,
        memory=int(memory * 2**30),
        overwrite=overwrite,
    )
    print(data.describe(made))


def _columns(text: str) -> tuple[str, list[str] | str]:
    name, equals, rest = text.partition("=")
    columns = [part.strip() for part in rest.split(",") if part.strip()]
    if not (name and equals and columns):
        raise InvalidValueError(f"--array {text} must have the form NAME=COLUMN or NAME=COLUMN,COLUMN,... .")
    single = len(columns) == 1 and not any(sign in columns[0] for sign in "*?[")
    return name.strip(), columns[0] if single else columns


@data_app.command("info")
def data_info(
    folder: Annotated[Path, typer.Argument(help="A data folder.", metavar="FOLDER")],
    verify: Annotated[bool, typer.Option("--verify", help="Also compare all checksums.")] = False,
) -> None:
    """Say what a data folder holds.

    Example: scirocco data info flights --verify
    """
    from scirocco import data

    source = data.open(folder)
    print(data.describe(source))
    if verify:
        source.verify()
        print("all checksums hold")


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
