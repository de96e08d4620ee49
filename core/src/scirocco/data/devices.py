"""A mesh of devices with all rows spread over it: some of its axes are for chains, the others for rows."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from scirocco import _tree
from scirocco._random import SeedPurpose
from scirocco.data.batching import Batching, Blocks
from scirocco.data.shuffle import random_order, shuffled_numbers, uniform_index
from scirocco.data.spread import AnyRows, Layout, OwnRows, SpreadRows, SumOverDevices, local_batching
from scirocco.data.tables import ENDLESS, EachRow, Feed, Segment, Summed, Table, WholeFeed, full_sum
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.types import Array, Key, Params, PyTree, Rows

CHAIN_AXES = ("chain", "chains")


class Devices(NamedTuple):
    """A mesh, with its axes divided into those for chains and those for rows."""

    mesh: Mesh
    chain_axes: tuple[str, ...]
    row_axes: tuple[str, ...]

    @property
    def num_chain_places(self) -> int:
        """The number of devices, or groups of devices, that have separate chains."""
        return math.prod(self.mesh.shape[axis] for axis in self.chain_axes)

    @property
    def num_row_places(self) -> int:
        """The number of devices that share the rows of one chain."""
        return math.prod(self.mesh.shape[axis] for axis in self.row_axes)

    @property
    def many_processes(self) -> bool:
        """Whether other processes (`jax.distributed`) own some of the devices."""
        return any(device.process_index != jax.process_index() for device in self.mesh.devices.flat)

    def in_use(self) -> Any:
        """Context in which these devices are used, even if the user has set another mesh (`jax.set_mesh`)."""
        other = not jax.sharding.get_abstract_mesh().empty
        return jax.set_mesh(self.mesh) if other else contextlib.nullcontext()

    def over_rows(self) -> NamedSharding:
        """First axis over the devices that share the rows."""
        return NamedSharding(self.mesh, PartitionSpec(self.row_axes))

    def everywhere(self) -> NamedSharding:
        """A copy on every device."""
        return NamedSharding(self.mesh, PartitionSpec())

    def replicate(self, tree: PyTree) -> PyTree:
        """The arrays of a tree, copied to every device; bare numbers are unchanged."""
        return self.put(tree, PartitionSpec())

    def over_chains(self, tree: PyTree) -> PyTree:
        """The arrays of a tree whose first axis is that of the chains, each chain on its devices."""
        return self.put(tree, PartitionSpec(self.chain_axes))

    def put(self, tree: PyTree, spec: PartitionSpec) -> PyTree:
        """The arrays of a tree, placed according to `spec`; all processes must have the same arrays."""
        sharding = NamedSharding(self.mesh, spec)

        def one(leaf: Any) -> Any:
            if not _tree.is_array(leaf):
                return leaf
            return _put_anywhere(leaf, sharding) if self.many_processes else jax.device_put(leaf, sharding)

        return jax.tree.map(one, tree)


def _put_anywhere(leaf: Any, sharding: NamedSharding) -> Any:
    """Like `jax.device_put`, which supports only the devices of this process."""
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return leaf
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        words = _put_anywhere(np.asarray(jax.random.key_data(leaf)), sharding)
        return jax.random.wrap_key_data(words, impl=jax.random.key_impl(leaf))
    host = np.asarray(leaf)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])


def as_devices(mesh: Any) -> Devices | None:
    """The mesh in `sc.sample(mesh=...)`; axes called "chain" or "chains" are for chains, all others for rows.

    All its axes are treated as `AxisType.Auto`: explicit axes (as `jax.make_mesh` makes them) would require shardings
    in the users' log likelihoods.
    """
    if mesh is None:
        return None
    if not isinstance(mesh, Mesh):
        raise InvalidTypeError(
            f'`mesh` must be a jax.sharding.Mesh such as jax.make_mesh((4,), ("rows",)), got {mesh!r}.'
        )
    if not mesh.size:
        raise InvalidValueError("`mesh` has no devices.")
    automatic = Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * mesh.devices.ndim)
    chain_axes = tuple(axis for axis in mesh.axis_names if axis in CHAIN_AXES)
    row_axes = tuple(axis for axis in mesh.axis_names if axis not in CHAIN_AXES)
    return Devices(automatic, chain_axes, row_axes)


class Spread(Table):
    """Rows in the memory of several devices, a range on each.

    Sums run on all devices and end in one `psum`. Operations on some rows copy them to all devices.
    """

    streamed = False
    whole = False

    def __init__(self, devices: Devices, data: SpreadRows, batching: AnyRows, own: OwnRows):
        self.devices, self.data, self.batching, self.own = devices, data, batching, own
        self.layout, self.num_rows = batching.layout, batching.num_rows
        self.row_spec = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), data.rows)

    def feed(self, key: Key) -> Feed:
        """Batches gathered from all devices."""
        return WholeFeed(Segment(self.data, self.batching, 0, ENDLESS))

    def sum(self, summand: Summed, position: Params, key: Key | None = None) -> PyTree:
        """Each device sums its rows; then one sum of sums."""
        return _sum(summand, self.devices, self.layout.length, position, self.data, key)

    def each(self, summand: EachRow, position: Params, key: Key | None = None) -> PyTree:
        """Not supported: estimators that keep a value for every row are rejected."""
        raise NotImplementedError("values of single rows are not kept across devices")

    def spread_rows(self, count: int) -> Rows:
        """Every k-th row."""
        index = np.arange(count) * max(1, self.num_rows // count)
        return _rows_at(self.devices, self.layout, self.data.rows, index)

    def random_rows(self, count: int, key: Key, replace: bool = True) -> Rows:
        """A gather across devices."""
        count = min(self.num_rows, count)
        if count == self.num_rows:
            index: Any = jnp.arange(self.num_rows)
        elif replace:
            index = uniform_index(key, (count,), self.num_rows)
        else:
            words = jax.random.bits(key, (2,), jnp.uint32)
            index = random_order(words, jnp.arange(count), self.num_rows)
        return _rows_at(self.devices, self.layout, self.data.rows, np.asarray(index))

    def with_batches_of(self, size: int) -> Table:
        """The same rows in smaller batches."""
        return Spread(self.devices, self.data, AnyRows(self.num_rows, size, self.layout), self.own)


def spread_over(source: Any, batching: Batching, devices: Devices, seed: int) -> Spread:
    """The rows of a source, shuffled and spread over the devices that share rows; each process reads its own."""
    places, num_rows = devices.num_row_places, batching.num_rows
    inner = local_batching(batching, places)
    layout = Layout(num_rows, places, inner.size - 1 if isinstance(inner, Blocks) else 0)
    order = shuffled_numbers(num_rows, seed, SeedPurpose.RESIDENT_ORDER)
    held: dict[int, list[np.ndarray]] = {}

    def stretch(place: int) -> list[np.ndarray]:
        if place not in held:
            rows = source.take(layout.numbers(place, order))
            held[place] = [_canonical(leaf) for leaf in jax.tree.leaves(rows)]
        return held[place]

    leaves, treedef = jax.tree.flatten(source.row_spec)

    def column(number: int) -> Callable[[int], np.ndarray]:
        return lambda place: stretch(place)[number]

    arrays = [_place(devices, layout, spec.shape, column(number)) for number, spec in enumerate(leaves)]
    valid = _place(devices, layout, (), layout.valid) if layout.filled else None
    data = SpreadRows(jax.tree.unflatten(treedef, arrays), valid)
    own = OwnRows(inner.num_rows, inner.size, inner, devices.row_axes)
    return Spread(devices, data, AnyRows(num_rows, batching.size, layout), own)


def _canonical(leaf: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(leaf, jax.dtypes.canonicalize_dtype(leaf.dtype))


def _place(devices: Devices, layout: Layout, shape: tuple[int, ...], stretch: Callable[[int], np.ndarray]) -> jax.Array:
    """An array whose ranges are on their devices; only those of this process are made."""

    def piece(index: Any) -> np.ndarray:
        return stretch((index[0].start or 0) // layout.stretch)

    size = layout.stretch * layout.num_places
    return jax.make_array_from_callback((size, *shape), devices.over_rows(), piece)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _sum(summand: Summed, devices: Devices, length: int, position: Params, data: SpreadRows, key: Key | None) -> PyTree:
    over_rows, same = PartitionSpec(devices.row_axes), PartitionSpec()

    def own(position: Params, data: SpreadRows, key: Key | None) -> PyTree:
        across = SumOverDevices(summand, devices.row_axes)  # type: ignore[arg-type]  # no row is asked for alone
        return full_sum(across, position, data, length, key=key)

    mapped = jax.shard_map(own, mesh=devices.mesh, in_specs=(same, over_rows, same), out_specs=same, check_vma=False)
    return mapped(position, data, key)


def _rows_at(devices: Devices, layout: Layout, rows: Rows, index: np.ndarray) -> Rows:
    places: Any = layout.places(np.asarray(index, np.int32))  # type: ignore[arg-type]
    return _gathered(devices, rows, places)


@partial(jax.jit, static_argnums=0)
def _gathered(devices: Devices, rows: Rows, places: Array) -> Rows:
    def one(leaf: Array) -> Array:
        found = leaf.at[places].get(mode="promise_in_bounds")
        return jax.lax.with_sharding_constraint(found, devices.everywhere())

    return jax.tree.map(one, rows)
