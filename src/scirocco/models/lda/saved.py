"""A fitted topic model on disk."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from scirocco.models import fits
from scirocco.models.lda.settings import Settings

KIND = fits.Kind("LDA", "a topic model", "lda")


def save(
    draws: Any,
    stats: dict[str, np.ndarray],
    settings: Settings,
    extra: dict[str, Any],
    path: str | os.PathLike[str],
    overwrite: bool,
) -> None:
    """Draws that were kept in memory, as a store that `load` and `sc.load` open."""
    configuration = settings.as_json() | {"num_words": draws.shape[-1]}
    fits.save(KIND, {"topics": draws}, stats, configuration, extra, path, overwrite)


class Loaded(NamedTuple):
    """A stored fit."""

    draws: Any
    """(chain, draw, topic, word), on disk."""
    stats: dict[str, Any]
    extra: dict[str, Any]
    configuration: dict[str, Any]


def load(path: str | os.PathLike[str]) -> Loaded:
    """A stored fit, and what was remembered with it."""
    loaded = fits.load(KIND, path)
    return Loaded(loaded.draws["topics"], *loaded[1:])
