"""What a mesh of devices is used for: some of its axes carry chains, the others rows of the data."""

from __future__ import annotations

import contextlib
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.types import PyTree

CHAIN_AXES = ("chain", "chains")


class Devices(NamedTuple):
    """A mesh, with its axes told apart."""

    mesh: Mesh
    chain_axes: tuple[str, ...]
    row_axes: tuple[str, ...]

    @property
    def num_chain_places(self) -> int:
        """Devices, or groups of them, that have chains of their own."""
        return math.prod(self.mesh.shape[axis] for axis in self.chain_axes)

    @property
    def num_row_places(self) -> int:
        """Devices that share the rows of one chain."""
        return math.prod(self.mesh.shape[axis] for axis in self.row_axes)

    @property
    def many_processes(self) -> bool:
        """Whether other processes (`jax.distributed`) own some of the devices."""
        return any(device.process_index != jax.process_index() for device in self.mesh.devices.flat)

    def in_use(self) -> Any:
        """Context in which these devices are used, also where the user has set another mesh (`jax.set_mesh`)."""
        other = not jax.sharding.get_abstract_mesh().empty
        return jax.set_mesh(self.mesh) if other else contextlib.nullcontext()

    def over_rows(self) -> NamedSharding:
        """First axis over the devices that share the rows."""
        return NamedSharding(self.mesh, PartitionSpec(self.row_axes))

    def everywhere(self) -> NamedSharding:
        """A copy on every device."""
        return NamedSharding(self.mesh, PartitionSpec())

    def replicate(self, tree: PyTree) -> PyTree:
        """The arrays of a tree, a copy on every device; bare numbers are everywhere anyway."""
        return self.put(tree, PartitionSpec())

    def over_chains(self, tree: PyTree) -> PyTree:
        """The arrays of a tree, whose first axis is that of the chains, each chain on its devices."""
        return self.put(tree, PartitionSpec(self.chain_axes))

    def put(self, tree: PyTree, spec: PartitionSpec) -> PyTree:
        """The arrays of a tree where `spec` says; all processes must have the same."""
        sharding = NamedSharding(self.mesh, spec)

        def one(leaf: Any) -> Any:
            if not hasattr(leaf, "shape"):
                return leaf
            return _put_anywhere(leaf, sharding) if self.many_processes else jax.device_put(leaf, sharding)

        return jax.tree.map(one, tree)


def _put_anywhere(leaf: Any, sharding: NamedSharding) -> Any:
    """As `jax.device_put`, which knows only the devices of this process."""
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return leaf
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        words = _put_anywhere(np.asarray(jax.random.key_data(leaf)), sharding)
        return jax.random.wrap_key_data(words, impl=jax.random.key_impl(leaf))
    host = np.asarray(leaf)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])


def as_devices(mesh: Any) -> Devices | None:
    """The mesh that `sc.sample(mesh=...)` was given; axes called "chain" or "chains" carry chains, all others rows.

    Its axes are taken as `AxisType.Auto` whatever they were: users' log likelihoods say nothing of shardings, which
    explicit axes (what `jax.make_mesh` makes) would ask of them.
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
