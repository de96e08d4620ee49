"""Uniforms and normals by counter: entry number `index` of an array, use number `slot`.

A number follows from (key, index, slot) alone. So a rejection round can be made for some entries of an array and not
for others, in any order and any grouping, and the outcome is the same; and because the generator is plain arithmetic,
XLA fuses it with whatever uses the numbers, instead of writing them to memory first.
"""

from __future__ import annotations

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
