"""The Cox–Ingersoll–Ross process: exact transitions, for arrays of any shape."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from scirocco._random import key_words
from scirocco.diffusions import poissons
from scirocco.diffusions._words import normal_quantile, uniforms
from scirocco.diffusions.gammas import accepted_gamma, nan_unless, with_boost
from scirocco.types import Array, ArrayLike, Key

_BASE_SLOT = 0


@partial(jax.jit, static_argnames="log")
def cir(
    key: Key,
    theta: ArrayLike,
    shape: ArrayLike,
    time: ArrayLike,
    rate: ArrayLike = 1.0,
    *,
    log: bool = False,
) -> Array:
    r"""An exact transition of dθ = (a - bθ) dt + √(2θ) dW over the time t; its stationary law is Gamma(a, rate b).

    .. math::
        s = (1 - e^{-bt})/b, \qquad N \sim \mathrm{Poisson}(θ e^{-bt}/s), \qquad θ' = s\,\mathrm{Gamma}(a + N, 1)

    which is s/2 times a non-central χ² variable with 2a degrees of freedom and non-centrality 2θe^(-bt)/s. Where a ≥ ½
    no Poisson variable is needed: θ' = s [½(Z + √(2θe^(-bt)/s))² + Gamma(a - ½, 1)] with a standard normal Z.

    There is no discretisation error, whatever t is. θ = 0 is legal and is left at once; nothing is clipped. The rate
    may be 0 or negative (no stationary law then), and the transition is smooth in it. In the papers' notation
    dθ = b(μ - θ)dt + σ√θ dW, with time measured in units of 2/σ²: a = 2bμ/σ², rate = 2b/σ².

    Parameters
    ----------
    key
        A JAX key.
    theta
        θ ≥ 0; single or double precision decides the result's.
    shape
        a > 0.
    time
        t > 0.
    rate
        b.
    log
        Take and return log θ. Very small shapes need it: θ may be far below the smallest floating-point number.

    All four broadcast against each other. Illegal values (θ or a below 0, NaN) give NaN.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> theta = sc.diffusions.cir(jax.random.key(0), jnp.zeros(100_000), shape=0.1, time=50.0)
    >>> bool(abs(theta.mean() - 0.1) < 0.01)  # forgotten where it came from: Gamma(0.1, 1)
    True
    """
    start = jnp.asarray(theta)
    start = start.astype(jnp.result_type(start, jnp.float32))
    kind = start.dtype
    a, t, b = (jnp.asarray(value, kind) for value in (shape, time, rate))
    span, decay = scale(t, b), jnp.exp(-b * t)
    means = (jnp.exp(start) if log else start) * (decay / span)
    full = jnp.broadcast_shapes(means.shape, a.shape)
    mean, alpha = (jnp.broadcast_to(value, full).reshape(-1) for value in (means, a))
    units = _transition(key, alpha, mean, log).reshape(full)
    return jnp.log(span) + units if log else span * units


def scale(time: Array, rate: Array) -> Array:
    """s = (1 - e^(-bt))/b, which is t at b = 0 and positive for every b."""
    z = rate * time
    small = jnp.abs(z) < 1e-3
    series = 1.0 - z * (0.5 - z * (1.0 / 6 - z * (1.0 / 24)))
    return time * jnp.where(small, series, -jnp.expm1(-z) / jnp.where(small, 1.0, z))


def _transition(key: Key, alpha: Array, mean: Array, log: bool) -> Array:
    """Gamma(a + N) with N ~ Poisson(mean), or its logarithm; flat arrays."""
    words = key_words(key)
    index = jnp.arange(alpha.size, dtype=jnp.uint32)
    # One uniform makes the normal where there is one, and the Poisson variable elsewhere.
    first, boost = uniforms(words, index, _BASE_SLOT, alpha.dtype)
    by_normal = alpha >= 0.5
    number = poissons.counts(words, index, jnp.where(by_normal, 0.0, mean), first)
    rest = jnp.where(by_normal, alpha - 0.5, alpha + number)
    rest = nan_unless((mean >= 0.0) & (alpha > 0.0), rest)
    large = accepted_gamma(words, index, rest)
    root = normal_quantile(first) + jnp.sqrt(2.0 * mean)
    square = jnp.where(by_normal, 0.5 * root * root, 0.0)
    total = square + with_boost(large, rest, boost, log=False)
    if not log:
        return total
    tiny = jnp.finfo(
        alpha.dtype
    ).tiny  # a square can round to 0, and its logarithm would not be a number to go on with
    return jnp.where(by_normal, jnp.log(jnp.maximum(total, tiny)), with_boost(large, rest, boost, log=True))
