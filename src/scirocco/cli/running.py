"""Commands that draw: start a run from a file, go on with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from scirocco.cli._ending import INTERRUPTED, WRONG
from scirocco.cli._typer import JSON, RUN, print_json, typer
from scirocco.errors import InvalidValueError

_MOST_SHOWN = 20


def sample_config(
    config: Annotated[Path, typer.Argument(help="A TOML file.", metavar="CONFIG.toml", show_default=False)],
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
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Draw from a posterior that a file describes; the draws go to the folder that it names.

    The file names the model (module:object, or logistic, linear, poisson, softmax), the data, the sampler and the
    estimator; `python -m pydoc scirocco.jobs` shows one. Ctrl-C ends the run and keeps its draws.

    Example: scirocco sample regression.toml --chains 4
    """
    from scirocco import jobs

    if overwrite and go_on:
        raise InvalidValueError("give --resume (go on) or --overwrite (begin anew), not both.")
    given = {"num_samples": num_samples, "num_chains": chains, "seed": seed}
    changes = {name: value for name, value in given.items() if value is not None}
    job = jobs.read_job(config, changes, out)
    _finish(jobs.start(job, overwrite=overwrite, go_on=go_on), as_json)


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

    _finish(jobs.take_up(path, num_samples, config), as_json)


def _finish(run: Any, as_json: bool) -> None:
    """Say what there is now; an interrupted run has a status of its own."""
    interrupted = run.status == "interrupted"
    if as_json:
        print_json(_as_json(run))
    elif interrupted:
        print(f"Interrupted. To go on: scirocco resume {run.path}")
    else:
        print(run)
        print(f"in {run.path}; open it with sc.load({str(run.path)!r})")
        if run.draws is not None and run.configuration["dimension"] <= _MOST_SHOWN and run.num_draws >= 4:
            print(run.summary().to_string())
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if run.status == "diverged":
        raise typer.Exit(WRONG)


def _as_json(run: Any) -> dict[str, Any]:
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
