"""A fitted model on disk: the record of a store, `save` and `load`."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models.fits.chains import Spec
from scirocco.run import encoding, records
from scirocco.run.loading import write
from scirocco.run.records import OWN_LOOP, Progress, Record
from scirocco.run.result import Run
from scirocco.run.sinks import Kept
from scirocco.store import Stored, StoredArray, open_stored


class Kind(NamedTuple):
    """Names of a model."""

    name: str
    """Name in records, such as "LDA"."""
    words: str
    """Name in messages, such as "a topic model"."""
    key: str
    """Key of the data of this model in a record, such as "lda"."""

    def refuse(self, path: str | os.PathLike[str]) -> InvalidTypeError:
        """The error for a run in `path` of another model."""
        return InvalidTypeError(f"the run in {path} is not one of {self.words}.")


def make_record(kind: Kind, spec: Spec, configuration: dict[str, Any], extra: dict[str, Any]) -> Record:
    """Contents of the record for `sc.load`, and the data specific to this model."""
    return Record(
        configuration={"kind": OWN_LOOP, "model": kind.name, **configuration},
        structure=encoding.structure(spec.draws),
        fitted={kind.key: extra},
    )


def save(
    kind: Kind,
    draws: dict[str, Any],
    stats: dict[str, np.ndarray],
    configuration: dict[str, Any],
    extra: dict[str, Any],
    path: str | os.PathLike[str],
    overwrite: bool,
    arrays: dict[str, np.ndarray] | None = None,
) -> None:
    """Save draws (chain, draw, ...) from memory as a store for `load` and `sc.load`.

    `configuration` are the settings of the model; `load` returns `extra`, `Stored.read_state` returns `arrays`.
    """
    for drawn in draws.values():
        if isinstance(drawn, StoredArray) and os.path.realpath(drawn.root) == os.path.realpath(path):
            raise InvalidValueError(
                f"the model is already stored in {path}, and its draws are read from there."
            )
    spec = Spec(_shapes(draws), _shapes(stats))
    num_chains, num_draws = next(iter(draws.values())).shape[:2]
    size = {"dimension": spec.dimension, "num_rows": 1, "num_chains": num_chains}
    counts = {"num_samples": num_draws, "num_burnin": 0, "thin": 1, "seed": 0}
    record = make_record(kind, spec, {**size, **counts, **configuration}, extra)
    progress = Progress(num_draws, num_draws, num_draws, "complete")
    write(path, Kept(draws, None, stats, {}), record, progress, arrays or {}, overwrite)


def _shapes(arrays: dict[str, Any]) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and types of one draw of one chain."""
    return {name: jax.ShapeDtypeStruct(array.shape[2:], array.dtype) for name, array in arrays.items()}


class Loaded(NamedTuple):
    """A stored fit."""

    draws: dict[str, Any]
    """(chain, draw, ...), on disk."""
    stats: dict[str, Any]
    extra: dict[str, Any]
    configuration: dict[str, Any]


def load(kind: Kind, path: str | os.PathLike[str]) -> Loaded:
    """Load a stored fit and its data."""
    stored = open_stored(path)
    record = Record.from_json(stored.record)
    if model_in(record) != kind.name:
        raise kind.refuse(path)
    noted = (record.notes or {}).get(_NOTE + kind.name)
    extra = record.fitted[kind.key] if noted is None else json.loads(noted)
    stats = stored.arrays.get("sample_stats", {})
    draws = dict[str, Any](stored.arrays["posterior"])
    return Loaded(draws, dict[str, Any](stats), extra, record.configuration)


_NOTE = "sc.models."


def notes(kind: Kind, extra: dict[str, Any]) -> dict[str, str]:
    """For `sc.sample`: data needed to load the model from the store of its run."""
    return {_NOTE + kind.name: json.dumps(extra)}


def model_in(record: Record) -> str:
    """The name of the model of `sc.models` of a stored run; another text for runs of other models."""
    noted = (name.removeprefix(_NOTE) for name in record.notes or () if name.startswith(_NOTE))
    return next(noted, record.model)


def to_arviz(
    kind: Kind,
    run: Run | None,
    draws: dict[str, Any],
    stats: dict[str, np.ndarray],
    coordinates: Mapping[str, Sequence[Any]] | None = None,
) -> Any:
    """Convert draws (chain, draw, ...) to ArviZ, with the attributes of their run.

    `coordinates`: labels along an axis, by its name, such as `coef_dim_0`.
    """
    if run is None:  # loaded, or fitted incrementally
        run = Run(draws, None, stats, {"model": kind.name, "num_rows": 1}, {}, {}, "complete", [])
    return dataclasses.replace(run, draws=draws, stats=stats).to_arviz(coordinates)


def need_draws(stored: Stored, key: str, leaf: str) -> None:
    """Raise an error for a stored fit that is still in its burn-in; `load` checks the kind of the run."""
    record, progress = records.read(stored)
    if key in record.fitted and not stored.arrays["posterior"][leaf].shape[1]:
        raise InvalidValueError(
            f"the run in {stored.path} has no draws yet: it is in its burn-in ({progress.status}). "
            "Try again later, or resume it (--resume)."
        )
