"""Chains on a mesh of devices: some axes divide the rows among devices, others the chains.

Every device runs the same compiled loop (`jax.shard_map`). Devices that share rows make the same steps with the same
noise; each sums its own rows, and one `psum` per step gives the estimate. Devices with separate chains do not
communicate, and make exactly the steps that one device makes for these chains.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from scirocco.data import Devices
from scirocco.data.spread import SpreadRows, SumOverDevices
from scirocco.errors import InvalidValueError
from scirocco.model import Posterior
from scirocco.model.base import Facts, Wrapper, valued
from scirocco.run import encoding, loop
from scirocco.run.keeping import DeviceChains, HostChunk, buffer_capacity, good_draws
from scirocco.run.loop import CHAIN_AXES, KernelState, Parts, Start
from scirocco.run.session import Plan
from scirocco.run.setup import Problem
from scirocco.samplers import Gradient
from scirocco.types import Array, Key, Params, PyTree, Rows


class ModelOverDevices(Wrapper):
    """A model whose sum over the rows is a sum over several devices (inside `shard_map`)."""

    def __init__(self, model: Posterior, axes: tuple[str, ...]):
        self.model, self.axes = model, axes

    def __hash__(self) -> int:
        return hash((ModelOverDevices, self.model, self.axes))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModelOverDevices) and (self.model, self.axes) == (other.model, other.axes)

    @property
    def summand(self) -> SumOverDevices:
        """The model's summand, over all devices."""
        return SumOverDevices(self.model.summand, self.axes)

    @property
    def facts(self) -> Facts:
        """What the model says of its sum, and the model with the value of its log density."""
        of = self.model.facts
        return Facts(
            drive=of.drive,
            takes_key=of.takes_key,
            has_value=of.has_value,
            row_cost=of.row_cost,
            valued=lambda: ModelOverDevices(valued(self.model), self.axes),
        )

    def look(self, position: Params, rows: Rows, key: Key | None = None) -> Array:
        """Finite if it is finite on every device."""
        assert isinstance(rows, SpreadRows)
        return jax.lax.psum(self.model.look(position, rows.rows, key), self.axes)

    def combine(self, position: Params, total: PyTree) -> PyTree:
        """The model's."""
        return self.model.combine(position, total)


class SpreadChains(DeviceChains):
    """Chains on a mesh: all in one program (`vectorized`), or as many at a time as the mesh has places for chains."""

    def __init__(
        self,
        problem: Problem,
        start: Start,
        plan: Plan,
        devices: Devices,
        vectorized: bool,
        saved: dict[str, np.ndarray] | None,
    ):
        if plan.group_size > 1:
            raise InvalidValueError(
                'batches="grouped" is for the chains of one device: omit `mesh`, or use batches="own".'
            )
        keeping, self._devices, self.among_processes = plan.keeping, devices, devices.many_processes
        places = devices.num_chain_places
        if plan.num_chains % places:
            raise InvalidValueError(
                f"{plan.num_chains} chains cannot be divided equally among the {places} places of the mesh's "
                f"axis {devices.chain_axes[0]!r}: use a num_chains that is a multiple of {places}."
            )
        model = ModelOverDevices(problem.model, devices.row_axes) if devices.row_axes else problem.model
        in_program = plan.num_chains if vectorized else places
        per_device = in_program // places
        self.capacity = buffer_capacity(start.position, keeping.gradients_in_loop, per_device)
        self._static = (model, devices, vectorized, keeping.gradients_in_loop, self.capacity)
        self._parts = _placed(problem.parts, devices)
        self._keeping, self._in_program = keeping, in_program
        self._one = keeping.reducing.init(problem.model.constrain(start.position))
        groups = np.asarray(plan.numbers, np.int32).reshape(-1, in_program)
        self.made, self.first_density = 0, jnp.zeros(())
        if saved is None:
            begin, key = devices.replicate((start, plan.key))
            started = [_start(model, devices, vectorized, self._parts, begin, key, numbers) for numbers in groups]
            self.states = [state for state, _ in started]
            self.first_density = _host(devices, started[0][1])
            self.reducing = [_stacked([self._one] * in_program) for _ in groups]
        else:
            self._restore(problem, start, plan, saved, len(groups))

    def _restore(
        self, problem: Problem, start: Start, plan: Plan, saved: dict[str, np.ndarray], num_groups: int
    ) -> None:
        template = encoding.template(problem, start.position, plan.key, self._one)
        restored = [encoding.restore(template, saved, chain) for chain in range(plan.num_chains)]
        self.made = int(restored[0].made)
        self.states, self.reducing = [], []
        for group in range(num_groups):
            some = restored[group * self._in_program : (group + 1) * self._in_program]
            self.states.append(self._devices.over_chains(_stacked([chain.state for chain in some])))
            self.reducing.append(_stacked([chain.reducing for chain in some]))

    @property
    def first_gradient(self) -> PyTree:
        """The gradients of the current states of the first chains."""
        return _host(self._devices, self.states[0].gradient.total)

    @property
    def first_state(self) -> KernelState:
        """The state of the first chain."""
        return jax.tree.map(lambda leaf: leaf[0], _everywhere(self._devices, self.states[0]))

    @property
    def current(self) -> tuple[PyTree, Gradient]:
        """Positions and gradients of all chains."""
        groups = [_host(self._devices, (state.sampler.position, state.gradient)) for state in self.states]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *groups)

    def advance(self, num_steps: int, thin: int) -> HostChunk:
        """Advance all chains; groups run in turn, because programs that communicate across devices must not overlap."""
        found = []
        for group, states in enumerate(self.states):
            start = int(_host(self._devices, states.number)[0])
            counts = (np.int32(num_steps), np.int32(thin))
            self.states[group], chunk = _advance(*self._static, self._parts, states, *counts)
            if self._devices.many_processes:
                chunk = _host(self._devices, chunk)
            found.append((chunk, good_draws(chunk, num_steps // thin, start, thin)))
        count = min(good for _, good in found)
        hosts = [self._keep(group, chunk, count) for group, (chunk, _) in enumerate(found)]
        self.made += count
        return hosts[0] if len(hosts) == 1 else _side_by_side(hosts)

    def _keep(self, group: int, chunk: loop.Chunk, count: int) -> HostChunk:
        reducing = self._keeping.reducing
        self.reducing[group] = reducing.update(self.reducing[group], chunk, count, vectorized=True)
        return self._keeping.to_host(chunk, count, self.made, axis=1)

    def save(self) -> dict[str, np.ndarray]:
        """All chains' states."""
        made = np.full(self._in_program, self.made)
        parts = [
            encoding.save_stacked_chains(encoding.Snapshot(_everywhere(self._devices, states), reducing, made))
            for states, reducing in zip(self.states, self.reducing, strict=True)
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def reduced(self) -> PyTree:
        """The reducers' states."""
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *self.reducing)

    def close(self) -> None:
        """Nothing to release."""

    def agree(self, numbers: list[int]) -> list[int]:
        """The largest of each number over all processes; every process gets the same result."""
        if not self._devices.many_processes:
            return numbers
        mesh = self._devices.mesh
        sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
        own = np.asarray([numbers], np.int32)
        table = jax.make_array_from_callback((mesh.size, len(numbers)), sharding, lambda _: own)
        return [int(number) for number in np.asarray(_largest(self._devices, table))]


def _side_by_side(chunks: list[HostChunk]) -> HostChunk:
    """Join the chunks of several groups of chains."""
    return HostChunk(*jax.tree.map(lambda *leaves: np.concatenate(leaves), *chunks))


def _stacked(trees: list[PyTree]) -> PyTree:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _placed(parts: Parts, devices: Devices) -> Parts:
    """Everything on all devices, except rows that are already spread over them."""
    if devices.row_axes:
        common = parts._replace(data=None)
        return devices.replicate(common)._replace(data=parts.data)
    return devices.replicate(parts)


def _everywhere(devices: Devices, tree: PyTree) -> PyTree:
    """Arrays that every process can read."""
    return _replicated(devices, tree) if devices.many_processes else tree


def _host(devices: Devices, tree: PyTree) -> PyTree:
    return jax.tree.map(np.asarray, _everywhere(devices, tree))


@partial(jax.jit, static_argnums=0)
def _replicated(devices: Devices, tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, devices.everywhere()), tree)


@partial(jax.jit, static_argnums=0)
def _largest(devices: Devices, table: Array) -> Array:
    return jax.lax.with_sharding_constraint(table.max(axis=0), devices.everywhere())


def _specs(devices: Devices) -> tuple[Parts, PartitionSpec, PartitionSpec]:
    """How the parts, the common arguments and the chains are placed on the devices."""
    same, rows = PartitionSpec(), PartitionSpec(devices.row_axes)
    data = rows if devices.row_axes else same
    return Parts(same, same, same, data, same), same, PartitionSpec(devices.chain_axes)  # type: ignore[arg-type]


@partial(jax.jit, static_argnums=(0, 1, 2))
def _start(
    model: Posterior, devices: Devices, vectorized: bool, parts: Parts, begin: loop.Start, key: Key, chains: Array
) -> tuple[KernelState, Array]:
    parts_spec, same, by_chain = _specs(devices)

    def here(parts: Parts, begin: loop.Start, key: Key, chains: Array) -> tuple[KernelState, Array]:
        def one(chain: Array) -> tuple[KernelState, Array]:
            return loop.start_chain(model, parts, begin, key, chain)

        return jax.vmap(one)(chains) if vectorized else _of_one(one, chains)

    mapped = jax.shard_map(
        here, mesh=devices.mesh, in_specs=(parts_spec, same, same, by_chain), out_specs=by_chain, check_vma=False
    )
    return mapped(parts, begin, key, chains)


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4), donate_argnums=6)
def _advance(
    model: Posterior,
    devices: Devices,
    vectorized: bool,
    keep_gradients: bool,
    capacity: int,
    parts: Parts,
    states: KernelState,
    num_steps: Array,
    thin: Array,
) -> tuple[KernelState, loop.Chunk]:
    parts_spec, same, by_chain = _specs(devices)

    def here(parts: Parts, states: KernelState, num_steps: Array, thin: Array) -> tuple[KernelState, loop.Chunk]:
        def one(state: KernelState) -> tuple[KernelState, loop.Chunk]:
            return loop.advance(model, keep_gradients, capacity, parts, state, num_steps, thin, 0)

        if vectorized:
            common = states._replace(number=states.number[0])
            moved, chunk = jax.vmap(one, in_axes=(CHAIN_AXES,), out_axes=(CHAIN_AXES, 0))(common)
            return moved._replace(number=jnp.full_like(states.number, moved.number)), chunk
        return _of_one(one, states)

    mapped = jax.shard_map(
        here, mesh=devices.mesh, in_specs=(parts_spec, by_chain, same, same), out_specs=by_chain, check_vma=False
    )
    return mapped(parts, states, num_steps, thin)


def _of_one(function: Any, chains: PyTree) -> Any:
    """`function` of the only chain of this device: not vectorised, so its program is that of a single chain."""
    alone = jax.tree.map(lambda leaf: leaf[0], chains)
    return jax.tree.map(lambda leaf: leaf[None], function(alone))
