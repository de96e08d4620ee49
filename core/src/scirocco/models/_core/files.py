"""A fitted model on disk: its run, and a note with its settings and what its results need."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.run import encoding, loading, records
from scirocco.run.encoding import decode, encode
from scirocco.run.records import Record
from scirocco.run.result import Run
from scirocco.store import Store, open_stored

Path = str | os.PathLike[str]
_NOTE = "sc.models."
"""Prefix of the key of the note, before the name of the model."""


class Saved(NamedTuple):
    """A model in a folder."""

    settings: dict[str, Any]
    """Arguments of the constructor, without code."""
    told: dict[str, Any]
    arrays: dict[str, np.ndarray]
    run: Run


def note(
    name: str, settings: Mapping[str, Any], told: Mapping[str, Any], values: Sequence[type] = ()
) -> dict[str, str]:
    """The note of a model: arguments of its constructor, which may be of the classes `values`, and its JSON."""
    plain = {key: _plain(value) for key, value in settings.items() if type(value) not in values}
    written = dict(encode(plain)["dict"])
    for key, value in settings.items():
        if type(value) in values:
            parts = dict(vars(value)) if dataclasses.is_dataclass(value) else value._asdict()
            written[key] = {"value": type(value).__name__, "parts": dict(encode(parts)["dict"])}
    return {_NOTE + name: json.dumps({"settings": written, "told": told})}


def model_in(record: Record) -> str | None:
    """The name of the model in a record; None for runs of other models."""
    names = (key.removeprefix(_NOTE) for key in record.notes or () if key.startswith(_NOTE))
    return next(names, None)


def read(name: str, words: str, path: Path, values: Sequence[type] = ()) -> Saved:
    """Open the folder of a model: one that was saved, or the store of a fit, finished or not.

    `values` are the classes that its arguments may have.
    """
    stored = open_stored(path)
    with records.understood(stored.path):
        record, progress = records.read(stored)
        if model_in(record) != name:
            raise InvalidTypeError(f"the run in {path} is not one of {words}.")
        if not progress.draws:
            raise InvalidValueError(
                f"the run in {path} has no draws yet ({progress.status} in its burn-in after {progress.step:,} steps): "
                "try again later, or resume it."
            )
        noted = json.loads((record.notes or {})[_NOTE + name])
        settings = {key: _read(value, key, values) for key, value in noted["settings"].items() if not _is_code(value)}
        return Saved(settings, noted["told"], encoding.fitted_in(stored.read_state()), loading.load(path))


def save(run: Run, note: dict[str, str], arrays: Mapping[str, np.ndarray], path: Path, overwrite: bool) -> None:
    """Save the run of a model with its note and arrays."""
    if run.path is not None and os.path.realpath(run.path) == os.path.realpath(path):
        raise InvalidValueError(
            f"the model is already stored in {path}, and its draws are read from there: nothing is left to save. "
            "Choose another folder for a copy."
        )
    loading.save(run, path, overwrite, notes=note, fitted=arrays)


def has_arrays(path: Path) -> bool:
    """Whether a store has arrays that its model needs: those of its last draw, because a resumed run starts without."""
    return bool(encoding.fitted_in(open_stored(path).read_state()))


def add_arrays(run: Run, arrays: Mapping[str, np.ndarray]) -> None:
    """Add arrays that the model needs to the store of its run."""
    if run.path is not None and arrays:
        with Store.open(run.path) as store:
            store.commit(store.read_state() | encoding.save_fitted(arrays), store.progress)


def _plain(value: Any) -> Any:
    """An array of one number as that number, one of strings as a list."""
    if isinstance(value, (np.generic, np.ndarray, jax.Array)) and not value.shape:
        return value.item()
    return value.tolist() if isinstance(value, np.ndarray) and value.dtype.kind in "OUS" else value


def _is_code(written: Any) -> bool:
    """Whether a value contains something that was not written, or a class of the user: it is left at its default."""
    text = json.dumps(written)
    return '"unknown":' in text or '"module":' in text


def _read(written: Any, name: str, values: Sequence[type]) -> Any:
    if isinstance(written, dict) and "value" in written:
        kind = {kind.__name__: kind for kind in values}[written["value"]]
        return kind(**{key: decode(part, key) for key, part in written["parts"].items()})
    value = decode(written, name)
    return value.tolist() if isinstance(value, np.ndarray) else value
