"""Poisson variables by whole arrays: inversion for small means, transformed rejection (Hörmann 1993) for large ones."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from scirocco._random import key_words
from scirocco.diffusions._rounds import finish
from scirocco.diffusions._words import uniforms
from scirocco.types import Array, ArrayLike, Key

_PLACES = 16
_FIRST_SLOT = 1 << 30
_SMALL_MEAN = 10.0


@jax.jit
def poisson(key: Key, mean: ArrayLike) -> Array:
    """Independent Poisson(mean) variables, exact, for means from 0 to 10⁹; as 32-bit integers.

    Parameters
    ----------
    key
        A JAX key.
    mean
        λ ≥ 0, any shape of array, single or double precision.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> n = sc.diffusions.poisson(jax.random.key(0), jnp.array([0.0, 0.3, 1e4]))
    >>> int(n[0]), n.dtype.name
    (0, 'int32')
    """
    rates = jnp.asarray(mean)
    rates = rates.astype(jnp.result_type(rates, jnp.float32))
    flat = rates.reshape(-1)
    words = key_words(key)
    index = jnp.arange(flat.size, dtype=jnp.uint32)
    uniform, _ = uniforms(words, index, 0, flat.dtype)
    return counts(words, index, flat, uniform).astype(jnp.int32).reshape(rates.shape)


def counts(words: Array, index: Array, mean: Array, uniform: Array) -> Array:
    """Poisson(mean) as floating-point numbers; `uniform` decides the small ones, slots from 2³⁰ on the large ones."""
    large = mean >= _SMALL_MEAN
    small = _invert(uniform, jnp.where(large, 0.0, mean))

    def attempt(index: Array, slot: Array, mean: Array) -> tuple[Array, Array]:
        return _attempt(words, index, slot, mean)

    return finish(attempt, mean, small, ~large, _FIRST_SLOT, _PLACES)


def _invert(uniform: Array, mean: Array) -> Array:
    """The number of n with P(N > n) above the uniform.

    Written out as far as the uniform can tell probabilities from 0: one fused kernel, no loop. Going down from P(N > 0)
    keeps the small tail probabilities exact where the mean is small.
    """
    terms = 48 if mean.dtype == jnp.float64 else 34
    probability = jnp.exp(-mean)
    tail = -jnp.expm1(-mean)
    number = jnp.zeros_like(mean)
    for n in range(1, terms + 1):
        number = number + (tail > uniform).astype(mean.dtype)
        probability = probability * mean * (1.0 / n)
        tail = tail - probability
    return number


def _attempt(words: Array, index: Array, slot: Array, mean: Array) -> tuple[Array, Array]:
    """Hörmann's algorithm PTRS."""
    first, second = uniforms(words, index, slot, mean.dtype)
    u = first - 0.5
    b = 0.931 + 2.53 * jnp.sqrt(mean)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    edge = 0.5 - jnp.abs(u)
    number = jnp.floor((2.0 * a / edge + b) * u + mean + 0.43)
    at_once = (edge >= 0.07) & (second <= 0.9277 - 3.6224 / (b - 2.0))
    never = (number < 0.0) | ((edge < 0.013) & (second > edge))
    height = jnp.log(second * inverse_alpha / (a / (edge * edge) + b))
    return number, at_once | (~never & (height <= log_probability(number, mean)))


def log_probability(number: Array, mean: Array) -> Array:
    """log P(N = n) by Stirling's series and the deviance n log(n/λ) + λ - n: no large terms cancel (Loader 2000)."""
    n = jnp.maximum(number, 1.0)
    relative = (n - mean) / mean
    deviance = mean * ((1.0 + relative) * jnp.log1p(relative) - relative)
    inverse = 1.0 / n
    series = inverse * (1.0 / 12 - inverse * inverse * (1.0 / 360 - inverse * inverse * (1.0 / 1260)))
    return jnp.where(number < 1.0, -mean, -0.5 * jnp.log(2.0 * math.pi * n) - series - deviance)
