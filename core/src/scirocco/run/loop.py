"""The compiled loop of a CPU: one step, and many steps of one chain in a single program.

All randomness of a step is a function of (key, step number), so the noise and the batch plans of `ahead` steps are
drawn together, vectorised, before the steps are made: drawing them one by one would take most of the time. The
numbers do not depend on the grouping, so a chain does not depend on how it is divided into chunks.

The number of steps and the thinning are data: other values do not recompile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _tree
from scirocco.estimators import Batch, Batching, Context, Estimate, Estimator
from scirocco.model import Posterior, WithValue
from scirocco.model.base import valued
from scirocco.run.sizes import RUNNING
from scirocco.samplers import Gradient, Reference, Sampler, Trajectory
from scirocco.types import Array, ArrayLike, Data, Key, Params, PyTree

if TYPE_CHECKING:
    from scirocco.run.schemes import Scheme

_AHEAD_WORDS = 1 << 16
"""Numbers in the randomness of steps drawn together that stay in the cache of a CPU."""
_LOOK_AT_ROWS = 1_000
"""Rows of the first batch at which the log density of a start is checked."""


class KernelState(NamedTuple):
    """Everything that the next step needs; a pytree of arrays."""

    sampler: Any
    gradient: Gradient
    """The estimate at the current position; it drives the next step, and `keep_gradients` keeps it. For `sc.Blocks`
    it drives the first block."""
    memory: PyTree
    """The estimator's memory."""
    number: Array
    """Steps made so far."""
    batch_key: Key
    """The key of all batches of this chain."""
    noise_key: Key
    """The key of the noise of `sc.sample`: step m draws from `step_key(noise_key, m)`; `Kernel.step` has its own."""

    def after(self, number: Array, sampler: Any, gradient: Gradient, memory: PyTree) -> KernelState:
        """The state of the same chain after step `number`."""
        return KernelState(sampler, gradient, memory, number, self.batch_key, self.noise_key)


CHAIN_AXES: Any = KernelState._make((0, 0, 0, None, 0, 0))
"""For `vmap` over chains: the step number is common to all, so that branches on it remain branches."""


def over_chains(
    one: Callable[[KernelState], tuple[KernelState, Chunk]], states: KernelState, group_size: int, same_memory: bool
) -> tuple[KernelState, Chunk]:
    """`one` for all chains, vectorised.

    The chains of a group have the same batches: `vmap` over them sees rows without a chain axis, so that products of
    rows and parameters become products of matrices. `same_memory`: the memory is that of all chains, and never changes.
    """
    if group_size == 1:
        return jax.vmap(one, in_axes=(CHAIN_AXES,), out_axes=(CHAIN_AXES, 0))(states)
    memory = None if same_memory else 0
    within: Any = KernelState._make((0, 0, memory, None, None, 0))
    groups = within._replace(batch_key=0)

    def fold(leaf: Array) -> Array:
        return leaf.reshape(-1, group_size, *leaf.shape[1:])

    def unfold(leaf: Array) -> Array:
        return leaf.reshape(-1, *leaf.shape[2:])

    folded = KernelState(
        jax.tree.map(fold, states.sampler),
        jax.tree.map(fold, states.gradient),
        jax.tree.map((lambda leaf: leaf[0]) if same_memory else fold, states.memory),
        states.number,
        states.batch_key[::group_size],
        fold(states.noise_key),
    )
    member = jax.vmap(one, in_axes=(within,), out_axes=(within, 0))
    moved, chunk = jax.vmap(member, in_axes=(groups,), out_axes=(groups, 0))(folded)
    return moved._replace(
        sampler=jax.tree.map(unfold, moved.sampler),
        gradient=jax.tree.map(unfold, moved.gradient),
        memory=states.memory if same_memory else jax.tree.map(unfold, moved.memory),
        batch_key=states.batch_key,
        noise_key=states.noise_key,
    ), jax.tree.map(unfold, chunk)


class Info(NamedTuple):
    """Information about a step."""

    code: Array
    """0: no problem. k > 0: leaf number k - 1 of the position is no longer finite."""
    stats: dict[str, Array]


class Parts(NamedTuple):
    """A composed sampler: all its data in one pytree (the model is static)."""

    sampler: Sampler
    estimator: Estimator
    batching: Batching
    data: Data
    """All rows, or for streamed data the rows of one superbatch."""
    scheme: Scheme
    """How a step is made; chosen when the parts are composed."""

    def target(self, model: Posterior) -> Posterior:
        """The model to estimate, with the value of its log density where the sampler requires it."""
        if not self.sampler.needs.value:
            return model
        return valued(model, self.sampler.reference if isinstance(self.sampler, Trajectory) else None)

    @property
    def resident(self) -> bool:
        """Whether `data` holds all rows."""
        return self.batching.whole


class Draws(NamedTuple):
    """The randomness of one step."""

    noise: PyTree
    plan: Any
    probe: PyTree | None
    key: Key | None
    """For randomness in the summand (latent variables) or in the estimator."""


class Chunk(NamedTuple):
    """The results of a number of steps; leaves have a leading draw axis, of which the first entries are filled."""

    draws: Params
    gradients: PyTree | None
    stats: dict[str, Array]
    bad_step: Array
    """Number of the first step that diverged (NaN or inf); -1: none."""
    bad_leaf: Array
    path: PyTree = None
    """The sampler's averages along its path, for reducers that use them."""


def step_key(key: Key, number: Array) -> Key:
    """The key of step `number`: `key` with the number added to its last word.

    The generator is a keyed hash, so neighbouring keys are as good as random ones; compared with `fold_in` this saves
    one hash per step and a fifth of the compile time.
    """
    words = jax.random.key_data(key)
    last = np.zeros(words.shape, words.dtype)
    last[-1] = 1
    return jax.random.wrap_key_data(words + last * jnp.asarray(number, words.dtype), impl=jax.random.key_impl(key))


def draw(model: Posterior, parts: Parts, params: Params, noise_key: Key, batch_key: Key, number: Array) -> Draws:
    """The randomness of step `number`; `noise_key` is the key of that step."""
    noise, signs, key = noise_and_signs(model, parts, params, noise_key)
    return Draws(noise, parts.batching.plan(batch_key, number + 1), signs, key)


def noise_and_signs(
    model: Posterior, parts: Parts, params: Params, noise_key: Key
) -> tuple[PyTree, PyTree | None, Key | None]:
    """The sampler's noise of a step and, where needed, random signs for curvature and a key for the estimate."""
    noise_key, sign_key, key = _branch(model, parts, noise_key)
    return parts.sampler.noise(noise_key, params), random_signs(params, sign_key), key


def _branch(model: Posterior, parts: Parts, key: Key) -> tuple[Key, Key | None, Key | None]:
    """Further keys, only where they are needed: for random signs, and for estimates with their own randomness."""
    signs = estimate = None
    if parts.sampler.needs.curvature:
        key, signs = jax.random.split(key)
    if model.facts.takes_key or parts.estimator.traits.is_random:
        key, estimate = jax.random.split(key)
    return key, signs, estimate


def random_signs(params: Params, key: Key | None) -> PyTree | None:
    """Random signs z, for the estimate z ∘ (H z) of the diagonal of a Hessian H."""
    if key is None:
        return None
    normals = _tree.normal_like(key, params)
    return jax.tree.map(lambda xi: jnp.where(xi < 0, -1.0, 1.0).astype(xi.dtype), normals)


def context_of(parts: Parts, batch: Batch, number: Array, key: Key | None) -> Context:
    """The inputs of an estimate."""
    return Context(parts.batching.rows(parts.data) if parts.resident else None, batch, number, key)


def as_gradient(target: Posterior, position: Params, drive: PyTree, estimate: Estimate) -> Gradient:
    """The sampler's input, from an estimate and the model's combination of it."""
    reference = None
    if estimate.reference is not None:
        last = estimate.reference
        before = None if last.before is None else target.combine(position, last.before)
        total = target.combine(position, last.total)
        reference = Reference(total, last.variance, before=before, error=last.error)
    return known_gradient(drive, estimate.noise)._replace(reference=reference)


def known_gradient(drive: PyTree, noise: PyTree | None = None) -> Gradient:
    """The sampler's input, from the model's combination of a known sum; its value, if any, goes to its own field."""
    if not isinstance(drive, WithValue):
        return Gradient(drive, noise)
    covariance, variance = (None, None) if noise is None else noise
    return Gradient(drive.gradient, covariance, value=drive.value, value_variance=variance)


class Start(NamedTuple):
    """Where chains start."""

    position: Params
    memory: PyTree
    gradient: PyTree | None
    """The model's combination of the exact sum at the start, when it is known; else the first gradient is estimated."""
    places: Params | None = None
    """Where each chain starts, leaves (chain, ...), if not all at `position`; more chains start at the first again."""

    def of_chain(self, chain: Any) -> Start:
        """The start of chain number `chain` alone."""
        if self.places is None:
            return self
        own = jax.tree.map(lambda leaf: leaf[chain % leaf.shape[0]], self.places)
        return Start(own, self.memory, None)


class ChainKeys(NamedTuple):
    """The randomness of one chain."""

    start: Key
    signs: Key | None
    estimate: Key | None
    batches: Key
    noise: Key


def chain_keys(model: Posterior, parts: Parts, key: Key, chain: Any, leader: Any = None) -> ChainKeys:
    """The keys of chain number `chain`; its batches are those of chain number `leader`, by default its own."""
    start, batches, noise = jax.random.split(jax.random.fold_in(key, chain), 3)
    if leader is not None:
        batches = jax.random.split(jax.random.fold_in(key, leader), 3)[1]
    start, signs, estimate = _branch(model, parts, start)
    return ChainKeys(start, signs, estimate, batches, noise)


def first_state(parts: Parts, position: Params, gradient: Gradient, memory: PyTree, keys: ChainKeys) -> KernelState:
    """The state before the first step; auxiliary variables are drawn."""
    init = parts.sampler.init(position, keys.start)
    return KernelState(init, gradient, memory, jnp.zeros((), jnp.int32), keys.batches, keys.noise)


def start_chain(
    model: Posterior, parts: Parts, begin: Start, key: Key, chain: Any, leader: Any = None
) -> tuple[KernelState, Array]:
    """Chain number `chain` of the run with key `key`, before its first step, and its log density there.

    Auxiliary variables are drawn, the first gradient is estimated (or known). The log density is that of the prior and
    some rows: it only serves to check whether it is finite.
    """
    keys = chain_keys(model, parts, key, chain, leader)
    zero, (position, memory, known, _) = jnp.zeros((), jnp.int32), begin.of_chain(chain)
    enough = parts.sampler.needs.noise == "none" and not parts.sampler.needs.auxiliary
    if known is not None and enough and keys.signs is None:
        gradient, density = (
            known_gradient(known),
            jnp.zeros(()),
        )  # a known gradient implies that the density was checked
    else:
        plan = parts.batching.plan(keys.batches, zero)
        signs = random_signs(position, keys.signs)
        gradient, memory = parts.scheme.evaluate(model, parts, position, memory, zero, plan, signs, keys.estimate)
        rows = jax.tree.map(lambda leaf: leaf[: min(parts.batching.size, _LOOK_AT_ROWS)], parts.data)
        density = model.look(position, rows, keys.estimate)
    return first_state(parts, position, gradient, memory, keys), density


def move(model: Posterior, parts: Parts, state: KernelState, draws: Draws) -> tuple[KernelState, Info]:
    """One step, and information about it."""
    state = parts.scheme.move(model, parts, state, draws)
    return state, inform(model, parts, state)


def inform(model: Posterior, parts: Parts, state: KernelState) -> Info:
    """Information about the step that led to `state`."""
    stats = stats_of(model, parts, state.sampler, state.gradient)
    return Info(code_of(state.sampler.position), stats)


def stats_of(model: Posterior, parts: Parts, sampler_state: Any, gradient: Gradient) -> dict[str, Array]:
    """The statistics of a step: those of the model and of the sampler."""
    return {**model.stats(gradient.total), **parts.sampler.stats(sampler_state)}


def code_of(position: Params) -> Array:
    """0, or 1 + the number of the first leaf that is not finite (a sum is finite only if all entries are)."""
    finite = jnp.stack([jnp.isfinite(jnp.sum(leaf)) for leaf in jax.tree.leaves(position)])
    return jnp.where(jnp.all(finite), 0, 1 + jnp.argmin(finite)).astype(jnp.int32)


def ahead_steps(parts: Parts, params: Params) -> int:
    """The number of steps whose randomness is drawn together: at most 256, limited by cache (64 MB on accelerators)."""
    words = max(_tree.size(params), parts.batching.plan_size)
    room = RUNNING.ahead_words_accelerator if in_lockstep() else _AHEAD_WORDS
    return max(1, min(RUNNING.ahead_steps, room // max(1, words)))


def in_lockstep() -> bool:
    """Whether groups of steps have a fixed length: other loops on an accelerator query the host in each iteration."""
    return jax.default_backend() != "cpu"


class LoopSteps(NamedTuple):
    """What does not change while `advance` makes steps."""

    model: Posterior
    keep_gradients: bool
    parts: Parts
    num_steps: Array
    thin: Array
    phase: ArrayLike
    ahead: int
    """Steps whose randomness is drawn together; 1: so many parameters that copying them is expensive."""


class Made(NamedTuple):
    """How far `advance` is."""

    done: Array
    state: KernelState
    buffers: PyTree
    bad_step: Array
    bad_leaf: Array


def advance(
    model: Posterior,
    keep_gradients: bool,
    capacity: int,
    parts: Parts,
    state: KernelState,
    num_steps: Array,
    thin: Array,
    phase: ArrayLike,
    in_graph: bool = False,
) -> tuple[KernelState, Chunk]:
    """Make `num_steps` steps of one chain, keeping every `thin`-th position (at most `capacity`).

    This is the loop of a CPU; `accelerator_loop` has that of accelerators. `phase` is the number of steps already made
    towards the first draw. `in_graph`: the program is one graph on a GPU, in which any loop runs by itself.
    """
    ahead = ahead_steps(parts, state.sampler.position)
    steps = LoopSteps(model, keep_gradients, parts, num_steps, thin, phase, ahead)
    nothing = jnp.full((), -1, jnp.int32)
    buffers = buffers_for(kept(model, parts, state, keep_gradients), capacity)
    begin = Made(jnp.zeros((), jnp.int32), state, buffers, nothing, nothing)
    group = partial(_whole_group, steps) if in_lockstep() and not in_graph else partial(_group, steps, None)
    end = jax.lax.while_loop(lambda made: made.done < num_steps, group, begin)
    return end.state, chunk_of(model, end.buffers, (end.bad_step, end.bad_leaf))


def _whole_group(steps: LoopSteps, made: Made) -> Made:
    """A group of a fixed length, if so many steps are left."""
    whole, rest = partial(_group, steps, steps.ahead), partial(_group, steps, None)
    return jax.lax.cond(steps.num_steps - made.done >= steps.ahead, whole, rest, made)


def _group(steps: LoopSteps, number: int | None, made: Made) -> Made:
    """So many steps, of which the randomness is drawn together; None: as many as it is drawn for, or are left."""
    count = jnp.minimum(steps.ahead, steps.num_steps - made.done) if number is None else number
    drawn = draws_of(steps.model, steps.parts, made.state, steps.ahead)
    end = jax.lax.fori_loop(0, count, partial(_step, steps, drawn, made.done), made)
    return end._replace(done=made.done + count)


def _step(steps: LoopSteps, drawn: PyTree, done: Array, offset: Array, made: Made) -> Made:
    """One step, whether it has diverged, and the draw if it is due."""
    alone = steps.ahead == 1
    parts = steps.parts
    state = parts.scheme.move(steps.model, parts, made.state, at(drawn, 0 if alone else offset))
    code = code_of(state.sampler.position)
    newly = (made.bad_step < 0) & (code > 0)
    bad_step = jnp.where(newly, state.number - 1, made.bad_step)
    bad_leaf = jnp.where(newly, code - 1, made.bad_leaf)
    slot = (steps.phase + done + offset) // steps.thin
    put = partial(_put_draw, steps, state, slot)
    if alone:
        due = (steps.phase + done + offset + 1) % steps.thin == 0
        buffers = jax.lax.cond(due, put, lambda same: same, made.buffers)
    else:
        buffers = put(made.buffers)
    return Made(made.done, state, buffers, bad_step, bad_leaf)


def _put_draw(steps: LoopSteps, state: KernelState, slot: Any, buffers: PyTree) -> PyTree:
    return put_in(buffers, kept(steps.model, steps.parts, state, steps.keep_gradients), slot)


def draws_of(model: Posterior, parts: Parts, state: KernelState, count: int) -> Draws:
    """The randomness of the next `count` steps, leaves (step, ...)."""

    def own(number: Array) -> Draws:
        key = step_key(state.noise_key, number)
        return draw(model, parts, state.sampler.position, key, state.batch_key, number)

    if count == 1:  # not vectorised, so that it becomes a part of the step
        return jax.tree.map(lambda leaf: leaf[None], own(state.number))
    return jax.vmap(own)(state.number + jnp.arange(count))


def at(drawn: PyTree, number: Any) -> PyTree:
    """The randomness of step `number` among those drawn together."""
    return jax.tree.map(lambda leaf: leaf[0 if leaf.shape[0] == 1 else number], drawn)


def kept(model: Posterior, parts: Parts, state: KernelState, keep_gradients: bool) -> PyTree:
    """What a draw keeps: position, gradient if requested, statistics, averages along the path if requested."""
    path = None if parts.sampler.known.averaging is None else state.sampler.path
    gradient = state.gradient.total if keep_gradients else None
    stats = stats_of(model, parts, state.sampler, state.gradient)
    return state.sampler.position, gradient, stats, path


def chunk_of(model: Posterior, buffers: PyTree, bad: tuple[Array, Array]) -> Chunk:
    """The draws in the buffers, in the user's units."""
    positions, gradients, stats, path = buffers
    return Chunk(jax.vmap(model.constrain)(positions), gradients, stats, *bad, path)


def buffers_for(kept: PyTree, capacity: int) -> PyTree:
    """Room for that many draws."""
    return jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), kept)


def put_in(buffers: PyTree, kept: PyTree, slot: Array) -> PyTree:
    """The buffers with one more draw."""

    def one(buffer: Array, leaf: Array) -> Array:
        return jax.lax.dynamic_update_index_in_dim(buffer, leaf.astype(buffer.dtype), slot, 0)

    return jax.tree.map(one, buffers, kept)
