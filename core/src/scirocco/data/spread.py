"""Rows spread over devices: how each device draws from its own rows, and how sums over all devices are formed.

The rows are shuffled once and cut into R ranges of P = ⌈N/R⌉, one per device; the last ones are padded with rows
of weight 0. A batch of n rows has n/R of each device. Inside a program that runs on all devices at once
(`jax.shard_map`) every device works on its own rows, and one `psum` of the size of the parameters gives the sum.

Effect on the distribution
--------------------------
An estimate is stratified by device: (P/(n/R)) Σ over the rows that each device drew, summed, is unbiased for the sum
over all rows. Strata are random sets of rows, so its variance is that of a batch of n rows in one place, in
expectation over the shuffle; padding adds less than 1/P to the scaled sum of squares. Blocks, and rows with and without
replacement, mean on each device what `scirocco.data.batching` documents for one device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco._tree import pytree_dataclass, static
from scirocco.data.batching import AllRows, Batch, Batching, Blocks, IndependentRows, gather
from scirocco.data.tables import Summand, is_dense
from scirocco.errors import InvalidValueError
from scirocco.types import Array, Data, Key, Params, PyTree, Rows


class Layout(NamedTuple):
    """The place of row number i of the shuffled rows: range i // P, place i % P."""

    num_rows: int
    num_places: int
    """R."""
    tail: int
    """Rows that are repeated at the end of a range, so that a window never wraps around."""

    @property
    def length(self) -> int:
        """P."""
        return -(-self.num_rows // self.num_places)

    @property
    def stretch(self) -> int:
        """Rows held by a device, including the repeated ones."""
        return self.length + self.tail

    @property
    def filled(self) -> bool:
        """Whether there are padding rows, of weight 0."""
        return self.length * self.num_places != self.num_rows

    def numbers(self, place: int, order: np.ndarray) -> np.ndarray:
        """The rows of a range; `order` is the shuffle."""
        own = np.arange(place * self.length, (place + 1) * self.length)
        own = order[np.where(own < self.num_rows, own, 0)]
        return np.concatenate([own, own[: self.tail]])

    def valid(self, place: int) -> np.ndarray:
        """1 for data rows, 0 for padding."""
        own = (np.arange(place * self.length, (place + 1) * self.length) < self.num_rows).astype(np.float32)
        return np.concatenate([own, own[: self.tail]])

    def places(self, index: Array) -> Array:
        """The places of these rows in the concatenated ranges."""
        return index // self.length * self.stretch + index % self.length


class SpreadRows(NamedTuple):
    """The rows of all devices, ranges concatenated; and which are data rows (None: all)."""

    rows: Rows
    valid: Array | None


def local_batching(batching: Batching, num_places: int) -> Batching:
    """The draws of one of `num_places` devices, for a batching over all rows."""
    length = -(-batching.num_rows // num_places)
    if isinstance(batching, AllRows):
        return AllRows(length, length)
    if batching.size % num_places:
        lower = batching.size - batching.size % num_places
        near = f"{lower} or {lower + num_places}" if lower else str(num_places)
        raise InvalidValueError(
            f"a batch of {batching.size} rows cannot be divided equally among {num_places} devices: use a "
            f"batch_size that is a multiple of {num_places}, such as {near}."
        )
    size = batching.size // num_places
    if size > length:
        raise InvalidValueError(
            f"the {batching.num_rows} rows are {length} on each of {num_places} devices, fewer than their part of a "
            f"batch ({size}): use fewer devices or smaller batches."
        )
    if isinstance(batching, Blocks):
        return Blocks(length, size)
    assert isinstance(batching, IndependentRows)
    return IndependentRows(length, size, batching.replace)


@pytree_dataclass
class OwnRows(Batching):
    """Batches of a device's own rows, different on each; only for programs that run on all devices (`shard_map`)."""

    num_rows: int = static()
    """P, the number of rows of this device."""
    size: int = static()
    inner: Batching
    axes: tuple[str, ...] = static()

    @property
    def correction(self) -> float:
        """The factor for one device."""
        return self.inner.correction

    @property
    def epoch(self) -> int:
        """The epoch of one device."""
        return self.inner.epoch

    @property
    def plan_size(self) -> int:
        """The plan size of one device."""
        return self.inner.plan_size

    def plan(self, key: Key, step: Array) -> Any:
        """The plan from the device's own key."""
        return self.inner.plan(jax.random.fold_in(key, jax.lax.axis_index(self.axes)), step)

    def take(self, data: Data, plan: Any) -> Batch:
        """Rows of this device, with a flag for data rows."""
        return self.inner.take(data, plan)


@pytree_dataclass
class AnyRows(Batching):
    """Rows from any device, copied to all: for measurements before a run."""

    num_rows: int = static()
    size: int = static()
    layout: Layout = static()

    whole = False

    @property
    def correction(self) -> float:
        """Finite-population factor."""
        return 1.0 - self.size / self.num_rows

    @property
    def plan_size(self) -> int:
        """One number per row."""
        return self.size

    def plan(self, key: Key, step: Array) -> Array:
        """Row numbers."""
        return IndependentRows(self.num_rows, self.size, replace=False).plan(key, step)

    def take(self, data: SpreadRows, plan: Array) -> Batch:
        """A gather across devices."""
        rows = gather(data.rows, self.layout.places(plan))
        return Batch(rows, plan, None, self.num_rows / self.size, self.correction, self.num_rows)


@dataclass(frozen=True)
class OwnSum:
    """A summand over a device's own rows, some of which may be padding."""

    summand: Summand
    axes: tuple[str, ...]

    @property
    def dense(self) -> bool:
        """Whether the summand is dense."""
        return is_dense(self.summand)

    def _own(self, key: Key | None) -> Key | None:
        return None if key is None else jax.random.fold_in(key, jax.lax.axis_index(self.axes))

    def total(self, position: Params, rows: SpreadRows, weights: Array | None = None, key: Key | None = None) -> PyTree:
        """Σ_i w_i f(θ, x_i) over the data rows of this device."""
        if rows.valid is not None:
            weights = rows.valid if weights is None else weights * rows.valid
        return self.summand.total(position, rows.rows, weights, self._own(key))

    def each(self, position: Params, rows: SpreadRows, key: Key | None = None) -> PyTree:
        """f(θ, x_i) for each row of this device, 0 for padding."""
        values = self.summand.each(position, rows.rows, self._own(key))
        valid = rows.valid
        if valid is None:
            return values
        return jax.tree.map(
            lambda v: jnp.where(valid.reshape(-1, *[1] * (v.ndim - 1)) > 0, v, jnp.zeros((), v.dtype)), values
        )


class SumOverDevices(OwnSum):
    """The same over the rows of all devices: every device gets the sum."""

    @property
    def here(self) -> OwnSum:
        """The part of this device."""
        return OwnSum(self.summand, self.axes)

    def across(self, total: PyTree) -> PyTree:
        """The sum of the parts."""
        return jax.lax.psum(total, self.axes)

    def total(self, position: Params, rows: SpreadRows, weights: Array | None = None, key: Key | None = None) -> PyTree:
        """Σ_i w_i f(θ, x_i) over the rows of the devices."""
        return self.across(super().total(position, rows, weights, key))

    def each(self, position: Params, rows: SpreadRows, key: Key | None = None) -> PyTree:
        """f(θ, x_i) for each row of all devices."""
        values = super().each(position, rows, key)
        return jax.tree.map(lambda v: jax.lax.all_gather(v, self.axes, tiled=True), values)
