"""Exact transitions of the Cox–Ingersoll–Ross and the Ornstein–Uhlenbeck process, for arrays of any shape.

Powers of a CIR process have generalised gamma distributions, a ratio of two has a Beta distribution; the exponential of
an Ornstein–Uhlenbeck process is log-normal.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from scirocco import _random
from scirocco._random import key_words
from scirocco.diffusions.variates import (
    accepted_gamma,
    nan_unless,
    normal_quantile,
    poisson_counts,
    uniforms,
    with_boost,
)
from scirocco.types import Array, ArrayLike, Key


@partial(jax.jit, static_argnames="log")
def cir(
    key: Key, theta: ArrayLike, shape: ArrayLike, time: ArrayLike, rate: ArrayLike = 1.0, *, log: bool = False
) -> Array:
    r"""An exact transition of dθ = (a - bθ) dt + √(2θ) dW over the time t; stationary distribution Gamma(a, rate b).

    .. math::
        s = (1 - e^{-bt})/b, \qquad N \sim \mathrm{Poisson}(θ e^{-bt}/s), \qquad θ' = s\,\mathrm{Gamma}(a + N, 1)

    which is s/2 times a non-central χ² variable with 2a degrees of freedom and non-centrality 2θe^(-bt)/s. Where a ≥ ½
    no Poisson variable is needed: θ' = s [½(Z + √(2θe^(-bt)/s))² + Gamma(a - ½, 1)] with a standard normal Z.

    There is no discretisation error for any t. θ = 0 is allowed and is left at once; nothing is clipped. The rate may
    be 0 or negative (without a stationary distribution), and the transition is smooth in it. In the papers' notation
    dθ = b(μ - θ)dt + σ√θ dW, with time measured in units of 2/σ²: a = 2bμ/σ², rate = 2b/σ².

    Parameters
    ----------
    key
        A JAX key.
    theta
        θ ≥ 0, in single or double precision, which is also that of the result.
    shape
        a > 0.
    time
        t > 0.
    rate
        b.
    log
        Take and return log θ. Very small shapes need it: θ may be far below the smallest floating-point number.

    All four broadcast against each other. Invalid values (θ or a below 0, t ≤ 0, NaN) give NaN or infinity; so do times
    and rates whose e^(-bt) overflows (a rate of -90 over one unit of time, in single precision).

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
    place = _Transition(start, a, scale(t, b), jnp.expm1(-b * t))
    full = jnp.broadcast_shapes(*(part.shape for part in place))
    flat = _Transition(*(jnp.broadcast_to(part, full).reshape(-1) for part in place))
    return (_log_transition if log else _transition)(key, flat).reshape(full)


class _Transition(NamedTuple):
    """A transition to be drawn, entry by entry."""

    start: Array
    """θ, or its logarithm."""
    alpha: Array
    span: Array
    """s."""
    shrink: Array
    """e^(-bt) - 1."""


class _Drawn(NamedTuple):
    """The random parts of θ' = θ e^(-bt) + s (square + gamma) where a ≥ ½, and θ' = s gamma elsewhere."""

    by_normal: Array
    square: Array
    """Z √(2m) + Z²/2, with m = θ e^(-bt)/s."""
    large: Array
    rest: Array
    boost: Array

    def gamma(self, log: bool) -> Array:
        return with_boost(self.large, self.rest, self.boost, log)


def scale(time: Array, rate: Array) -> Array:
    """s = (1 - e^(-bt))/b, which is t at b = 0 and positive for every b."""
    z = rate * time
    small = jnp.abs(z) < 1e-3
    series = 1.0 - z * (0.5 - z * (1.0 / 6 - z * (1.0 / 24)))
    return time * jnp.where(small, series, -jnp.expm1(-z) / jnp.where(small, 1.0, z))


def _transition(key: Key, at: _Transition) -> Array:
    """θ', written as a change of θ: a product of three rounded factors would drift when steps are short."""
    drawn = _draw(key, at.start, at)
    gamma = drawn.gamma(log=False)
    moved = at.start + (at.start * at.shrink + at.span * (drawn.square + gamma))
    return jnp.where(drawn.by_normal, jnp.maximum(moved, 0.0), at.span * gamma)


def _log_transition(key: Key, at: _Transition) -> Array:
    """log θ' = log θ + log(1 + (θ' - θ)/θ) where θ is large against the noise; from θ' itself elsewhere."""
    theta = jnp.exp(at.start)
    drawn = _draw(key, theta, at)
    added = at.span * (drawn.square + drawn.gamma(log=False))
    short = theta > 4.0 * at.span
    relative = at.shrink + added / jnp.where(short, theta, 1.0)
    near = at.start + jnp.log1p(jnp.where(short & (relative > -0.5), relative, 0.0))
    # a sum can round to 0, and its logarithm would be -inf from then on
    tiny = jnp.finfo(theta.dtype).tiny
    far = jnp.log(jnp.maximum(theta + (theta * at.shrink + added), tiny))
    by_gamma = jnp.log(at.span) + drawn.gamma(log=True)
    return jnp.where(drawn.by_normal, jnp.where(short & (relative > -0.5), near, far), by_gamma)


def _draw(key: Key, theta: Array, at: _Transition) -> _Drawn:
    words = key_words(key)
    index = jnp.arange(at.alpha.size, dtype=jnp.uint32)
    mean = theta * ((1.0 + at.shrink) / at.span)
    # One uniform makes the normal where there is one, and the Poisson variable elsewhere.
    first, boost = uniforms(words, index, 0, theta.dtype)
    by_normal = at.alpha >= 0.5
    number = poisson_counts(words, index, jnp.where(by_normal, 0.0, mean), first)
    rest = jnp.where(by_normal, at.alpha - 0.5, at.alpha + number)
    rest = nan_unless((mean >= 0.0) & (at.alpha > 0.0), rest)
    z = normal_quantile(first)
    square = z * (jnp.sqrt(2.0 * mean) + 0.5 * z)
    return _Drawn(by_normal, square, accepted_gamma(words, index, rest), rest, boost)


@jax.jit
def generalised_gamma(
    key: Key, x: ArrayLike, shape: ArrayLike, time: ArrayLike, power: ArrayLike = 1.0, rate: ArrayLike = 1.0
) -> Array:
    r"""An exact transition whose stationary density is ∝ x^(pa - 1) exp(-b x^p): x = θ^(1/p) for a CIR process θ.

    p = 1 is gamma, p = 2 and b = ¼ the distribution of the Langevin view of SCIR (supplement A.2), a = 1 Weibull.

    Parameters
    ----------
    key, shape, time, rate
        As for `cir`, of the process x^p.
    x
        ≥ 0.
    power
        p > 0.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> x = sc.diffusions.generalised_gamma(jax.random.key(0), jnp.ones(100_000), shape=1.5, time=40.0, power=2.0)
    >>> bool(abs((x**2).mean() - 1.5) < 0.03)
    True
    """
    x = jnp.asarray(x)
    x = x.astype(jnp.result_type(x, jnp.float32))
    p = jnp.asarray(power, x.dtype)
    return jnp.exp(cir(key, p * jnp.log(x), shape, time, rate, log=True) / p)


def inverse_gamma(key: Key, x: ArrayLike, shape: ArrayLike, time: ArrayLike, rate: ArrayLike = 1.0) -> Array:
    """An exact transition with inverse-gamma stationary distribution, ∝ x^(-a - 1) exp(-b/x): x = 1/θ of a CIR process.

    For variances of normal observations, whose posterior is inverse-gamma. The process satisfies
    dx = ((2 - a) x² + b x) dt + √(2 x³) dW.

    Parameters
    ----------
    key, shape, time, rate
        As for `cir`; the rate is > 0.
    x
        > 0; infinity is allowed and left at once.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> x = sc.diffusions.inverse_gamma(jax.random.key(0), jnp.ones(100_000), shape=5.0, time=40.0, rate=8.0)
    >>> bool(abs(x.mean() - 8.0 / 4) < 0.02)
    True
    """
    return generalised_gamma(key, x, shape, time, -1.0, rate)


@partial(jax.jit, static_argnames="log")
def beta_pair(key: Key, pair: ArrayLike, shapes: ArrayLike, time: ArrayLike, *, log: bool = False) -> Array:
    r"""An exact transition of two CIR processes (θ₁, θ₂); x = θ₁ / (θ₁ + θ₂) is then Beta(a₁, a₂) in equilibrium.

    The pair is the state: x alone is not a Markov process with a known transition.

    Parameters
    ----------
    key
        A JAX key.
    pair
        θ₁ and θ₂ along the last axis, ≥ 0 (their logarithms with `log`).
    shapes
        a₁ and a₂ along the last axis, > 0.
    time
        t > 0.
    log
        Take and return logarithms; x is then `jax.nn.sigmoid(pair[..., 0] - pair[..., 1])`, which never divides by 0.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> pair = sc.diffusions.beta_pair(jax.random.key(0), jnp.ones((100_000, 2)), jnp.array([2.0, 6.0]), time=40.0)
    >>> bool(abs((pair[:, 0] / pair.sum(axis=1)).mean() - 0.25) < 0.01)
    True
    """
    return cir(key, pair, shapes, time, log=log)


@jax.jit
def ornstein_uhlenbeck(
    key: Key, x: ArrayLike, mean: ArrayLike, time: ArrayLike, rate: ArrayLike = 1.0, variance: ArrayLike = 1.0
) -> Array:
    r"""An exact transition of dx = b(m - x) dt + √(2bv) dW over the time t, with stationary distribution N(m, v).

    .. math::
        x' = m + (x - m) e^{-bt} + \sqrt{v (1 - e^{-2bt})}\,ξ

    With a normal posterior N(m, v), replacing m by an unbiased estimate from a minibatch gives a sampler without
    discretisation error, as SCIR does for gamma distributions.

    Parameters
    ----------
    key
        A JAX key.
    x
        The current value of the process.
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
    xi = _random.normal(key, math.prod(full), x.dtype).reshape(full)
    return m + (x - m) * jnp.exp(-b * t) + noise * xi


@jax.jit
def log_normal(
    key: Key, x: ArrayLike, mean: ArrayLike, time: ArrayLike, rate: ArrayLike = 1.0, variance: ArrayLike = 1.0
) -> Array:
    """An exact transition with log-normal stationary distribution: x = e^y, y Ornstein–Uhlenbeck with N(m, v).

    (The SCIR paper, section 3.3, calls it geometric Brownian motion, which has no stationary distribution.)

    Parameters
    ----------
    key, mean, time, rate, variance
        As for `ornstein_uhlenbeck`, whose value is log x.
    x
        > 0.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> x = sc.diffusions.log_normal(jax.random.key(0), jnp.ones(100_000), mean=1.0, time=30.0, variance=0.25)
    >>> bool(abs(jnp.log(x).mean() - 1.0) < 0.02)
    True
    """
    return jnp.exp(ornstein_uhlenbeck(key, jnp.log(jnp.asarray(x)), mean, time, rate, variance))
