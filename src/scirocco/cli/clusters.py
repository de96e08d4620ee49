"""Commands for Dirichlet-process mixtures: fit, show, predict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np

from scirocco.cli import clusters_fit
from scirocco.cli._files import write_whole
from scirocco.cli._typer import JSON, OVERWRITE, RESUME, print_json, typer
from scirocco.errors import InvalidValueError

cluster_app = typer.Typer(
    no_args_is_help=True,
    help="Clusters, as many as the data ask for: Dirichlet-process mixtures with a posterior.\n\n"
    "Example: scirocco cluster fit flowers.csv --out flowers-run",
)

_RUN = typer.Argument(help="The folder of a fitted mixture.", metavar="RUN", show_default=False)
_DATA = typer.Argument(
    help="A table (CSV, Parquet, Arrow, .npy, .npz, a data folder), or a corpus (docword, .mtx, sparse .npz, text).",
    metavar="DATA",
    show_default=False,
)
_COLUMNS = typer.Option("--columns", metavar="NAMES", help="Of a table: age,income or 'x_*'. By default all.")
_LIST = typer.Option("--vocabulary", metavar="FILE", help="The words, one a line, in the order of their ids.")
_INTERVAL = typer.Option("--interval", min=0.01, max=0.999, help="Probability inside the credible intervals.")


@cluster_app.command("fit")
def cluster_fit(
    data: Annotated[Path, _DATA],
    out: Annotated[
        Path, typer.Option("--out", metavar="RUN", help="Folder for the run.", show_default=False)
    ],
    base: Annotated[
        str, typer.Option("--base", help="multinomial (counts), gaussian, or auto: by the kind of DATA.")
    ] = "auto",
    columns: Annotated[str | None, _COLUMNS] = None,
    vocabulary: Annotated[Path | None, _LIST] = None,
    sampler: Annotated[
        str | None, typer.Option("--sampler", metavar="NAME", help="collapsed (default), gibbs, scir, ...")
    ] = None,
    epochs: Annotated[float | None, typer.Option("--epochs", help="Length: passes over the rows.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Length: batches.")] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", help="Length: wall time.")] = None,
    chains: Annotated[int, typer.Option("--chains", min=1, help="Independent chains.")] = 1,
    draws: Annotated[
        int | None, typer.Option("--draws", min=1, help="Posterior draws to keep of each chain.")
    ] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", min=1, help="Rows in a step.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the chains.")] = 0,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Default: all cores.")] = None,
    resume: Annotated[bool, RESUME] = False,
    overwrite: Annotated[bool, OVERWRITE] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Find clusters; draws go to the folder RUN while it runs, so Ctrl-C or a crash loses nothing.

    Example: scirocco cluster fit flowers.csv --columns 'petal_*' --out flowers-run
    """
    options = {
        "sampler": sampler,
        "num_chains": chains,
        "num_draws": draws,
        "batch_size": batch_size,
        "num_threads": threads,
        "seed": seed,
    }
    given = {name: value for name, value in options.items() if value is not None}
    length = {"num_epochs": epochs, "num_steps": steps, "max_seconds": seconds}
    wanted = clusters_fit.Wanted(data, columns, vocabulary, base)
    clusters_fit.run(wanted, out, given, length, resume=resume, overwrite=overwrite, as_json=as_json)


@cluster_app.command("show")
def cluster_show(
    run: Annotated[Path, _RUN],
    most: Annotated[int, typer.Option("--clusters", min=1, help="Clusters to show, the largest first.")] = 20,
    words: Annotated[int, typer.Option("--words", min=1, help="Categories or columns of each.")] = 8,
    interval: Annotated[float, _INTERVAL] = 0.9,
    vocabulary: Annotated[Path | None, _LIST] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """The clusters of a run, the largest first: weights with credible intervals, and what is typical of each.

    Works while the run is being fitted.

    Example: scirocco cluster show flowers-run --json
    """
    from scirocco.cli import clusters_tables

    opened = clusters_tables.open_mixture(run, vocabulary)
    found = clusters_tables.profiles(opened, words, interval)
    if as_json:
        print_json(clusters_tables.as_json(run, opened, found, interval))
    else:
        clusters_tables.print_clusters(opened, found[:most], len(found), interval)


@cluster_app.command("predict")
def cluster_predict(
    run: Annotated[Path, _RUN],
    data: Annotated[Path, _DATA],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE.csv", help="A line for each row.", show_default=False)
    ],
    columns: Annotated[str | None, _COLUMNS] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE.")] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """The most probable cluster of every row, and its probability.

    Example: scirocco cluster predict flowers-run flowers.csv --out labels.csv
    """
    from scirocco.cli import clusters_tables

    if out.suffix != ".csv":
        raise InvalidValueError(f"--out {out} must end in .csv.")
    if out.exists() and not overwrite:
        raise InvalidValueError(
            f"{out} exists already. Add --overwrite to replace it, or choose another name."
        )
    opened = clusters_tables.open_mixture(run, None)
    rows = clusters_fit.read(clusters_fit.Wanted(data, columns, None, "auto"), opened.names)
    chances = opened.model.predict_proba(rows.X)
    labels = chances.argmax(axis=1)
    lines = [f"{n},{label},{chances[n, label]:.4g}" for n, label in enumerate(labels)]
    write_whole(out, "\n".join(["row,cluster,probability", *lines]) + "\n")
    sizes = {int(label): int((labels == label).sum()) for label in np.unique(labels)}
    if as_json:
        print_json({"run": str(run), "path": str(out), "num_rows": len(labels), "rows_of_cluster": sizes})
    else:
        print(f"{len(labels):,} rows in {len(sizes)} clusters: {out}")
