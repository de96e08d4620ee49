"""The compiled loop: one step, and many steps of one chain in a single program.

All randomness of a step is a function of (key, step number), so the noise and the batch plans of `ahead` steps are
drawn together, vectorised, before the steps are made: drawing them one by one would take most of the time. The
numbers do not depend on the grouping, so a chain does not depend on how it is divided into chunks.

The number of steps and the thinning are data: other values do not recompile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _tree
from scirocco.estimators import Batch, Batching, Context, Estimate, Estimator
from scirocco.model import Posterior, WithValue
from scirocco.samplers import Gradient, Mover, Reference, Sampler
from scirocco.types import Array, ArrayLike, Data, Key, Params, PyTree

if TYPE_CHECKING:
    from scirocco.run.schemes import Scheme

_AHEAD_WORDS = 1 << 16
_AHEAD_WORDS_ACCELERATOR = 1 << 24
_AHEAD_STEPS = 256
_NOISE_AHEAD_PAYS = 32
_UNROLL = (4, 5, 3, 2)
_MANY_CHAINS = 256
_LONG_STEP = 1 << 23
"""Parameters: a step then takes so long that fewer kernels gain nothing, and the program has it only once."""
_LOOK_AT_ROWS = 1_000


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


CHAIN_AXES: Any = KernelState._make((0, 0, 0, None, 0, 0))
"""For `vmap` over chains: the step number is common to all, so that branches on it remain branches."""


def over_chains(
    one: Callable[[KernelState], tuple[KernelState, Chunk]],
    states: KernelState,
    group_size: int,
    same_memory: bool,
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
        return model.valued if self.sampler.needs.value else model

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
    return jax.random.wrap_key_data(
        words + last * jnp.asarray(number, words.dtype), impl=jax.random.key_impl(key)
    )


def draw(
    model: Posterior, parts: Parts, params: Params, noise_key: Key, batch_key: Key, number: Array
) -> Draws:
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
    if model.takes_key or parts.estimator.needs_key:
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
        total, variance = estimate.reference
        reference = Reference(target.combine(position, total), variance)
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


def first_state(
    parts: Parts, position: Params, gradient: Gradient, memory: PyTree, keys: ChainKeys
) -> KernelState:
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
        gradient, memory = parts.scheme.evaluate(
            model, parts, position, memory, zero, plan, signs, keys.estimate
        )
        rows = jax.tree.map(lambda leaf: leaf[: min(parts.batching.size, _LOOK_AT_ROWS)], parts.data)
        density = model.look(position, rows, keys.estimate)
    return first_state(parts, position, gradient, memory, keys), density


def move(model: Posterior, parts: Parts, state: KernelState, draws: Draws) -> tuple[KernelState, Info]:
    """One step, and information about it."""
    state = _moved(model, parts, state, draws)
    return state, inform(model, parts, state)


def _moved(model: Posterior, parts: Parts, state: KernelState, draws: Draws) -> KernelState:
    number = state.number + 1
    moved, gradient, memory = parts.scheme.move(model, parts, state, number, draws)
    return KernelState(moved, gradient, memory, number, state.batch_key, state.noise_key)


def inform(model: Posterior, parts: Parts, state: KernelState) -> Info:
    """Information about the step that led to `state`."""
    stats = _stats(model, parts, state.sampler, state.gradient)
    return Info(_code(state.sampler.position), stats)


def _stats(model: Posterior, parts: Parts, sampler_state: Any, gradient: Gradient) -> dict[str, Array]:
    return {**model.stats(gradient.total), **parts.sampler.stats(sampler_state)}


def _code(position: Params) -> Array:
    """0, or 1 + the number of the first leaf that is not finite (a sum is finite only if all entries are)."""
    finite = jnp.stack([jnp.isfinite(jnp.sum(leaf)) for leaf in jax.tree.leaves(position)])
    return jnp.where(jnp.all(finite), 0, 1 + jnp.argmin(finite)).astype(jnp.int32)


def ahead_steps(parts: Parts, params: Params) -> int:
    """The number of steps whose randomness is drawn together: at most 256, limited by cache (64 MB on accelerators)."""
    words = max(_tree.size(params), parts.batching.plan_size)
    room = _AHEAD_WORDS_ACCELERATOR if in_lockstep() else _AHEAD_WORDS
    return max(1, min(_AHEAD_STEPS, room // max(1, words)))


def in_lockstep() -> bool:
    """Whether groups of steps have a fixed length: other loops on an accelerator query the host in each iteration."""
    return jax.default_backend() != "cpu"


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

    `phase` is the number of steps already made towards the first draw. `in_graph`: the program is one graph on a GPU,
    in which any loop runs by itself.
    """
    position = state.sampler.position
    ahead = ahead_steps(parts, position)
    alone = ahead == 1  # so many parameters that copying them is expensive
    buffers = _buffers(_kept(model, parts, state, keep_gradients), capacity)
    nothing = jnp.full((), -1, jnp.int32)

    def group(count: Any, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        done, state, buffers, bad = carry
        drawn = _draws_of(model, parts, state, ahead)

        def one(offset: Array, inner: tuple[Any, ...]) -> tuple[Any, ...]:
            before, buffers, (bad_step, bad_leaf) = inner
            state = _moved(model, parts, before, _at(drawn, 0 if alone else offset))
            code = _code(state.sampler.position)
            newly = (bad_step < 0) & (code > 0)
            bad = (jnp.where(newly, state.number - 1, bad_step), jnp.where(newly, code - 1, bad_leaf))
            slot = (phase + done + offset) // thin

            def put(buffers: PyTree) -> PyTree:
                return _put(buffers, _kept(model, parts, state, keep_gradients), slot)

            if not alone:
                return state, put(buffers), bad
            due = (phase + done + offset + 1) % thin == 0
            return state, jax.lax.cond(due, put, lambda same: same, buffers), bad

        state, buffers, bad = jax.lax.fori_loop(0, count, one, (state, buffers, bad))
        return done + count, state, buffers, bad

    def next_group(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        left = num_steps - carry[0]
        if in_graph or not in_lockstep():
            return group(jnp.minimum(ahead, left), carry)
        whole, rest = partial(group, ahead), lambda carry: group(num_steps - carry[0], carry)
        return jax.lax.cond(left >= ahead, whole, rest, carry)

    first = (jnp.zeros((), jnp.int32), state, buffers, (nothing, nothing))
    _, state, buffers, bad = jax.lax.while_loop(lambda carry: carry[0] < num_steps, next_group, first)
    return state, _chunk(model, buffers, bad)


class Pace(NamedTuple):
    """How `advance_by_draws` divides its steps; static."""

    every: int
    """Steps per draw."""
    ahead: int
    """Steps whose batches, and noise if it is not `inline`, are drawn together."""
    inline: bool
    """Whether a step draws its own noise: for so many parameters that writing and reading it again would take time."""
    grouped: bool
    """Whether several chains share their batches."""
    many: bool = False
    """Whether there are so many chains that memory limits a step, not the number of kernels."""

    @property
    def draws_together(self) -> int:
        """Draws made in one loop of fixed length."""
        return max(1, self.ahead // self.every)


def pace_of(parts: Parts, params: Params, every: int, num_chains: int, group_size: int) -> Pace:
    """The pace of that many chains, of which so many share their batches."""
    numbers, plans = (num_chains * max(1, size) for size in (_tree.size(params), parts.batching.plan_size))
    inline = numbers * _NOISE_AHEAD_PAYS > _AHEAD_WORDS_ACCELERATOR
    room = _AHEAD_WORDS_ACCELERATOR // (plans if inline else max(numbers, plans))
    return Pace(every, max(1, min(_AHEAD_STEPS, room)), inline, group_size > 1, num_chains >= _MANY_CHAINS)


def advance_by_draws(
    model: Posterior,
    keep_gradients: bool,
    capacity: int,
    pace: Pace,
    parts: Parts,
    state: KernelState,
    num_steps: Array,
) -> tuple[KernelState, Chunk]:
    """As `advance`, for accelerators: a step only moves the chain.

    Draws are kept, and checked, every `pace.every` steps. As many as the randomness drawn ahead lasts for are made in
    one loop of fixed length, because an accelerator queries the host in each iteration of any other. If the chunk
    diverged, `bad_step` is the step of the first draw that is not finite; `advance` finds the step itself.
    """
    begin, every, together = state.number, pace.every, min(pace.draws_together, capacity)
    length = every * together
    ahead = min(pace.ahead, length)
    ahead = next(
        (n for n in range(ahead, ahead // 2, -1) if every % n == 0), ahead
    )  # blocks without a remainder
    buffers = _buffers(_kept(model, parts, state, keep_gradients), capacity)
    batching, data = parts.batching.for_accelerator(parts.data, pace.grouped, pace.many)
    parts = parts._replace(batching=batching, data=data)

    def drawn_ahead(state: KernelState, count: int) -> PyTree:
        if pace.inline:
            return jax.vmap(lambda number: parts.batching.plan(state.batch_key, number + 1))(
                state.number + jnp.arange(count)
            )
        return _draws_of(model, parts, state, count)

    def steps(count: Any, state: KernelState, drawn: PyTree, first: Any = 0) -> KernelState:
        """`count` steps, of which the randomness is `drawn` from number `first` on."""
        if pace.inline and isinstance(count, int) and parts.scheme.only_moves(model, parts):
            return _steps_from_estimates(
                model, parts, state, count, lambda offset: _at(drawn, first + offset)
            )
        number = state.number

        def one(offset: Array, state: KernelState) -> KernelState:
            # the number comes from the loop's own counter: carried along, it would be another kernel per step
            now = number + offset
            draws = _at(drawn, first + offset)
            if pace.inline:
                key = step_key(state.noise_key, now)
                noise, signs, own = noise_and_signs(model, parts, state.sampler.position, key)
                draws = Draws(noise, draws, signs, own)
            moved = _moved(model, parts, state._replace(number=now), draws)
            return moved._replace(number=number)

        unroll = _unrolled(count, state) if isinstance(count, int) else None
        return jax.lax.fori_loop(0, count, one, state, unroll=unroll)._replace(number=number + count)

    def blocks(count: int, state: KernelState) -> KernelState:
        """`count` steps, of which the randomness is drawn for `ahead` at a time."""

        def block(_: Any, state: KernelState) -> KernelState:
            return steps(ahead, state, drawn_ahead(state, ahead))

        state = jax.lax.fori_loop(0, count // ahead, block, state)
        return steps(count % ahead, state, drawn_ahead(state, ahead)) if count % ahead else state

    def put(buffers: PyTree, state: KernelState, slot: Array) -> PyTree:
        return _put(buffers, _kept(model, parts, state, keep_gradients), slot)

    def group(carry: tuple[Array, KernelState, PyTree]) -> tuple[Array, KernelState, PyTree]:
        done, state, buffers = carry
        slot = done // every
        if ahead < length:
            state = blocks(length, state)
            return done + length, state, put(buffers, state, slot)
        drawn = drawn_ahead(state, length)

        def draw_one(number: Array, inner: tuple[KernelState, PyTree]) -> tuple[KernelState, PyTree]:
            state = steps(every, inner[0], drawn, number * every)
            return state, put(inner[1], state, slot + number)

        unroll = _unrolled(together, state) if every == 1 else 1
        return done + length, *jax.lax.fori_loop(0, together, draw_one, (state, buffers), unroll=unroll)

    def rest(carry: tuple[Array, KernelState, PyTree]) -> tuple[Array, KernelState, PyTree]:
        done, state, buffers = carry
        slot, left = done // every, jnp.minimum(every - done % every, num_steps - done)
        count = jnp.minimum(ahead, left)
        state = steps(count, state, drawn_ahead(state, ahead))
        return done + count, state, put(buffers, state, slot)

    def either(carry: tuple[Array, KernelState, PyTree]) -> tuple[Array, KernelState, PyTree]:
        if _tree.size(state.sampler.position) >= _LONG_STEP:
            return rest(carry)
        whole = (num_steps - carry[0] >= length) & (carry[0] % every == 0)
        return jax.lax.cond(whole, group, rest, carry)

    first = (jnp.zeros((), jnp.int32), state, buffers)
    _, state, buffers = jax.lax.while_loop(lambda carry: carry[0] < num_steps, either, first)
    codes = jnp.append(jax.vmap(_code)(buffers[0]), _code(state.sampler.position))
    worst = jnp.argmax(codes > 0)  # the first
    step = jnp.minimum(begin + (worst + 1) * every, state.number) - 1
    bad = (jnp.where(codes[worst] > 0, step, -1), jnp.where(codes[worst] > 0, codes[worst] - 1, -1))
    return state, _chunk(model, buffers, bad)


def _steps_from_estimates(
    model: Posterior, parts: Parts, state: KernelState, count: int, plan_at: Callable[[Any], Any]
) -> KernelState:
    """`count` steps, each made directly after the estimate that drives it.

    A gradient is then consumed where it is made; the loop does not write it to memory and read it again.
    """
    number, sampler = state.number, cast(Mover, parts.sampler)

    def move(offset: Any, state: KernelState) -> KernelState:
        now = number + offset
        noise = noise_and_signs(model, parts, state.sampler.position, step_key(state.noise_key, now))[0]
        return state._replace(sampler=sampler.step(state.sampler, state.gradient, noise, now))

    def estimate(offset: Any, state: KernelState) -> KernelState:
        at = (state.sampler.position, state.memory, number + offset + 1, plan_at(offset), None, None)
        gradient, memory = parts.scheme.evaluate(model, parts, *at)
        return state._replace(gradient=gradient, memory=memory)

    def one(offset: Any, carry: tuple[Any, PyTree]) -> tuple[Any, PyTree]:
        before, memory = carry
        moved = move(offset, estimate(offset - 1, state._replace(sampler=before, memory=memory)))
        return moved.sampler, moved.memory

    first = (move(0, state).sampler, state.memory)
    moved, memory = jax.lax.fori_loop(1, count, one, first, unroll=_unrolled(count - 1, state))
    last = estimate(count - 1, state._replace(sampler=moved, memory=memory))
    return last._replace(number=number + count)


def _unrolled(count: int, state: KernelState) -> int:
    """How many steps of a loop of this length are written out: work at the end of one then merges with the next.

    Of large networks one: those written out would read the counters of their noise from memory, all the same array.
    """
    if _tree.size(state.sampler.position) >= _tree.MANY_NORMALS:
        return 1
    return next((number for number in _UNROLL if count % number == 0), 1)


def _draws_of(model: Posterior, parts: Parts, state: KernelState, count: int) -> Draws:
    """The randomness of the next `count` steps, leaves (step, ...)."""

    def own(number: Array) -> Draws:
        key = step_key(state.noise_key, number)
        return draw(model, parts, state.sampler.position, key, state.batch_key, number)

    if count == 1:  # not vectorised, so that it becomes a part of the step
        return jax.tree.map(lambda leaf: leaf[None], own(state.number))
    return jax.vmap(own)(state.number + jnp.arange(count))


def _at(drawn: PyTree, number: Any) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[0 if leaf.shape[0] == 1 else number], drawn)


def _kept(model: Posterior, parts: Parts, state: KernelState, keep_gradients: bool) -> PyTree:
    """What a draw keeps: position, gradient if requested, statistics, averages along the path if requested."""
    path = None if parts.sampler.known.averaging is None else state.sampler.path
    gradient = state.gradient.total if keep_gradients else None
    stats = _stats(model, parts, state.sampler, state.gradient)
    return state.sampler.position, gradient, stats, path


def _chunk(model: Posterior, buffers: PyTree, bad: tuple[Array, Array]) -> Chunk:
    positions, gradients, stats, path = buffers
    return Chunk(jax.vmap(model.constrain)(positions), gradients, stats, *bad, path)


def _buffers(kept: PyTree, capacity: int) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), kept)


def _put(buffers: PyTree, kept: PyTree, slot: Array) -> PyTree:
    def one(buffer: Array, leaf: Array) -> Array:
        return jax.lax.dynamic_update_index_in_dim(buffer, leaf.astype(buffer.dtype), slot, 0)

    return jax.tree.map(one, buffers, kept)
