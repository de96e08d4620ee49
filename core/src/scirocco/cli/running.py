"""Commands that sample: start a run from a file, resume it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import io
import os
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

from scirocco.cli._common import JSON, OUT, RUN, print_json, print_wrapped, say, typer
from scirocco.cli._exit import INTERRUPTED, WRONG, ending_at_once, ending_with_its_draws
from scirocco.cli._models import print_summary
from scirocco.errors import InvalidValueError, MissingExtraError

if TYPE_CHECKING:
    from scirocco.run import Run

_MOST_SHOWN = 20  # parameters in the table on the terminal


def sample_config(
    config: Annotated[
        Path | None, typer.Argument(help="Configuration file in TOML.", metavar="CONFIG.toml", show_default=False)
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Delete the run in the folder first.")] = False,
    go_on: Annotated[bool, typer.Option("--resume", help="Resume the run in the folder.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="RUN", help="Folder for the run, instead of the file's.")
    ] = None,
    num_samples: Annotated[
        int | None, typer.Option("--num-samples", min=1, help="Draws per chain, instead of the file's.")
    ] = None,
    chains: Annotated[
        int | None, typer.Option("--chains", min=1, help="Number of chains, instead of the file's.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Random seed, instead of the file's.")] = None,
    example: Annotated[
        str | None,
        typer.Option(
            "--example",
            metavar="NAME",
            help="Print an example file: logistic, linear, poisson, negative_binomial, student, softmax or own.",
        ),
    ] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Sample from a posterior described in a file, and store the draws in the folder that the file names.

    The file names the model (module:object, or a regression such as logistic), the data, the sampler and the
    estimator; `scirocco sample --example logistic > job.toml` writes an example. Ctrl-C ends the run and keeps its
    draws.

    Example: scirocco sample regression.toml --chains 4
    """
    from scirocco import jobs

    if example is not None:
        print(jobs.example(example), end="")
        return
    if config is None:
        raise InvalidValueError(
            "CONFIG.toml is missing; `scirocco sample --example logistic > job.toml` writes an example."
        )
    if overwrite and go_on:
        raise InvalidValueError("give --resume (continue) or --overwrite (start again), not both.")
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
        typer.Option("--num-samples", min=1, help="Total draws per chain; by default as originally requested."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="CONFIG.toml", help="Configuration file, instead of the original one."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read a data folder again and compare its checksums.")
    ] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Resume a stored run that was started from a configuration file.

    The file names code to run: without --config it is the one you started the run from, never one inside the run.

    Example: scirocco resume run --num-samples 20000
    """
    from scirocco import jobs

    with ending_with_its_draws():
        run = jobs.resume_job(path, num_samples, config, verify=verify)
    _finish(run, as_json)


def _finish(run: Run, as_json: bool) -> None:
    """Print the result; an interrupted run has its own exit status."""
    interrupted = run.status == "interrupted"
    if as_json:
        print_json(_as_json(run))
    elif interrupted:
        say(f"Interrupted. To resume: scirocco resume {shlex.quote(str(run.path))}")
    else:
        from scirocco.run import load

        print_wrapped(str(run))
        if run.draws is not None and run.configuration["dimension"] <= _MOST_SHOWN and run.num_draws >= 4:
            print_summary("Posterior", load(str(run.path)).summary(digits=None))
        say(f"In Python: sc.load({str(run.path)!r})\nNext: scirocco diagnose {shlex.quote(str(run.path))}")
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if run.status == "diverged":
        raise typer.Exit(WRONG)


def _as_json(run: Run) -> dict[str, Any]:
    """The folder, the progress, and every parameter if there are not too many."""
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
        from scirocco.run import load

        out["summary"] = load(str(run.path)).summary(digits=None).to_dict("index")
    return out


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
            "--open/--no-open", help="Open the report in the browser. Default: in a terminal, unless CI is set."
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
    name: Annotated[str | None, typer.Argument(help="Name of an experiment, or `all`.", metavar="NAME")] = None,
    list_them: Annotated[bool, typer.Option("--list", help="Show the experiments and exit.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A smaller version that takes about a minute.")] = False,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", envvar="SCIROCCO_DATA", help="Folder with the data sets.")
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
        raise InvalidValueError("NAME is missing: give an experiment or `all`; `scirocco reproduce --list` shows them.")
    chosen = papers.find(name)
    settings = papers.Settings(quick, data, out, seed)
    row = papers.Series(settings, all_of_them=name == "all")
    for experiment in chosen:
        if sys.stdout.isatty() and not as_json:
            print(f"{experiment.title} ...", flush=True)
        with ending_at_once(f"interrupted; {experiment.name} was not finished, and nothing was written for it."):
            made = row.add(experiment)
        if not as_json:
            papers.print_one(made)
    with contextlib.redirect_stdout(io.StringIO()) if as_json else contextlib.nullcontext():
        row.finish()
    if as_json:
        print_json(row.as_json())
    if not row.ok:
        raise typer.Exit(1)
