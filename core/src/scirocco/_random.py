"""Random words and standard normals, computed directly with the Threefry generator.

`jax.random.normal` uses the same generator, but discards half of its output and is compiled as a loop. Here both
words of every call are used and the rounds are unrolled, so that XLA makes one fused kernel of generator and
quantile function: half the time to run, a third of the time to compile. Generators other than Threefry use
`jax.random`.
"""

from __future__ import annotations

import enum
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.types import Array, Key

# Threefry-2x32 (Salmon et al. 2011): the rotations of eight rounds, and the word that makes the keys' parity odd
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA  # as in the paper


class Purpose(enum.IntEnum):
    """The purpose of a key that is derived from a run's key.

    The run's key is folded with chain numbers, counted from 0, for the chains themselves; purposes count down from
    2³² - 1, so that they never coincide. A number that has been used must not change: the draws depend on it.
    """

    MODE_CLIMB = 0xFFFFFFFF
    MODE_ROWS = 0xFFFFFFFE
    PILOT = 0xFFFFFFFD
    START = 0xFFFFFFFC
    REWARD_ROWS = 0xFFFFFFFB
    TUNING = 0xFFFFFFFA
    ROUNDNESS = 0xFFFFFFF9
    ALARM = 0xFFFFFFF8
    LOCALS = 0xFFFFFFF7


class SeedPurpose(enum.IntEnum):
    """The purpose of a NumPy generator made from a seed: `numpy.random.default_rng([seed, purpose])`."""

    CORPUS_ORDER = 0xC0
    RESIDENT_ORDER = 0x5C1
    DEALT_ORDER = 0x5A4D
    SHARD_SEED = 0x5EED
    FOLDER_ORDER = 0xDA7A
    PLACES = 0x97ACE
    ROUNDNESS = 0x40D
    MODES = 0x30DE5
    ALARM = 0xA1A23
    LOO_ROWS = 0x100
    CHECKED_ROWS = 0xC4EC
    CALIBRATION = 0x5BC
    GROUPS = 0x6709


def key_of(seed: int) -> Key:
    """`jax.random.key(seed)` for a seed below 2³², without a program where that is possible."""
    if str(jax.config.jax_default_prng_impl) != "threefry2x32":  # type: ignore[attr-defined]
        return jax.random.key(seed)
    return jax.random.wrap_key_data(jax.device_put(np.array([0, seed], np.uint32)), impl="threefry2x32")


def key_for(key: Key, purpose: Purpose) -> Key:
    """The key for one purpose of a run: `jax.random.fold_in`, without a program where that is possible."""
    if isinstance(key, jax.core.Tracer) or not str(jax.random.key_impl(key)).startswith("threefry"):
        return jax.random.fold_in(key, int(purpose))
    words = [np.array([word]) for word in np.asarray(jax.random.key_data(key))]
    folded = threefry(words, np.zeros(1, np.uint32), np.array([purpose], np.uint32), np)
    return jax.random.wrap_key_data(jax.device_put(np.concatenate(folded)), impl=jax.random.key_impl(key))


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
        return as_normal(jnp.concatenate(pairs)[:size]).astype(dtype)
    return (2.0**0.5 * jax.scipy.special.erfinv(uniform)).astype(dtype)


def normals_in_pairs(key: Key, first: int, shape: tuple[int, ...]) -> Array:
    """Standard normals (float32), of which numbers 2i and 2i + 1 come from call number `first` + i of the generator.

    A GPU makes them in the kernel that uses them, so that they take no memory: a thread makes neighbours, and the
    compiler sees that a pair needs one call.
    """
    words, size = jax.random.key_data(key), math.prod(shape)
    if jax.default_backend() == "cpu":
        pairs = threefry(words, first + jnp.arange((size + 1) // 2, dtype=jnp.uint32))
        return as_normal(jnp.stack(pairs, axis=-1).reshape(-1)[:size]).reshape(shape)
    index = jnp.arange(size, dtype=jnp.uint32).reshape(shape)
    even, odd = threefry(words, first + (index >> 1))
    return as_normal(jnp.where((index & 1) == 1, odd, even))


def as_normal(words: Array) -> Array:
    uniform = ((words >> 9).astype(jnp.float32) + 0.5) * jnp.float32(2.0**-22) - 1.0  # symmetric, never -1 or 1
    return 2.0**0.5 * _erfinv(uniform)


# the polynomials of Giles (2012) for single precision, in w - 5/2 and √w - 3, highest power first
_CENTRE = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 2.1858087e-04),
    *(-1.25372503e-03, -4.17768164e-03, 2.46640727e-01, 1.50140941),
)
_TAIL = (  # the same for |erf| near 1
    *(-2.00214257e-04, 1.00950558e-04, 1.34934322e-03, -3.67342844e-03, 5.73950773e-03),
    *(-7.6224613e-03, 9.43887047e-03, 1.00167406, 2.83297682),
)


def _erfinv(x: Array) -> Array:
    """erf⁻¹(x) = x p(w), w = -log(1 - x²), for |x| < 1.

    The product (1 - x)(1 + x), exact up to rounding, replaces 1 - x²: the tails lose no digits, and
    `log` is cheaper than `log1p`.
    """
    w = -jnp.log((1.0 - x) * (1.0 + x))
    near, far = w - 2.5, jnp.sqrt(w) - 3.0
    centre, tail = jnp.full_like(x, _CENTRE[0]), jnp.full_like(x, _TAIL[0])
    for a, b in zip(_CENTRE[1:], _TAIL[1:], strict=True):
        centre, tail = a + centre * near, b + tail * far
    return jnp.where(w < 5.0, centre, tail) * x


def key_words(key: Key) -> Array:
    """Two 32-bit words that represent a key of any kind."""
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        if not str(jax.random.key_impl(key)).startswith("threefry"):
            return jax.random.bits(key, (2,), jnp.uint32)
        return jax.random.key_data(key)
    return key


def threefry(words: Any, low: Any, high: Any = 0, module: Any = jnp) -> tuple[Any, Any]:
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011) of the counters (low, high), two words for each.

    `module`: NumPy or jax.numpy.
    """
    keys = (words[0], words[1], words[0] ^ words[1] ^ np.uint32(_PARITY))
    x = low + keys[0]
    y = module.zeros(low.shape, np.uint32) + (keys[1] + module.asarray(high, np.uint32))
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = x + y
            y = ((y << rotation) | (y >> (32 - rotation))) ^ x
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x, y
