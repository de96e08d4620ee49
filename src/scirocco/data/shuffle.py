"""A random permutation that can be asked for one entry at a time, in O(1) time and memory.

The swap-or-not shuffle (Hoang, Morris & Rogaway 2012): in every round an index x is paired with K - x mod m for a
random K, and a hash bit of the pair decides whether the two swap. Every round is a permutation of 0..m-1 for any m,
so the whole is one. After r rounds an index is uniform up to 2^-r. No table, no sort, nothing to checkpoint: a batch
without replacement costs O(n), never O(N), and the order of an epoch follows from its key alone.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from scirocco._random import SeedPurpose
from scirocco.types import Array, Key

ROUNDS = 32


def random_order(words: Array, positions: Array, length: int | Array) -> Array:
    """π(positions), where π is the random permutation of 0..length-1 that belongs to two random 32-bit words.

    With arrays of words and lengths every position has a permutation of its own.
    """
    m = jnp.asarray(length, jnp.uint32)

    def swap_or_not(number: Array, x: Array) -> Array:
        salt = _mix(words[0] + jnp.uint32(0x9E3779B9) * (2 * number.astype(jnp.uint32) + 1))
        pivot = multiply_high(_mix(salt ^ words[1]), m)
        partner = jnp.where(pivot >= x, pivot - x, pivot + m - x)
        coin = _mix(jnp.maximum(x, partner) ^ salt) >> 31
        return jnp.where(coin == 1, partner, x)

    return jax.lax.fori_loop(0, ROUNDS, swap_or_not, positions.astype(jnp.uint32)).astype(jnp.int32)


def shuffled_numbers(length: int, seed: int, purpose: SeedPurpose) -> np.ndarray:
    """A uniformly random order of 0..length-1, written down, on the host; one for each seed and purpose."""
    order = np.arange(length)
    np.random.default_rng([seed, int(purpose)]).shuffle(order)
    return order


def epoch_words(key: Key, epoch: Array, count: int) -> Array:
    """`count` random 32-bit words for an epoch, hashed from the key and the epoch's number.

    The order of a shuffle needs no cryptographic generator, and a few multiplications compile ten times faster.
    """
    first, second = jax.random.key_data(key).reshape(-1)[:2]
    counters = jnp.asarray(epoch, jnp.uint32) * jnp.uint32(count) + jnp.arange(count, dtype=jnp.uint32)
    return _mix(first ^ _mix(counters ^ _mix(second)))


def scale_word(word: Array, length: int) -> Array:
    """A random 32-bit word as an integer 0..length-1; each within 2^-32 of its probability 1/length."""
    return multiply_high(word, jnp.uint32(length)).astype(jnp.int32)


def uniform_index(key: Key, shape: tuple[int, ...], length: int) -> Array:
    """Uniform integers 0..length-1.

    One 32-bit word each, scaled by a multiply-high: several times cheaper than `jax.random.randint`. No index is more
    than 2^-32 off its probability; beyond 2^22 rows, where that begins to count, two words make it 2^-64. (There
    `randint` reduces a single word modulo the length, which favours small indices by up to length / 2^32.)
    """
    if length <= 1 << 22:
        return scale_word(jax.random.bits(key, shape, jnp.uint32), length)
    high, low = jax.random.bits(key, (2, *shape), jnp.uint32)
    m = jnp.uint32(length)
    below = high * m
    carry = (below + multiply_high(low, m)) < below
    return (multiply_high(high, m) + carry.astype(jnp.uint32)).astype(jnp.int32)


def multiply_high(a: Array, b: Array) -> Array:
    """The upper 32 bits of the product of two 32-bit words, without 64-bit arithmetic."""
    mask = jnp.uint32(0xFFFF)
    a_low, a_high, b_low, b_high = a & mask, a >> 16, b & mask, b >> 16
    low, cross = a_low * b_low, a_high * b_low
    middle = (low >> 16) + (cross & mask) + a_low * b_high
    return a_high * b_high + (cross >> 16) + (middle >> 16)


def _mix(x: Array) -> Array:
    """A 32-bit finaliser with low bias: every input bit reaches every output bit."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)
