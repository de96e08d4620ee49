"""Gamma variables of any shape: Marsaglia & Tsang (2000), by whole arrays."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from scirocco._random import key_words
from scirocco.diffusions._rounds import sample
from scirocco.diffusions._words import normal_quantile, uniforms
from scirocco.types import Array, ArrayLike, Key

_PLACES = 32
_BOOST_SLOT = 0
_FIRST_SLOT = 1


@partial(jax.jit, static_argnames="log")
def gamma(key: Key, shape: ArrayLike, *, log: bool = False) -> Array:
    r"""Independent Gamma(shape, 1) variables, exact, for shapes from 10⁻⁴ to 10⁶ and beyond.

    With d = α - 1/3, c = 1/√(9d), a normal x and a uniform u, v = (1 + cx)³ d is accepted when
    log u < x²/2 + d - dv + d log v. A shape α below 1 is raised by one and the variable multiplied with u^(1/α).

    Parameters
    ----------
    key
        A JAX key; the numbers follow from it alone.
    shape
        α > 0, any shape of array, single or double precision; below 0 the result is NaN.
    log
        Return the logarithms. Small shapes underflow otherwise: Gamma(10⁻³) is below the smallest single-precision
        number nine times in ten. 0 then stands for what is too small.

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


def accepted_gamma(words: Array, index: Array, alpha: Array) -> Array:
    """Gamma(α) where α ≥ 1, Gamma(α + 1) below; uses the slots from 1 on."""

    def attempt(index: Array, slot: Array, alpha: Array) -> tuple[Array, Array]:
        return _attempt(words, index, slot, alpha)

    return sample(attempt, index, alpha, _FIRST_SLOT, _PLACES)


def _attempt(words: Array, index: Array, slot: Array, alpha: Array) -> tuple[Array, Array]:
    first, second = uniforms(words, index, slot, alpha.dtype)
    d = jnp.where(alpha < 1.0, alpha + 1.0, alpha) - 1.0 / 3.0
    y = normal_quantile(first) / jnp.sqrt(9.0 * d)
    inside = ~(y <= -1.0)  # written so that NaN is accepted, and goes through instead of going round for ever
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
    """Illegal parameters give NaN, which the run's checks see, and not a number that looks like a draw."""
    return jnp.where(legal, value, jnp.nan)
