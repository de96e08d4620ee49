"""Stored arrays of several runs, seen as one along the axis of the chains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scirocco.errors import StoreError
from scirocco.store.lazy import LazyArray
from scirocco.store.stored import StoredArray, full_index


class JoinedArray(LazyArray):
    """The draws of one variable in several runs, axes (chain, draw, ...), read when they are asked for.

    Where the runs have different numbers of draws, those that all have. Indexed as `StoredArray` is.
    """

    def __init__(self, parts: Sequence[StoredArray]):
        if len({part.shape[2:] for part in parts}) != 1:
            raise StoreError(f"{parts[0].name!r} has different shapes in the runs that are to be joined.")
        self._parts = tuple(parts)
        chains, draws = sum(part.shape[0] for part in parts), min(part.shape[1] for part in parts)
        self.shape = (chains, draws, *parts[0].shape[2:])
        self.dtype = parts[0].dtype

    def __repr__(self) -> str:
        return f"JoinedArray(shape={self.shape}, dtype={self.dtype}, of {len(self._parts)} runs)"

    def __getitem__(self, index: Any) -> Any:
        chain, draw, *rest = full_index(index, self.shape)
        if isinstance(draw, slice):
            draw = _within(draw, self.shape[1])
        if not isinstance(chain, slice):
            part, number = self._places()[chain]
            return part[(number, draw, *rest)]
        chosen = self._places()[chain]
        if not chosen:
            return self._parts[0][(slice(0, 0), draw, *rest)]
        return np.stack([part[(number, draw, *rest)] for part, number in chosen])

    def _places(self) -> list[tuple[StoredArray, int]]:
        """For each chain the array it is in, and its number there."""
        return [(part, number) for part in self._parts for number in range(part.shape[0])]


def _within(part: slice, length: int) -> slice:
    """The same draws of an array that may have more of them than `length`."""
    chosen = range(length)[part]
    if not chosen:
        return slice(0, 0)
    return slice(chosen.start, chosen.stop if chosen.stop >= 0 else None, chosen.step)
