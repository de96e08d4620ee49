"""Commands for Dirichlet-process mixtures: fit, show, predict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

from scirocco.cli import _common
from scirocco.cli._common import names_of, say, typer, width
from scirocco.cli._models import (
    Fitting,
    Opened,
    PredictedTable,
    Shown,
    chosen,
    fit_command,
    predict_command,
    show_command,
)
from scirocco.errors import InvalidValueError
from scirocco_latent.commands.topics_tables import flow

if TYPE_CHECKING:
    from scirocco.models import DPMixture


class Wanted(NamedTuple):
    """What to read, and how."""

    path: Path
    columns: str | None
    vocabulary: Path | None
    base: str


class TableRows(NamedTuple):
    """A table or a matrix of counts; `names` are the words of the counts."""

    X: Any
    names: tuple[str, ...] | None
    base: str
    notes: tuple[str, ...] = ()


def read(wanted: Wanted, names: Sequence[str] | None = None) -> TableRows:
    """A table (real numbers by default) or a corpus (counts); `names` are the words of an earlier fit."""
    path = wanted.path.expanduser()
    if not path.exists():
        raise InvalidValueError(f"there is no file or folder {path}.")
    if not _has_columns(path):
        if wanted.columns is not None:
            raise InvalidValueError(f"--columns requires a table, but {path} is a corpus.")
        return _corpus(path, wanted, names)
    if wanted.vocabulary is not None:
        raise InvalidValueError("--vocabulary requires a corpus; the columns of a table have their own names.")
    from scirocco.models.inputs.files import read_table

    table = read_table(path, names_of(wanted.columns), folders=True)
    return TableRows(table, None, "gaussian" if wanted.base == "auto" else wanted.base)


def _has_columns(path: Path) -> bool:
    from scirocco.data.formats.conversion import is_table
    from scirocco.data.formats.readers import is_sparse
    from scirocco.data.native.header import is_data_folder, read_header

    if is_data_folder(path):
        return read_header(path).kind == "rows"
    if path.suffix == ".npz":
        return not is_sparse(path)
    return is_table(path) or path.suffix in (".zarr", ".npy")


def _corpus(path: Path, wanted: Wanted, names: Sequence[str] | None) -> TableRows:
    from scipy import sparse

    from scirocco_latent.lda.texts import open_corpus

    if wanted.base == "gaussian":
        raise InvalidValueError(f"{path} contains word counts, which require --base multinomial.")
    corpus = open_corpus(path, wanted.vocabulary if wanted.vocabulary is not None else names).corpus
    indptr, indices, counts = corpus.take_csr(np.arange(corpus.num_documents))
    shape = (corpus.num_documents, corpus.vocabulary_size)
    return TableRows(
        sparse.csr_array((counts, indices, indptr), shape=shape), corpus.vocabulary, "multinomial", corpus.notes
    )


# -- the command


_BASES = ("auto", "multinomial", "gaussian")
"""Values of --base."""
_NUMBERS = 34
"""Width in characters of the columns before what is typical of a cluster."""

cluster_app = typer.Typer(
    help="Dirichlet-process mixtures: clustering that infers the number of clusters.\n\n"
    "Example: scirocco cluster fit flowers.csv --out flowers-run"
)
_DATA = typer.Argument(
    help="A table (CSV, Parquet, Arrow, .npy, .npz, a data folder), or a corpus (docword, .mtx, sparse .npz, text).",
    metavar="DATA",
    show_default=False,
)
_COLUMNS = typer.Option("--columns", metavar="NAMES", help="Columns of a table: age,income or 'x_*'. All by default.")


@fit_command(cluster_app)
def fit(
    fitting: Fitting,
    data: Annotated[Path, _DATA],
    base: Annotated[
        str, typer.Option("--base", help="multinomial (counts), gaussian, or auto: depends on DATA.")
    ] = "auto",
    columns: Annotated[str | None, _COLUMNS] = None,
    vocabulary: Annotated[Path | None, _common.VOCABULARY] = None,
    sampler: Annotated[
        str | None, typer.Option("--sampler", metavar="NAME", help="collapsed (default), gibbs, scir, ...")
    ] = None,
) -> None:
    """Fit a mixture and store its draws in the folder RUN as it runs, so that they survive Ctrl-C or a crash.

    Example: scirocco cluster fit flowers.csv --columns 'petal_*' --out flowers-run
    """
    fitting.check(data)
    from scirocco._checks import choice
    from scirocco.models import DPMixture
    from scirocco_latent.commands.cluster import Wanted, read

    choice(base, "base", _BASES)
    rows = read(Wanted(data, columns, vocabulary, base))
    model = DPMixture(rows.base, **fitting.settings, **chosen(sampler=sampler))
    for note in (f"{rows.X.shape[0]:,} rows, {rows.X.shape[1]:,} columns, base {rows.base}", *rows.notes):
        fitting.say(note)
    fitting.run(model, rows.X, names=rows.names)


@show_command(cluster_app, "cluster")
def shown(
    opened: Opened,
    most: Annotated[int, typer.Option("--clusters", min=1, help="Clusters to show, the largest first.")] = 20,
    words: Annotated[int, typer.Option("--words", min=1, help="Categories or columns to show per cluster.")] = 8,
    vocabulary: Annotated[Path | None, _common.VOCABULARY] = None,
) -> Shown:
    """Show the clusters of a run, largest first: weights with credible intervals, and what is typical of each.

    You can use it while the run is being fitted.

    Example: scirocco cluster show flowers-run --json
    """
    from scirocco_latent.lda.readers import read_vocabulary

    model = opened.model
    names = model.column_names(None if vocabulary is None else read_vocabulary(vocabulary)[0])
    found = _profiles(model, names, words, opened.interval)
    low, high = model.num_clusters(opened.interval)
    values = {
        "num_clusters": {"low": low, "high": high},
        "concentration": model.concentration_,
        "clusters": [
            cluster._asdict() | {"typical": [item._asdict() for item in cluster.typical]} for cluster in found
        ],
    }
    return Shown(opened.values() | values, lambda: _print_clusters(opened, found[:most], len(found)))


@predict_command(cluster_app, "cluster")
def predicted(
    opened: Opened, data: Annotated[Path, _DATA], columns: Annotated[str | None, _COLUMNS] = None
) -> PredictedTable:
    """Write the most probable cluster of every row, and its probability.

    Example: scirocco cluster predict flowers-run flowers.csv --out labels.csv
    """
    import pandas

    from scirocco_latent.commands.cluster import Wanted, read

    known = vars(opened.model).get("feature_names_in_")
    rows = read(Wanted(data, columns, None, "auto"), None if known is None else tuple(known))
    chances = opened.model.predict_proba(rows.X)
    labels = chances.argmax(axis=1)
    table = pandas.DataFrame(
        {"row": np.arange(len(labels)), "cluster": labels, "probability": [f"{p:.4g}" for p in chances.max(axis=1)]}
    )
    sizes = {int(label): int((labels == label).sum()) for label in np.unique(labels)}
    values = {"num_rows": len(labels), "rows_of_cluster": sizes}
    return PredictedTable(table, values, f"{len(labels):,} rows in {len(sizes)} clusters")


# -- clusters on the terminal ------------------------------------------------------------------------------------------


class Typical(NamedTuple):
    """A column or category of a cluster: its value there, and what makes it typical."""

    name: str
    value: float
    """The probability of the category; for real-valued rows the mean."""
    lift: float
    """The ratio to the probability in all clusters; for real rows the distance to the overall mean, in its sd."""


class Profile(NamedTuple):
    """A cluster."""

    label: int
    weight: float
    low: float
    high: float
    typical: tuple[Typical, ...]


def _profiles(model: DPMixture, names: Sequence[str], num_typical: int, interval: float) -> list[Profile]:
    """All clusters, largest first."""
    values, lifts = _typical(model)
    out = []
    for label, weight, low, high in model.clusters(interval):
        order = np.argsort(-np.abs(lifts[label]) if _real(model) else -values[label], kind="stable")
        some = [int(k) for k in order[:num_typical] if _real(model) or values[label, k] > 0]
        typical = tuple(Typical(names[k], float(values[label, k]), float(lifts[label, k])) for k in some)
        out.append(Profile(label, weight, low, high, typical))
    return out


def _real(model: DPMixture) -> bool:
    return model.base_ == "gaussian"


def _typical(model: DPMixture) -> tuple[np.ndarray, np.ndarray]:
    """Values (cluster, column), and how far they are from those of all rows together."""
    weights = model.weights_[:, None] / model.weights_.sum()
    if not _real(model):
        share = (weights * model.components_).sum(axis=0)
        return model.components_, model.components_ / np.maximum(share, 1e-300)
    means, inside = model.means_, 1.0 / model.precisions_
    centre = (weights * means).sum(axis=0)
    variance = (weights * (inside + (means - centre) ** 2)).sum(axis=0)
    return means, (means - centre) / np.sqrt(variance)


def _print_clusters(opened: Opened, clusters: Sequence[Profile], total: int) -> None:
    """A line for each cluster."""
    from scirocco._console import print_table

    model, level = opened.model, f"{100 * opened.interval:g} % interval"
    rows = [
        [
            f" {cluster.label} ",
            f" {100 * cluster.weight:.1f} ",
            f" {100 * cluster.low:.1f}–{100 * cluster.high:.1f} ",
            flow([_item(model, item) for item in cluster.typical], width() - _NUMBERS),
        ]
        for cluster in clusters
    ]
    some = f"{len(clusters)} of {total} clusters" if len(clusters) < total else f"{total} clusters"
    what = "mean (distance to the overall mean, in sd)" if _real(model) else "probability in % (times the overall one)"
    print_table(opened.title(some), ["cluster", "weight %", level, what], rows, right=(0, 1, 2))
    low, high = model.num_clusters(opened.interval)
    say(f"clusters with rows: {low} to {high} ({level}); concentration {model.concentration_:.2f}")
    if len(clusters) < total:
        say(f"All clusters: scirocco cluster show {opened.path} --clusters {total}")


def _item(model: DPMixture, item: Typical) -> str:
    if _real(model):
        return f"{item.name} {item.value:.3g} ({item.lift:+.1f})"
    return f"{item.name} {100 * item.value:.1f} (×{item.lift:.1f})"
