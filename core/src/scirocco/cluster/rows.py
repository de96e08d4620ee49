"""Some rows of a source as a separate source: the shard of a worker."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any

import jax
import numpy as np

from scirocco._random import SeedPurpose
from scirocco.data import fingerprints
from scirocco.data.arrays import ArraySource, RowSource
from scirocco.data.shuffle import shuffled_numbers
from scirocco.errors import InvalidValueError
from scirocco.types import PyTree, Rows


class RowsOf(RowSource):
    """Some rows of another source: the range `start`..`stop - 1`, or as many rows drawn at random.

    Parameters
    ----------
    source
        The source of the rows. A pickle contains its pickle (for a data folder: the path), and numbers.
    start, stop
        The range.
    seed
        None, or the seed of a random order of all rows: this source then has the rows at places `start`..`stop - 1` of
        that order, in the order of the source.

    Examples
    --------
    >>> import numpy as np, scirocco as sc
    >>> from scirocco.cluster.rows import RowsOf
    >>> RowsOf(sc.data.as_source(np.arange(10.0, dtype=np.float32)), 4, 7).read(0, 3)
    array([4., 5., 6.], dtype=float32)
    """

    fills = True

    def __init__(self, source: RowSource, start: int, stop: int, seed: int | None = None):
        self.source, self.start, self.stop, self.seed = source, start, stop, seed
        self.num_rows = stop - start
        self.checked = source.checked
        self.shuffled = seed is None and source.shuffled
        self.scatters = seed is None and source.scatters  # the fast way of a data folder

    def __reduce__(self) -> tuple[Any, ...]:
        return RowsOf, (self.source, self.start, self.stop, self.seed)

    @property
    def row_spec(self) -> PyTree:
        """Shape and dtype of one row."""
        return self.source.row_spec

    @cached_property
    def _numbers(self) -> np.ndarray | None:
        """The row numbers in the source, in ascending order, because disks read forwards faster."""
        if self.seed is None:
            return None
        return np.sort(order(self.source.num_rows, self.seed)[self.start : self.stop])

    def take(self, indices: np.ndarray, out: Rows | None = None) -> Rows:
        """The rows with these numbers (within this source), in this order."""
        indices = np.asarray(indices)
        if indices.size and (indices.min() < 0 or indices.max() >= self.num_rows):
            raise InvalidValueError(f"`indices` must be in 0..{self.num_rows - 1}, got {indices}.")
        where = indices + self.start if self._numbers is None else self._numbers[indices]
        return self._ask(self.source.take, (where,), out)

    def read(self, start: int, stop: int, out: Rows | None = None) -> Rows:
        """The rows start..stop-1 (up to the last one)."""
        stop = min(stop, self.num_rows)
        if self._numbers is None:
            return self._ask(self.source.read, (self.start + start, self.start + stop), out)
        return self._ask(self.source.take, (self._numbers[start:stop],), out)

    def _ask(self, call: Callable[..., Rows], arguments: tuple[Any, ...], out: Rows | None) -> Rows:
        if out is None:
            return call(*arguments)
        if self.source.fills:
            return call(*arguments, out=out)
        for to, values in zip(jax.tree.leaves(out), jax.tree.leaves(call(*arguments)), strict=True):
            np.copyto(to, values, casting="same_kind")
        return out

    def places(self, out: Rows, run: int) -> Any:
        """The places of the source."""
        return self.source.places(out, run)

    def scatter(self, starts: list[int], slots: list[list[int]], run: int, places: Any) -> None:
        """Scatter like the source, starting at the first row of this range."""
        self.source.scatter([self.start + start for start in starts], slots, run, places)

    def fingerprint(self) -> str:
        """The fingerprint of the source, and which of its rows these are."""
        return self._marked(self.source.fingerprint())

    def stamp(self) -> str:
        """The value by which the source notices that its files change."""
        return self._marked(self.source.stamp())

    def _marked(self, mark: str) -> str:
        return fingerprints.shortened(f"{mark} {self.start} {self.stop} {self.seed}".encode())

    def verify(self) -> None:
        """Verify the source."""
        self.source.verify()

    def __repr__(self) -> str:
        return f"RowsOf({self.source!r}, {self.start}, {self.stop}, seed={self.seed})"


@lru_cache(maxsize=1)
def order(num_rows: int, seed: int) -> np.ndarray:
    """All row numbers in a uniformly random order; the same seed gives the same order."""
    return shuffled_numbers(num_rows, seed, SeedPurpose.DEALT_ORDER)


def held(source: RowSource) -> RowSource:
    """The source to sample from in this process: rows in memory become separate arrays."""
    if isinstance(source, RowsOf) and isinstance(source.source, ArraySource):
        return ArraySource(source.read(0, source.num_rows))
    return source
