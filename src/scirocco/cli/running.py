"""Commands for runs: start one from a file, go on with it, list what is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from scirocco.cli._typer import typer


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
        f"{size:.3g}" if isinstance(size, float) else "" if isinstance(size, str) else "see report",
        "" if ess is None else f"{ess:,.0f}",
        run["status"],
    ]
