"""Gamma and Poisson variables for whole arrays, by rejection.

Gamma variables of any shape by Marsaglia & Tsang (2000); Poisson variables by inversion for small means and transformed
rejection (Hörmann 1993) for large ones.

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

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from scirocco._random import key_words, threefry
from scirocco.types import Array, ArrayLike, Key

_GAMMA_PLACES, _POISSON_PLACES = (
    24,
    16,
)  # open entries of a block that are packed at a time; a few more than are usual
_BOOST_SLOT, _GAMMA_SLOT, _POISSON_SLOT = 0, 1, 1 << 30  # uses of numbers: disjoint ranges
_ATTEMPTS = 6  # of `gamma_attempts`, see there
_SMALL_MEAN = 10.0  # from here on transformed rejection, whose constants are valid from 10 on


@partial(jax.jit, static_argnames="log")
def gamma(key: Key, shape: ArrayLike, *, log: bool = False) -> Array:
    r"""Independent Gamma(shape, 1) variables, exact, for shapes from 10⁻⁴ to 10⁶ and beyond.

    With d = α - 1/3, c = 1/√(9d), a normal x and a uniform u, v = (1 + cx)³ d is accepted when
    log u < x²/2 + d - dv + d log v. A shape α below 1 is raised by one and the variable multiplied with u^(1/α).

    Parameters
    ----------
    key
        A JAX key, which determines the result.
    shape
        α > 0, any shape of array, single or double precision; below 0 the result is NaN.
    log
        Return the logarithms. Small shapes underflow otherwise: Gamma(10⁻³) is below the smallest single-precision
        number nine times in ten, and the result is 0.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> g = sc.diffusions.gamma(jax.random.key(0), jnp.full(100_000, 3.0))
    >>> bool(abs(g.mean() - 3.0) < 0.05)
    True
    """
    alpha = jnp.asarray(shape)
    alpha = alpha.astype(jnp.result_type(alpha, jnp.float32))
    flat = nan_unless(alpha >= 0.0, alpha).reshape(-1)
    words = key_words(key)
    index = jnp.arange(flat.size, dtype=jnp.uint32)
    boost, _ = uniforms(words, index, _BOOST_SLOT, flat.dtype)
    large = accepted_gamma(words, index, flat)
    out = with_boost(large, flat, boost, log)
    return out.reshape(alpha.shape)


def gamma_attempts(words: Array, alpha: Array, log: bool = False) -> Array:
    """Gamma(α), or its logarithm, with a fixed number of attempts for every entry: accelerators wait for loops.

    The first accepted attempt is looked for, then computed again: the program contains two of them, not six. One fails
    with a probability below 0.05, and the last is taken in any case: an error in distribution below 0.05⁶ = 2·10⁻⁸,
    less than the rounding of single precision. α = 0 gives 0.
    """
    index = jnp.arange(alpha.size, dtype=jnp.uint32).reshape(alpha.shape)
    boost, _ = uniforms(words, index, _BOOST_SLOT, alpha.dtype)
    attempts = jnp.arange(_ATTEMPTS, dtype=jnp.uint32).reshape(-1, *(1,) * alpha.ndim)
    _, accepted = _attempt_gamma(words, index[None], attempts + _GAMMA_SLOT, alpha[None])
    accepted = jax.lax.optimization_barrier(accepted)  # bytes in memory: fused into the minimum, it is not vectorised
    first = jnp.min(jnp.where(accepted, attempts, _ATTEMPTS - 1), axis=0)
    value, _ = _attempt_gamma(words, index, first + _GAMMA_SLOT, alpha)
    return with_boost(value, alpha, boost, log)


def accepted_gamma(words: Array, index: Array, alpha: Array) -> Array:
    """Gamma(α) where α ≥ 1, Gamma(α + 1) below; uses the slots from 1 on."""

    def attempt(index: Array, slot: Array, alpha: Array) -> tuple[Array, Array]:
        return _attempt_gamma(words, index, slot, alpha)

    return sample(attempt, index, alpha, _GAMMA_SLOT, _GAMMA_PLACES)


def _attempt_gamma(words: Array, index: Array, slot: Array, alpha: Array) -> tuple[Array, Array]:
    first, second = uniforms(words, index, slot, alpha.dtype)
    d = jnp.where(alpha < 1.0, alpha + 1.0, alpha) - 1.0 / 3.0
    y = normal_quantile(first) / jnp.sqrt(9.0 * d)
    inside = ~(y <= -1.0)  # written so that NaN is accepted and does not loop forever
    safe = jnp.where(inside, y, 0.0)
    # x²/2 + d - dv + d log v, with x² = 9dy² and v = (1 + y)³, free of cancellation for large d
    exponent = 3.0 * d * (jnp.log1p(safe) - safe + safe * safe * (0.5 - safe * (1.0 / 3.0)))
    root = 1.0 + safe
    return d * root * root * root, inside & ~(jnp.log(second) >= exponent)


def with_boost(large: Array, alpha: Array, uniform: Array, log: bool) -> Array:
    """From Gamma(α + 1) to Gamma(α) = Gamma(α + 1) u^(1/α), where α < 1; α = 0 gives 0."""
    exponent = jnp.where(alpha < 1.0, jnp.log(uniform) / alpha, 0.0)
    return jnp.log(large) + exponent if log else large * jnp.exp(exponent)


def nan_unless(legal: Array, value: Array) -> Array:
    """Invalid parameters give NaN, which the run's checks detect, and not a number that looks like a draw."""
    return jnp.where(legal, value, jnp.nan)


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
    return poisson_counts(words, index, flat, uniform).astype(jnp.int32).reshape(rates.shape)


def poisson_counts(words: Array, index: Array, mean: Array, uniform: Array) -> Array:
    """Poisson(mean) as floating-point numbers; `uniform` decides the small ones, slots from 2³⁰ on the large ones."""
    large = mean >= _SMALL_MEAN
    small = _invert(uniform, jnp.where(large, 0.0, mean))

    def attempt(index: Array, slot: Array, mean: Array) -> tuple[Array, Array]:
        return _attempt_poisson(words, index, slot, mean)

    return finish(attempt, mean, small, ~large, _POISSON_SLOT, _POISSON_PLACES)


def _invert(uniform: Array, mean: Array) -> Array:
    """The number of n with P(N > n) above the uniform.

    Unrolled as far as the uniform can distinguish probabilities from 0: one fused kernel, no loop. Going down from
    P(N > 0) keeps the small tail probabilities exact where the mean is small.
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


def _attempt_poisson(words: Array, index: Array, slot: Array, mean: Array) -> tuple[Array, Array]:
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


BLOCK = 128  # entries that are packed together: a triangle of ones of this size is in the cache
_SMALL = 2_048  # entries of which packing is not worth its program
_FEW_PLACES = 8  # of a block that has been packed once

Attempt = Callable[[Array, Array, Array], tuple[Array, Array]]
"""(index, slot, parameter) -> (proposal, accepted), entry by entry."""


def sample(attempt: Attempt, index: Array, parameter: Array, first_slot: int, places: int) -> Array:
    """Attempts from number `first_slot` on, until every entry has a value."""
    if parameter.size <= _SMALL:
        nothing = jnp.zeros(parameter.shape, bool)
        return _until_accepted(attempt, index, parameter, jnp.zeros_like(parameter), nothing, first_slot)
    value, accepted = attempt(index, jnp.asarray(first_slot, jnp.uint32), parameter)
    return finish(attempt, parameter, value, accepted, first_slot + 1, places)


def finish(attempt: Attempt, parameter: Array, value: Array, done: Array, first_slot: int, places: int) -> Array:
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


def _few_more(attempt: Attempt, index: Array, parameter: Array, value: Array, done: Array, first_slot: int) -> Array:
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
