"""A fitted topic model on disk: what a store holds besides draws, `save` and `load`."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import jax
import numpy as np

from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models.lda.settings import Settings
from scirocco.run import encoding
from scirocco.run.sinks import Kept, store_groups
from scirocco.store import Store, StoredArray, open_stored


def document(draws: Any, configuration: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """What a store must hold so that `sc.load` opens it, and what only topic models need."""
    return {
        "configuration": configuration,
        "structure": encoding.structure(draws),
        "report": {},
        "traces": {},
        "reducers": [],
        "reduced": encoding.structure({}),
        "lda": extra,
    }


def save(
    draws: Any,
    stats: dict[str, np.ndarray],
    settings: Settings,
    extra: dict[str, Any],
    path: str | os.PathLike[str],
    overwrite: bool,
) -> None:
    """Draws that were kept in memory, as a store that `load` and `sc.load` open."""
    if isinstance(draws, StoredArray) and os.path.realpath(draws.root) == os.path.realpath(path):
        raise InvalidValueError(f"the model is stored in {path} already, and its draws are read from there.")
    chains, num_draws, num_topics, num_words = draws.shape
    topics = {"topics": jax.ShapeDtypeStruct((num_topics, num_words), np.float32)}
    size = {"num_words": num_words, "dimension": num_topics * num_words, "num_rows": 1, "num_chains": chains}
    configuration = {"model": "LDA", **settings.as_json(), **size}
    counts = {"num_samples": num_draws, "num_burnin": 0, "thin": 1, "seed": 0}
    record = document(topics, configuration | counts, extra)
    progress = {
        "step": num_draws,
        "draws": num_draws,
        "num_samples": num_draws,
        "status": "complete",
        "steps_per_second": 0.0,
        "scores": [],
        "timing": {},
        "diverged": None,
    }
    shapes = {name: jax.ShapeDtypeStruct(value.shape[2:], np.float64) for name, value in stats.items()}
    groups = store_groups(Kept(topics, None, shapes, {}))
    with Store.create(path, groups, chains, record, overwrite=overwrite) as store:
        for number in range(num_draws):
            part = slice(number, number + 1)
            store.append("posterior", {"topics": np.asarray(draws[:, part])})
            if stats:
                store.append("sample_stats", {name: value[:, part] for name, value in stats.items()})
        store.commit({}, progress)


class Loaded(NamedTuple):
    """A stored fit."""

    draws: Any
    """(chain, draw, topic, word), on disk."""
    stats: dict[str, Any]
    extra: dict[str, Any]
    configuration: dict[str, Any]


def load(path: str | os.PathLike[str]) -> Loaded:
    """A stored fit, and what was remembered with it."""
    stored = open_stored(path)
    if "lda" not in stored.record:
        raise InvalidTypeError(f"the run in {path} is not one of a topic model.")
    stats = stored.arrays.get("sample_stats", {})
    return Loaded(
        stored.arrays["posterior"]["topics"], stats, stored.record["lda"], stored.record["configuration"]
    )
