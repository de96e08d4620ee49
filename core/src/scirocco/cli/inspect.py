"""Commands that inspect stored runs: list, watch, verify, diagnose, report."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from scirocco.cli._common import JSON, RUN, print_json, print_wrapped, say, typer
from scirocco.errors import InvalidValueError

if TYPE_CHECKING:
    from scirocco.analysis.diagnosis import Diagnosis
    from scirocco.run import Run

_CONFIG = typer.Option("--config", metavar="CONFIG.toml", help="The run's configuration file, for the full diagnosis.")


def runs(
    path: Annotated[Path, typer.Argument(help="A folder with stored runs.", metavar="PATH")] = Path("."),
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """List stored runs: progress, step size, and effective sample size so far.

    Example: scirocco runs results
    """
    from scirocco._console import print_table
    from scirocco.run import list_runs

    found = list_runs(path)
    if as_json:
        print_json(found)
        return
    if not found:
        say(f"no stored run in {path}")
        return
    columns = ["run", "method", "chains", "draws", "done", "step size", "ESS", "status"]
    print_table("Stored runs", columns, [_run_row(run) for run in found], right=(2, 3, 4, 5, 6))


def _run_row(run: dict[str, Any]) -> list[str]:
    if "error" in run:
        return [run["path"], "", "", "", "", "", "", f"damaged: {run['error']}"]
    size, ess = run.get("step_size", ""), run["smallest_ess"]
    shards = f" in {run['members']} shards" if run["kind"] == "subposteriors" else ""
    return [
        run["path"],
        f"{run['sampler']}, {run['estimator']}" if "sampler" in run else "",
        f"{run['num_chains']}{shards}",
        f"{run['draws']:,} of {run['num_samples']:,}",
        f"{run['percent']:.0f} %",
        f"{size:.3g}" if isinstance(size, float) else "" if isinstance(size, str) else "see report",
        "" if ess is None else f"{ess:,.0f}",
        run["status"],
    ]


def verify(path: Annotated[Path, RUN], as_json: Annotated[bool, JSON] = False) -> None:
    """Read every file of a stored run and compare the checksums; exit status 1 if something is damaged.

    Example: scirocco verify run
    """
    from scirocco.run import verify_run

    found = verify_run(path)
    problems = [problem for run in found for problem in run["problems"]]
    if as_json:
        print_json(found)
    else:
        for problem in problems:
            print_wrapped(problem)
        read = f"{sum(run['bytes'] for run in found) / 1e6:,.1f} MB of draws read"
        say(f"{read}: {len(problems) or 'no'} damaged file{'s' * (len(problems) != 1)}")
    if problems:
        raise typer.Exit(1)


def watch(
    path: Annotated[Path, RUN],
    once: Annotated[bool, typer.Option("--once", help="Print the current state and exit.")] = False,
    every: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between updates.")] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; requires --once.")] = False,
) -> None:
    """Watch a run from another shell or machine: progress, scores, ESS, chains. Only its folder is needed.

    Ends when the run ends: exit status 0 if it is complete or was stopped by a callback, 1 if it diverged, was
    interrupted or killed. Without a terminal it prints a line for each update. Ctrl-C does not affect the run.

    Example: scirocco watch run
    """
    from scirocco.cli.watching import ENDED_WELL, as_plain, follow, read_state

    if as_json:
        if not once:
            raise InvalidValueError("--json requires --once.")
        print_json(as_plain(read_state(path)))
        return
    status = follow(path, once=once, every=every)
    if not once and status not in ENDED_WELL:
        raise typer.Exit(1)


def diagnose(
    path: Annotated[Path, RUN],
    config: Annotated[Path | None, _CONFIG] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="MODULE:OBJECT", help="The run's model, for the full diagnosis; requires --data."
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="PATH", help="The run's data; requires --model.")
    ] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Check whether a run can be trusted; if not, say what to change, and to which value.

    Uses the draws alone; with the model and data also the curvature, the gradient noise and Stein's identity. Exit
    status 1 when something is wrong.

    Example: scirocco diagnose run --config regression.toml
    """
    from scirocco import jobs
    from scirocco.run import load

    run = _judged(load(path))
    found = _diagnosis(run, config, model, data)
    if as_json:
        print_json(_diagnosis_as_json(found, path))
    else:
        print_wrapped(str(found))
        if config is None and model is None and run.kind == "sampled":
            written = None if _of_chains(path) or not jobs.is_trusted(path) else jobs.origin(path)
            how = (
                f"--config {shlex.quote(str(written))}" if written is not None else "--model MODULE:OBJECT --data PATH"
            )
            again = f"scirocco diagnose {shlex.quote(str(path))} {how}"
            say(f"\nFull diagnosis, with model and data: {again}")
    if not found.ok:
        raise typer.Exit(1)


def _diagnosis(run: Run, config: Path | None, model: str | None, data: Path | None) -> Diagnosis:
    """Diagnose from the draws alone, or with the model and data from a file or from the options."""
    from scirocco import jobs
    from scirocco.analysis import diagnose as diagnosis_of

    if config is not None and (model is not None or data is not None):
        raise InvalidValueError("give --config, or --model and --data, not both.")
    if (model is None) != (data is None):
        raise InvalidValueError("--model and --data require each other: the full diagnosis needs both.")
    if config is not None:
        job: Any = jobs.read_job(config)
        return diagnosis_of(run, job.model, job.data)
    if model is not None and data is not None:
        return diagnosis_of(run, jobs.find(model, Path.cwd()), jobs.read_data(data))
    return diagnosis_of(run)


def _of_chains(path: Path) -> bool:
    return not (path / "scirocco").is_dir()


def _judged(run: Run) -> Run:
    """A model with its own loop is diagnosed by quantities that do not depend on the order of its components."""
    from scirocco.report.overview import view_of

    view = view_of(run)
    return view.run if run.kind == "sampled" else view.to_judge


def _diagnosis_as_json(found: Diagnosis, path: Path) -> dict[str, Any]:
    return {
        "run": str(path),
        "ok": found.ok,
        "verdict": found.verdict,
        "findings": [
            {"name": f.name, "words": f.words, "evidence": f.evidence, "advice": f.advice} for f in found.findings
        ],
        "measures": found.measures,
        "not_measured": found.missing,
    }


def report(
    path: Annotated[Path, RUN],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.html", help="RUN.html next to the run by default.")
    ] = None,
    config: Annotated[Path | None, _CONFIG] = None,
    documents: Annotated[
        Path | None,
        typer.Option(
            "--documents",
            metavar="CORPUS",
            help="For topics: documents in which to measure their prevalence; texts are quoted.",
        ),
    ] = None,
    column: Annotated[
        str | None, typer.Option("--column", metavar="NAME", help="The column of --documents that has the texts.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="NAME", help="A column of --documents (date, source): shares of topics by it."),
    ] = None,
    encoding: Annotated[str, typer.Option("--encoding", metavar="NAME", help="Encoding of --documents.")] = "utf-8",
    open_it: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Write a report on a run as one self-contained HTML file: settings, diagnosis, plots, topics or clusters.

    Example: scirocco report run --out run.html
    """
    import webbrowser

    from scirocco.report import write
    from scirocco.run import load
    from scirocco.store import open_stored

    where = out if out is not None else path.resolve().with_name(f"{path.resolve().name}.html")
    if where.suffix not in (".html", ".htm"):
        raise InvalidValueError(f"--out {where} must end in .html.")
    if not path.exists():
        raise InvalidValueError(f"{path} does not exist.")
    if not _of_chains(path):
        open_stored(path)  # reports a damaged run before any work is done
    full = None if config is None else _diagnosis(load(path), config, None, None)
    if documents is None and (column is not None or by is not None):
        raise InvalidValueError("--column and --by require --documents.")
    written = write(
        path, where, documents=documents, column=column, groups=by, encoding=encoding, diagnosis=full
    ).resolve()
    if as_json:
        print_json({"run": str(path), "path": str(written), "uri": written.as_uri()})
    else:
        say(f"the report is in {written}")
    if open_it:
        webbrowser.open(written.as_uri())
    elif not as_json:
        say(f"open it with: python -m webbrowser -t {written.as_uri()}")
