"""Clusters on the terminal and as JSON; the names of their columns are stored with the run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from scirocco.cli._common import drawn_so_far, say, width, write_whole
from scirocco.cli.topics_tables import flow
from scirocco.errors import InvalidValueError

if TYPE_CHECKING:
    from scirocco.models import DPMixture

_FILE = Path("scirocco") / "columns.json"
"""The file with the names, in the subfolder that is replaced together with the run."""
_NUMBERS = 34
"""Width in characters of the columns before the words."""


class Opened(NamedTuple):
    """A stored mixture, its progress, and the names of its columns."""

    model: DPMixture
    names: tuple[str, ...] | None
    status: str
    num_chains: int
    num_draws: int


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


def open_mixture(path: Path, vocabulary: Path | None) -> Opened:
    """A mixture in a store, finished or not."""
    from scirocco.models import DPMixture

    model = DPMixture.load(path)
    run = model.run_
    names = _names(path, vocabulary, model.n_features_in_)
    return Opened(model, names, run.status, run.num_chains, run.num_draws)


def _names(path: Path, vocabulary: Path | None, count: int) -> tuple[str, ...] | None:
    if vocabulary is None:
        return kept_names(path)
    try:
        names = tuple(vocabulary.read_text("utf-8").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValueError(f"{vocabulary} cannot be read ({error}).") from error
    if len(names) != count:
        raise InvalidValueError(f"{vocabulary} has {len(names):,} names, the mixture has {count:,} columns.")
    return names


def profiles(opened: Opened, num_typical: int = 6, interval: float = 0.9) -> list[Profile]:
    """All clusters, largest first."""
    model = opened.model
    values, lifts = _typical(model)
    out = []
    for label, weight, low, high in model.clusters(interval):
        order = np.argsort(-np.abs(lifts[label]) if _real(model) else -values[label], kind="stable")
        chosen = [int(k) for k in order[:num_typical] if _real(model) or values[label, k] > 0]
        typical = tuple(
            Typical(_name(opened, k), float(values[label, k]), float(lifts[label, k])) for k in chosen
        )
        out.append(Profile(label, weight, low, high, typical))
    return out


def _real(model: DPMixture) -> bool:
    return model.base_ == "gaussian"


def _name(opened: Opened, column: int) -> str:
    return opened.names[column] if opened.names is not None else f"column {column}"


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


def print_clusters(opened: Opened, shown: Sequence[Profile], total: int, interval: float) -> None:
    """A line for each cluster."""
    from scirocco._console import print_table

    rows = [
        [
            f" {cluster.label} ",
            f" {100 * cluster.weight:.1f} ",
            f" {100 * cluster.low:.1f}–{100 * cluster.high:.1f} ",
            flow([_item(opened, item) for item in cluster.typical], width() - _NUMBERS),
        ]
        for cluster in shown
    ]
    some = f"{len(shown)} of {total} clusters" if len(shown) < total else f"{total} clusters"
    what = (
        "mean (distance to the overall mean, in sd)"
        if _real(opened.model)
        else "probability in % (times the overall one)"
    )
    columns = ["cluster", "weight %", f"{100 * interval:g} % interval", what]
    title = f"{some}, {drawn_so_far(opened.num_chains, opened.num_draws, opened.status)}"
    print_table(title, columns, rows, right=(0, 1, 2))
    low, high = opened.model.num_clusters(interval)
    say(
        f"clusters with rows: {low} to {high} ({100 * interval:g} % interval); concentration "
        f"{opened.model.concentration_:.2f}"
    )


def _item(opened: Opened, item: Typical) -> str:
    if _real(opened.model):
        return f"{item.name} {item.value:.3g} ({item.lift:+.1f})"
    return f"{item.name} {100 * item.value:.1f} (×{item.lift:.1f})"


def as_json(path: Path, opened: Opened, found: Sequence[Profile], interval: float) -> dict[str, Any]:
    """The clusters as plain values."""
    low, high = opened.model.num_clusters(interval)
    return {
        "run": str(path),
        "status": opened.status,
        "num_chains": opened.num_chains,
        "num_draws": opened.num_draws,
        "interval": interval,
        "num_clusters": {"low": low, "high": high},
        "concentration": opened.model.concentration_,
        "clusters": [
            cluster._asdict() | {"typical": [item._asdict() for item in cluster.typical]} for cluster in found
        ],
    }


def keep_names(path: Path, names: Sequence[str] | None) -> None:
    """Write the names into a run, if it exists by now."""
    from scirocco.store import holds_run, open_stored

    if names is not None and holds_run(path):
        content = {"of": open_stored(path).created_at, "names": list(names)}
        write_whole(path / _FILE, json.dumps(content, ensure_ascii=False) + "\n")


def kept_names(path: Path) -> tuple[str, ...] | None:
    """The names stored with a run; None if there are none, or if they belong to an earlier run in this folder."""
    from scirocco.store import open_stored

    if not (path / _FILE).exists():
        return None
    try:
        content = json.loads((path / _FILE).read_text("utf-8"))
        names = tuple(str(name) for name in content["names"])
        of = content["of"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidValueError(
            f"{path / _FILE} is damaged ({error}). Delete it: columns are then shown by their numbers."
        ) from error
    return names if of == open_stored(path).created_at else None
