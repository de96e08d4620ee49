"""Draws as columns: one named column for each number in a draw, from arrays in memory or on disk."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from scirocco._adjustable import Adjustable
from scirocco.diagnostics.measures import Array, Places


@dataclass
class ColumnSizes(Adjustable):
    """How draws are read."""

    read: int = 4_000_000
    """The most numbers read at once."""
    held: int = 1 << 25
    """The most numbers in a part of `parts`."""


COLUMNS = ColumnSizes()


class Leaf(Protocol):
    """Draws (chain, draw, ...): an array, or one that is read from disk when it is indexed."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(chain, draw, ...)."""

    def __getitem__(self, index: Any, /) -> Any: ...


@dataclass(frozen=True, eq=False)
class Columns:
    """Draws by name as one array (chain, draw, column) in double precision; nothing is read before `values` is.

    Attributes
    ----------
    leaves
        Draws (chain, draw, ...) by name, as `run.named_draws()` gives them.
    places
        The included columns, in increasing order, counted over all leaves; None: all of them.
    first, stride
        The first included draw, and the step between included draws.
    """

    leaves: Mapping[str, Leaf]
    places: Places | None = None
    first: int = 0
    stride: int = 1

    @property
    def total(self) -> int:
        """The total number of columns, included or not."""
        return sum(_size(leaf) for leaf in self.leaves.values())

    @property
    def num_chains(self) -> int:
        """Chains."""
        return next(iter(self.leaves.values())).shape[0]

    @property
    def num_draws(self) -> int:
        """Included draws per chain."""
        return len(range(self.first, next(iter(self.leaves.values())).shape[1], self.stride))

    @cached_property
    def names(self) -> list[str]:
        """`beta[3]` for each column."""
        return [label(name, leaf.shape[2:], int(k)) for name, leaf, here in self._chosen() for k in here]

    @cached_property
    def values(self) -> Array:
        """Draws (chain, draw, column), read in blocks, as leaves may be larger than memory."""
        out = np.empty((self.num_chains, self.num_draws, self._count))
        start = 0
        for _, leaf, here in self._chosen():
            _read(leaf, here, self.first, self.stride, out[:, :, start : start + len(here)])
            start += len(here)
        return out

    def parts(self) -> Iterator[Columns]:
        """The included columns, in parts that fit into memory."""
        number = max(1, COLUMNS.held // max(1, self.num_chains * self.num_draws))
        places = np.arange(self.total) if self.places is None else self.places
        for start in range(0, max(1, len(places)), number):
            yield self.select(places[start : start + number])

    def select(self, places: Places) -> Columns:
        """Only these columns, counted over all leaves."""
        return replace(self, places=places)

    def spread(self, most: int) -> Columns:
        """At most so many columns, spread evenly over all."""
        return self.select(spread_evenly(self.total, most))

    def thinned(self, stride: int) -> Columns:
        """One of every `stride` draws."""
        return replace(self, stride=stride)

    def last(self, most: int) -> Columns:
        """At most so many draws, the last ones."""
        return replace(self, first=max(0, next(iter(self.leaves.values())).shape[1] - most))

    @property
    def _count(self) -> int:
        return self.total if self.places is None else len(self.places)

    def _chosen(self) -> Iterator[tuple[str, Leaf, Places]]:
        """The included columns of every leaf, counted within it."""
        start = 0
        for name, leaf in self.leaves.items():
            stop = start + _size(leaf)
            here = np.arange(stop - start)
            if self.places is not None:
                here = self.places[(self.places >= start) & (self.places < stop)] - start
            if len(here):
                yield name, leaf, here
            start = stop


def label(name: str, shape: tuple[int, ...], place: int) -> str:
    """`beta[3]`: the name of one number of an array."""
    if not shape:
        return name
    return f"{name}[{', '.join(str(int(k)) for k in np.unravel_index(place, shape))}]"


def spread_evenly(total: int, most: int) -> Places:
    """At most `most` of `total` places, spread evenly."""
    return np.unique(np.linspace(0, total - 1, min(total, most)).round().astype(np.int64))


def _size(leaf: Leaf) -> int:
    return math.prod(leaf.shape[2:])


def _read(leaf: Leaf, here: Places, first: int, stride: int, out: Array) -> None:
    size = _size(leaf)
    block = max(1, COLUMNS.read // (size * leaf.shape[0]) // stride) * stride
    done = 0
    for start in range(first, leaf.shape[1], block):
        some = np.asarray(leaf[:, start : start + block : stride])
        some = some.reshape(*some.shape[:2], size)
        out[:, done : done + some.shape[1]] = some if len(here) == size else some[:, :, here]
        done += some.shape[1]
