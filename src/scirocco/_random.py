"""Random words and standard normals, straight from the Threefry generator.

`jax.random.normal` uses the same generator, but throws half of its output away and is compiled as a loop. Here both
words of every call are used and the rounds are written out, so that XLA makes one fused kernel of generator and
quantile function: half the time to run, a third of the time to compile. Other generators than Threefry go through
`jax.random`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from scirocco.types import Array, Key

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def normal(key: Key, size: int, dtype: jnp.dtype) -> Array:
    """`size` independent standard normals."""
    if not str(jax.random.key_impl(key)).startswith("threefry"):
        return jax.random.normal(key, (size,), dtype)
    words = jax.random.key_data(key)
    if jnp.dtype(dtype) == jnp.float64:
        first, second = threefry(words, jnp.arange(size, dtype=jnp.uint32))
        long = (first.astype(jnp.uint64) << 32) | second.astype(jnp.uint64)
        uniform = ((long >> 12).astype(jnp.float64) + 0.5) * 2.0**-51 - 1.0
    else:
        pairs = threefry(words, jnp.arange((size + 1) // 2, dtype=jnp.uint32))
        uniform = (jnp.concatenate(pairs)[:size] >> 9).astype(jnp.float32)
        uniform = (uniform + 0.5) * jnp.float32(2.0**-22) - 1.0  # exact, symmetric, never -1 or 1
    return (2.0**0.5 * jax.scipy.special.erfinv(uniform)).astype(dtype)


def key_words(key: Key) -> Array:
    """Two 32-bit words that stand for a key of any kind."""
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        if not str(jax.random.key_impl(key)).startswith("threefry"):
            return jax.random.bits(key, (2,), jnp.uint32)
        return jax.random.key_data(key)
    return key


def threefry(words: Array, low: Array, high: Array | int = 0) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011) of the counters (low, high), two words for each."""
    keys = (words[0], words[1], words[0] ^ words[1] ^ jnp.uint32(_PARITY))
    x = low + keys[0]
    y = jnp.zeros(low.shape, jnp.uint32) + (keys[1] + jnp.asarray(high, jnp.uint32))
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = x + y
            y = ((y << rotation) | (y >> (32 - rotation))) ^ x
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return x, y
