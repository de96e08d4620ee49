"""Commands for Dirichlet-process mixtures: fit, show, predict."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from scirocco.cli import _common, clusters_tables
from scirocco.cli._common import JSON, print_json, say, typer, write_whole
from scirocco.cli._exit import INTERRUPTED, ending_with_its_draws
from scirocco.errors import InvalidValueError

_TABLES = (".csv", ".parquet", ".arrow", ".feather", ".zarr", ".npy")
_BASES = ("auto", "multinomial", "gaussian")

cluster_app = typer.Typer(
    help="Dirichlet-process mixtures: clustering that infers the number of clusters.\n\n"
    "Example: scirocco cluster fit flowers.csv --out flowers-run",
)

_RUN = typer.Argument(help="The folder of a fitted mixture.", metavar="RUN", show_default=False)
_DATA = typer.Argument(
    help="A table (CSV, Parquet, Arrow, .npy, .npz, a data folder), or a corpus (docword, .mtx, sparse .npz, text).",
    metavar="DATA",
    show_default=False,
)
_COLUMNS = typer.Option(
    "--columns", metavar="NAMES", help="Columns of a table: age,income or 'x_*'. All by default."
)


@cluster_app.command("fit")
def cluster_fit(
    data: Annotated[Path, _DATA],
    out: Annotated[
        Path, typer.Option("--out", metavar="RUN", help="Folder for the run.", show_default=False)
    ],
    base: Annotated[
        str, typer.Option("--base", help="multinomial (counts), gaussian, or auto: depends on DATA.")
    ] = "auto",
    columns: Annotated[str | None, _COLUMNS] = None,
    vocabulary: Annotated[Path | None, _common.VOCABULARY] = None,
    sampler: Annotated[
        str | None, typer.Option("--sampler", metavar="NAME", help="collapsed (default), gibbs, scir, ...")
    ] = None,
    epochs: Annotated[
        float | None, typer.Option("--epochs", help="Length of the run in passes over the rows.")
    ] = None,
    steps: Annotated[int | None, _common.STEPS] = None,
    seconds: Annotated[float | None, _common.SECONDS] = None,
    chains: Annotated[int, typer.Option("--chains", min=1, help="Independent chains.")] = 4,
    draws: Annotated[int | None, _common.DRAWS] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", min=1, help="Rows per step.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Random seed of the chains.")] = 0,
    threads: Annotated[int | None, _common.THREADS] = None,
    resume: Annotated[bool, _common.RESUME] = False,
    overwrite: Annotated[bool, _common.OVERWRITE] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Fit a mixture and store its draws in the folder RUN as it runs, so that they survive Ctrl-C or a crash.

    Example: scirocco cluster fit flowers.csv --columns 'petal_*' --out flowers-run
    """
    options = {
        "sampler": sampler,
        "num_chains": chains,
        "num_samples": draws,
        "batch_size": batch_size,
        "num_threads": threads,
        "seed": seed,
    }
    given = {name: value for name, value in options.items() if value is not None}
    length = _common.Length(steps, epochs, seconds)
    wanted = Wanted(data, columns, vocabulary, base)
    _fit(wanted, out, given, length, resume=resume, overwrite=overwrite, as_json=as_json)


@cluster_app.command("show")
def cluster_show(
    run: Annotated[Path, _RUN],
    most: Annotated[int, typer.Option("--clusters", min=1, help="Clusters to show, the largest first.")] = 20,
    words: Annotated[
        int, typer.Option("--words", min=1, help="Categories or columns to show per cluster.")
    ] = 8,
    interval: Annotated[float, _common.INTERVAL] = 0.9,
    vocabulary: Annotated[Path | None, _common.VOCABULARY] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Show the clusters of a run, largest first: weights with credible intervals, and what is typical of each.

    You can use it while the run is being fitted.

    Example: scirocco cluster show flowers-run --json
    """
    opened = clusters_tables.open_mixture(run, vocabulary)
    interval = opened.model._level(interval)
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
        Path,
        typer.Option(
            "--out", metavar="FILE.csv", help="File to write; one line per row.", show_default=False
        ),
    ],
    columns: Annotated[str | None, _COLUMNS] = None,
    overwrite: Annotated[bool, _common.REPLACE] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Write the most probable cluster of every row, and its probability.

    Example: scirocco cluster predict flowers-run flowers.csv --out labels.csv
    """
    _common.check_target(out, (".csv",), overwrite)
    opened = clusters_tables.open_mixture(run, None)
    rows = read(Wanted(data, columns, None, "auto"), opened.names)
    chances = opened.model.predict_proba(rows.X)
    labels = chances.argmax(axis=1)
    lines = [f"{n},{label},{chances[n, label]:.4g}" for n, label in enumerate(labels)]
    write_whole(out, "\n".join(["row,cluster,probability", *lines]) + "\n")
    sizes = {int(label): int((labels == label).sum()) for label in np.unique(labels)}
    if as_json:
        print_json({"run": str(run), "path": str(out), "num_rows": len(labels), "rows_of_cluster": sizes})
    else:
        say(f"{len(labels):,} rows in {len(sizes)} clusters: {out}")


# -- fitting -----------------------------------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """What to read, and how."""

    path: Path
    columns: str | None
    vocabulary: Path | None
    base: str


class Rows(NamedTuple):
    """A table or a matrix of counts; `names` are the names of its columns."""

    X: Any
    names: tuple[str, ...] | None
    base: str
    notes: tuple[str, ...] = ()


def _fit(
    wanted: Wanted,
    out: Path,
    options: dict[str, Any],
    length: _common.Length,
    *,
    resume: bool,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Fit, then show the clusters."""
    from scirocco._checks import choice
    from scirocco.models import DPMixture

    choice(wanted.base, "base", _BASES)
    _common.check_fit(out, length, resume, overwrite)
    rows = read(wanted)
    model = DPMixture(rows.base, **options)
    if not as_json:
        for note in (f"{rows.X.shape[0]:,} rows, {rows.X.shape[1]:,} columns, base {rows.base}", *rows.notes):
            say(note, flush=True)
    try:
        with ending_with_its_draws():
            model.fit(rows.X, **length._asdict(), store=out, resume=resume, overwrite=overwrite)
        interrupted = model.run_.status == "interrupted"
    except (KeyboardInterrupt, InvalidValueError):
        if not _common.interrupted_early(out):
            raise
        interrupted = True
    finally:
        clusters_tables.keep_names(out, rows.names)
    if interrupted:
        say(_common.how_to_resume(out), file=sys.stderr if as_json else sys.stdout)
        raise typer.Exit(INTERRUPTED)
    opened = clusters_tables.open_mixture(out, None)
    interval = opened.model._level(0.9)
    found = clusters_tables.profiles(opened, interval=interval)
    if as_json:
        print_json(clusters_tables.as_json(out, opened, found, interval))
        return
    clusters_tables.print_clusters(opened, found[:20], len(found), interval)
    say(f"All clusters: scirocco cluster show {out} --clusters {len(found)}")


def read(wanted: Wanted, names: tuple[str, ...] | None = None) -> Rows:
    """A table (real numbers by default) or a corpus (counts); `names` are the words of an earlier fit."""
    path = wanted.path.expanduser()
    if not path.exists():
        raise InvalidValueError(f"there is no file or folder {path}.")
    if _is_table(path):
        if wanted.vocabulary is not None:
            raise InvalidValueError(
                "--vocabulary requires a corpus; the columns of a table have their own names."
            )
        X, found = _table(path, wanted.columns)
        return Rows(X, found, "gaussian" if wanted.base == "auto" else wanted.base)
    if wanted.columns is not None:
        raise InvalidValueError(f"--columns requires a table, but {path} is a corpus.")
    return _corpus(path, wanted, names)


def _is_table(path: Path) -> bool:
    from scirocco.data.formats.readers import is_sparse
    from scirocco.data.native.header import is_data_folder, read_header

    if is_data_folder(path):
        return read_header(path).kind == "rows"
    if path.suffix == ".npz":
        return not is_sparse(path)
    return path.suffix in _TABLES


def _table(path: Path, columns: str | None) -> tuple[Any, tuple[str, ...] | None]:
    from scirocco import data
    from scirocco.data.native.header import is_data_folder

    if is_data_folder(path):
        return _stacked(data.open(path), columns)
    chosen = None if columns is None else {"x": [name.strip() for name in columns.split(",") if name.strip()]}
    with tempfile.TemporaryDirectory() as folder:
        made = data.convert(path, Path(folder) / "rows", columns=chosen, shuffle=False, dtype="float64")
        return _stacked(made, None)


def _stacked(source: Any, columns: str | None) -> tuple[Any, tuple[str, ...]]:
    """All arrays side by side, in memory."""
    wanted = None if columns is None else [name.strip() for name in columns.split(",")]
    rows = source.read(0, source.num_rows)
    arrays = rows if isinstance(rows, dict) else {"x": rows}
    parts: list[Any] = []
    names: list[str] = []
    for name, values in arrays.items():
        if wanted is not None and name not in wanted:
            continue
        part = np.array(values, np.float64).reshape(len(values), -1)  # a copy, as the file may be deleted
        entry = source.header.arrays[name] if isinstance(rows, dict) else None
        own = entry.columns if entry is not None and entry.columns else None
        numbered = [f"{name}[{k}]" for k in range(part.shape[1])] if part.shape[1] > 1 else [name]
        parts.append(part)
        names += list(own) if own is not None and len(own) == part.shape[1] else numbered
    if not parts:
        raise InvalidValueError(
            f"--columns {columns}: {source.path} contains the arrays {', '.join(arrays)}."
        )
    return np.concatenate(parts, axis=1), tuple(names)


def _corpus(path: Path, wanted: Wanted, names: tuple[str, ...] | None) -> Rows:
    from scipy import sparse

    from scirocco.models.lda.texts import open_corpus

    if wanted.base == "gaussian":
        raise InvalidValueError(f"{path} contains word counts, which require --base multinomial.")
    corpus = open_corpus(path, wanted.vocabulary if wanted.vocabulary is not None else names).corpus
    indptr, indices, counts = corpus.take_csr(np.arange(corpus.num_documents))
    shape = (corpus.num_documents, corpus.vocabulary_size)
    return Rows(
        sparse.csr_array((counts, indices, indptr), shape=shape),
        corpus.vocabulary,
        "multinomial",
        corpus.notes,
    )
