"""The Ornstein–Uhlenbeck process and its exponential: exact transitions for normal and log-normal targets."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from scirocco import _random
from scirocco.types import Array, ArrayLike, Key


@jax.jit
def ornstein_uhlenbeck(
    key: Key,
    x: ArrayLike,
    mean: ArrayLike,
    time: ArrayLike,
    rate: ArrayLike = 1.0,
    variance: ArrayLike = 1.0,
) -> Array:
    r"""An exact transition of dx = b(m - x) dt + √(2bv) dW over the time t; its stationary law is N(m, v).

    .. math::
        x' = m + (x - m) e^{-bt} + \sqrt{v (1 - e^{-2bt})}\,ξ

    With a normal posterior N(m, v), an unbiased estimate of m from a minibatch in its place gives a sampler without
    discretisation error, as SCIR is for gamma laws.

    Parameters
    ----------
    key
        A JAX key.
    x
        Where the process is.
    mean, variance
        m, and v > 0.
    time, rate
        t > 0 and b > 0.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> x = sc.diffusions.ornstein_uhlenbeck(jax.random.key(0), jnp.zeros(100_000), mean=2.0, time=30.0)
    >>> bool(abs(x.mean() - 2.0) < 0.02)
    True
    """
    x = jnp.asarray(x)
    x = x.astype(jnp.result_type(x, jnp.float32))
    m, t, b, v = (jnp.asarray(value, x.dtype) for value in (mean, time, rate, variance))
    noise = jnp.sqrt(v * -jnp.expm1(-2.0 * b * t))
    full = jnp.broadcast_shapes(x.shape, m.shape, noise.shape)
    size = 1
    for length in full:
        size *= length
    xi = _random.normal(key, size, x.dtype).reshape(full)
    return m + (x - m) * jnp.exp(-b * t) + noise * xi


@jax.jit
def log_normal(
    key: Key,
    x: ArrayLike,
    mean: ArrayLike,
    time: ArrayLike,
    rate: ArrayLike = 1.0,
    variance: ArrayLike = 1.0,
) -> Array:
    """An exact transition whose stationary law is log-normal: x = e^y, where y is Ornstein–Uhlenbeck with law N(m, v).

    (The process that the SCIR paper, section 3.3, calls geometric Brownian motion; that one has no stationary law.)

    Parameters
    ----------
    key
        A JAX key.
    x
        > 0.
    mean, variance
        m and v of log x.
    time, rate
        t > 0 and b > 0.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> x = sc.diffusions.log_normal(jax.random.key(0), jnp.ones(100_000), mean=1.0, time=30.0, variance=0.25)
    >>> bool(abs(jnp.log(x).mean() - 1.0) < 0.02)
    True
    """
    return jnp.exp(ornstein_uhlenbeck(key, jnp.log(jnp.asarray(x)), mean, time, rate, variance))
