"""Rejection sampling of whole arrays, and the numbers that it uses.

Uniforms and normals are drawn by counter: entry number `index` of an array, use number `slot`. A number follows from
(key, index, slot) alone. So a rejection round can be made for some entries of an array and not for others, in any
order and any grouping, and the outcome is the same; and because the generator is plain arithmetic, XLA fuses it with
whatever uses the numbers, instead of writing them to memory first.

A loop per entry (as in `jax.random.gamma`) runs for all entries as long as the slowest entry of the array needs. Here
the first attempt is made for the whole array; the few rejected entries are packed together, and further attempts are
made only for them. Packing is done within blocks of 128 entries, each with a fixed number of places, so that every
shape is known to the compiler; if a block has more open entries than places, the rest is packed in another round. Every
entry is sampled exactly, however many attempts it takes.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from scirocco._random import threefry
from scirocco.types import Array


def uniforms(words: Array, index: Array, slot: Array | int, dtype: jnp.dtype) -> tuple[Array, Array]:
    """Two independent uniforms on a symmetric grid inside (0, 1), for each entry."""
    if jnp.dtype(dtype) != jnp.float64:
        first, second = threefry(words, index, slot)
        return _short(first, dtype), _short(second, dtype)
    double = 2 * jnp.asarray(slot, jnp.uint32)
    return _long(*threefry(words, index, double)), _long(*threefry(words, index, double + 1))


def _short(word: Array, dtype: jnp.dtype) -> Array:
    """23 bits and a half: exact in single precision, never 0 or 1."""
    return (((word >> 9).astype(jnp.float32) + 0.5) * jnp.float32(2.0**-23)).astype(dtype)


def _long(first: Array, second: Array) -> Array:
    """52 bits and a half."""
    word = (first.astype(jnp.uint64) << 32) | second.astype(jnp.uint64)
    return ((word >> 12).astype(jnp.float64) + 0.5) * 2.0**-52


def normal_quantile(uniform: Array) -> Array:
    """A standard normal from a uniform."""
    return (2.0**0.5 * jax.scipy.special.erfinv(2.0 * uniform - 1.0)).astype(uniform.dtype)


BLOCK = 128
_SMALL = 2_048
_FEW_PLACES = 8

Attempt = Callable[[Array, Array, Array], tuple[Array, Array]]
"""(index, slot, parameter) -> (proposal, accepted), entry by entry."""


def sample(attempt: Attempt, index: Array, parameter: Array, first_slot: int, places: int) -> Array:
    """Attempts from number `first_slot` on, until every entry has a value."""
    if parameter.size <= _SMALL:
        nothing = jnp.zeros(parameter.shape, bool)
        return _until_accepted(attempt, index, parameter, jnp.zeros_like(parameter), nothing, first_slot)
    value, accepted = attempt(index, jnp.asarray(first_slot, jnp.uint32), parameter)
    return finish(attempt, parameter, value, accepted, first_slot + 1, places)


def finish(
    attempt: Attempt, parameter: Array, value: Array, done: Array, first_slot: int, places: int
) -> Array:
    """Attempts from number `first_slot` on for the entries that are not `done`, until all are; all arrays are flat."""
    if value.size <= _SMALL:
        index = jnp.arange(value.size, dtype=jnp.uint32)
        return _until_accepted(attempt, index, parameter, value, done, first_slot)

    def again(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        value, done = carry
        index = _pack(done, places)
        packed = parameter.at[index].get(mode="clip")
        empty = index >= value.size
        slot = jnp.asarray(first_slot, jnp.uint32)
        proposal, accepted = attempt(index.astype(jnp.uint32), slot, packed)
        accepted = _few_more(attempt, index, packed, proposal, accepted | empty, first_slot + 1)
        return value.at[index].set(accepted, mode="drop"), done.at[index].set(True, mode="drop")

    return jax.lax.while_loop(lambda carry: ~jnp.all(carry[1]), again, (value, done))[0]


def _few_more(
    attempt: Attempt, index: Array, parameter: Array, value: Array, done: Array, first_slot: int
) -> Array:
    """Attempts until all entries are done, of which only a few are left: these are packed once more."""
    if value.size <= _SMALL:
        return _until_accepted(attempt, index.astype(jnp.uint32), parameter, value, done, first_slot)

    def again(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        value, done = carry
        place = _pack(done, _FEW_PLACES)
        own = index.at[place].get(mode="clip").astype(jnp.uint32)
        packed, blank = parameter.at[place].get(mode="clip"), jnp.zeros(place.shape, value.dtype)
        accepted = _until_accepted(attempt, own, packed, blank, place >= value.size, first_slot)
        return value.at[place].set(accepted, mode="drop"), done.at[place].set(True, mode="drop")

    return jax.lax.while_loop(lambda carry: ~jnp.all(carry[1]), again, (value, done))[0]


def _until_accepted(
    attempt: Attempt, index: Array, parameter: Array, value: Array, done: Array, first_slot: int
) -> Array:
    def once(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        slot, value, done = carry
        proposal, accepted = attempt(index, slot, parameter)
        return slot + 1, jnp.where(done, value, proposal), done | accepted

    begin = (jnp.asarray(first_slot, jnp.uint32), value, done)
    return jax.lax.while_loop(lambda carry: ~jnp.all(carry[2]), once, begin)[1]


def _pack(done: Array, places: int) -> Array:
    """Indices of open entries, up to `places` of each block; empty places hold the length of the array."""
    size = done.size
    blocks = -(-size // BLOCK)
    open_entries = jnp.pad(~done, (0, blocks * BLOCK - size)).reshape(blocks, BLOCK)
    # How many open entries precede one in its block: a product with a triangle of ones is the fastest prefix sum.
    triangle = jnp.triu(jnp.ones((BLOCK, BLOCK), jnp.float32), 1)
    rank = (open_entries.astype(jnp.float32) @ triangle).astype(jnp.int32)
    nowhere = blocks * places
    begin = jnp.arange(blocks, dtype=jnp.int32)[:, None] * places
    place = jnp.where(open_entries & (rank < places), begin + rank, nowhere)
    numbers = jnp.arange(blocks * BLOCK, dtype=jnp.int32)
    return jnp.full(nowhere, size, jnp.int32).at[place.reshape(-1)].set(numbers, mode="drop")
