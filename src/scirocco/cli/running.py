"""Commands that draw: start a run from a file, go on with it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from scirocco.cli._common import JSON, RUN, print_json, print_wrapped, typer
from scirocco.cli._exit import INTERRUPTED, WRONG, ending_with_its_draws
from scirocco.errors import InvalidValueError

if TYPE_CHECKING:
    from scirocco.run import Run

_MOST_SHOWN = 20


def sample_config(
    config: Annotated[
        Path | None, typer.Argument(help="A TOML file.", metavar="CONFIG.toml", show_default=False)
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Delete the run that is there.")] = False,
    go_on: Annotated[bool, typer.Option("--resume", help="Go on with the run that is there.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="RUN", help="Folder for the run, instead of the file's.")
    ] = None,
    num_samples: Annotated[
        int | None, typer.Option("--num-samples", min=1, help="Draws of each chain, instead of the file's.")
    ] = None,
    chains: Annotated[
        int | None, typer.Option("--chains", min=1, help="Chains, instead of the file's.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Instead of the file's.")] = None,
    example: Annotated[
        str | None,
        typer.Option(
            "--example", metavar="NAME", help="Print a file: logistic, linear, poisson, softmax or own."
        ),
    ] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Draw from a posterior that a file describes; the draws go to the folder that it names.

    The file names the model (module:object, or logistic, linear, poisson, softmax), the data, the sampler and the
    estimator; `scirocco sample --example logistic > job.toml` makes one to begin with. Ctrl-C ends the run and keeps
    its draws.

    Example: scirocco sample regression.toml --chains 4
    """
    from scirocco import jobs

    if example is not None:
        print(jobs.example(example), end="")
        return
    if config is None:
        raise InvalidValueError(
            "which file? Give CONFIG.toml; `scirocco sample --example logistic > job.toml` makes one to begin with."
        )
    if overwrite and go_on:
        raise InvalidValueError("give --resume (go on) or --overwrite (begin anew), not both.")
    given = {"num_samples": num_samples, "num_chains": chains, "seed": seed}
    changes = {name: value for name, value in given.items() if value is not None}
    job = jobs.read_job(config, changes, out)
    with ending_with_its_draws():
        run = jobs.start(job, overwrite=overwrite, go_on=go_on)
    _finish(run, as_json)


def resume(
    path: Annotated[Path, RUN],
    num_samples: Annotated[
        int | None,
        typer.Option("--num-samples", min=1, help="Draws in all; by default as asked for at first."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="CONFIG.toml", help="Instead of the file it was started from."),
    ] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Go on with a stored run that was started from a configuration file.

    Example: scirocco resume run --num-samples 20000
    """
    from scirocco import jobs

    with ending_with_its_draws():
        run = jobs.resume_job(path, num_samples, config)
    _finish(run, as_json)


def _finish(run: Run, as_json: bool) -> None:
    """Say what there is now; an interrupted run has a status of its own."""
    interrupted = run.status == "interrupted"
    if as_json:
        print_json(_as_json(run))
    elif interrupted:
        print(f"Interrupted. To go on: scirocco resume {shlex.quote(str(run.path))}")
    else:
        print_wrapped(str(run))
        if run.draws is not None and run.configuration["dimension"] <= _MOST_SHOWN and run.num_draws >= 4:
            _print_summary(run)
        print(f"In Python: sc.load({str(run.path)!r})\nNext: scirocco diagnose {shlex.quote(str(run.path))}")
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if run.status == "diverged":
        raise typer.Exit(WRONG)


def _print_summary(run: Run) -> None:
    """What is most looked at; `run.summary()` has more."""
    from scirocco._console import print_table

    rows = [
        [
            f"{name} ",
            *(f" {row[column]:.4g}" for column in ("mean", "sd", "5%", "95%")),
            f" {row['ess_bulk']:,.0f}",
            f" {row['r_hat']:.3f}",
        ]
        for name, row in run.summary(digits=None).to_dict("index").items()
    ]
    columns = ["", "  mean", "  sd", "  5 %", "  95 %", "  ESS", "  R-hat"]
    print_table("Posterior", columns, rows, right=range(1, 7))


def _as_json(run: Run) -> dict[str, Any]:
    """Where it is, how far it came, and every parameter where they are not many."""
    out = {
        "path": str(run.path),
        "status": run.status,
        "num_chains": run.num_chains,
        "num_draws": run.num_draws,
        "configuration": run.configuration,
        "timing": run.timing,
        "scores": [{"step": step, **values} for step, values in run.scores],
    }
    if run.draws is not None and run.configuration["dimension"] <= 50 * _MOST_SHOWN and run.num_draws >= 4:
        out["summary"] = run.summary(digits=None).to_dict("index")
    return out
