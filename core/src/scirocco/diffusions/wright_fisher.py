"""Exact transitions of the Wright–Fisher diffusion (the Jacobi process for two components), by its ancestral process.

The number M of ancestors after the time t has the probabilities (Griffiths 1980; Tavaré 1984), with θ = Σ a_i,

    q_m(t) = Σ_{k ≥ m} (-1)^(k-m) (θ + 2k - 1) (m + θ)_(k-1) / (m! (k - m)!) e^(-k(k+θ-1)t/2).

The terms alternate and are as large as e^(c/t), so that double precision loses everything for short times. The table of
q is therefore computed once for each (t, θ), on the host, in decimals with as many digits as its largest term requires.
"""

from __future__ import annotations

import decimal
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks
from scirocco.diffusions.variates import gamma
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.types import Array, ArrayLike, Key

SHORTEST_TIME = 0.002  # for which the probabilities take 3 s
_WIDTH = 12.0  # standard deviations of the number of ancestors within which it is


def wright_fisher(key: Key, x: ArrayLike, shapes: ArrayLike, time: float) -> Array:
    r"""An exact transition of the Wright–Fisher diffusion, with stationary distribution Dirichlet(a) on the simplex.

    .. math::
        dx_i = \tfrac12 (a_i - θ x_i)\, dt + \sum_j \sqrt{x_i} (δ_{ij} - \sqrt{x_i x_j})\, dW_j, \qquad θ = \sum_i a_i

    with the covariance x_i(δ_ij - x_j) per unit of time. For two components x₁ is the Jacobi process
    dx = ½(a₁ - θx)dt + √(x(1-x)) dW with stationary distribution Beta(a₁, a₂). Unlike ratios of CIR processes
    (`beta_pair`) it is a Markov process by itself. The transition is a mixture (Jenkins & Spanò 2017):

    M ancestors are left after the time t, L ~ Multinomial(M, x) are their types, and x' ~ Dirichlet(a + L).

    **Cost.** M is about 2/t. Its probabilities are computed once for each (t, θ) and kept; that takes about t^(-1.5)
    operations with numbers of about 1/t digits: 0.004 s at t = 0.1, 0.1 s at 0.01, 3 s at the shortest time that is
    allowed, 0.002. A draw then costs a binomial and a gamma variable for each component. For shorter times use
    `cir` or `beta_pair`, whose cost does not depend on the time.

    Parameters
    ----------
    key
        A JAX key.
    x
        Points of the simplex, along the last axis.
    shapes
        a_i > 0, along the last axis: one vector for all points, known when it is called (not traced).
    time
        t, at least 0.002; a number.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> start = jnp.broadcast_to(jnp.array([0.9, 0.1]), (100_000, 2))
    >>> x = sc.diffusions.wright_fisher(jax.random.key(0), start, [2.0, 3.0], time=0.5)
    >>> bool(abs(x[:, 0].mean() - (0.4 + 0.5 * jnp.exp(-5 * 0.5 / 2))) < 0.005)  # the mean decays at the rate θ/2
    True
    """
    sizes, length = _known(shapes, time)
    x = jnp.asarray(x)
    if x.shape[-1:] != sizes.shape:
        raise InvalidValueError(
            f"`x` has {x.shape[-1] if x.ndim else 0} components along its last axis and `shapes` {sizes.size}."
        )
    first, chances = ancestors(float(sizes.sum()), length)
    return _drawn(key, x.astype(jnp.result_type(x, jnp.float32)), sizes, first, np.cumsum(chances))


def inverse_transform(cumulated: Array, uniform: Array) -> Array:
    """The number of entries of the cumulated probabilities that are below each uniform number."""
    return jnp.minimum(jnp.searchsorted(cumulated, uniform), cumulated.shape[0] - 1)


@jax.jit
def _drawn(key: Key, x: Array, shapes: ArrayLike, first: ArrayLike, cumulated: ArrayLike) -> Array:
    kind = x.dtype
    ancestors_key, types_key, last_key = jax.random.split(key, 3)
    uniform = jax.random.uniform(ancestors_key, x.shape[:-1], kind)
    left = (first + inverse_transform(jnp.asarray(cumulated, kind), uniform)).astype(kind)
    rest, types = jnp.ones_like(left), []
    for number in range(x.shape[-1] - 1):
        share = jnp.clip(x[..., number] / jnp.maximum(rest, jnp.finfo(kind).tiny), 0.0, 1.0)
        drawn = jax.random.binomial(jax.random.fold_in(types_key, number), left, share, dtype=kind)
        left, rest = left - drawn, rest - x[..., number]
        types.append(drawn)
    counts = jnp.stack([*types, left], axis=-1)
    return jax.nn.softmax(gamma(last_key, jnp.asarray(shapes, kind) + counts, log=True), axis=-1)


def _known(shapes: ArrayLike, time: float) -> tuple[np.ndarray, float]:
    if any(isinstance(each, jax.core.Tracer) for each in (shapes, time)):
        raise InvalidTypeError(
            "`shapes` and `time` of wright_fisher must be known when it is called, because the probabilities of the "
            "number of ancestors are computed on the host: pass them as numbers, not as arguments of a jitted function."
        )
    sizes = np.asarray(shapes, np.float64)
    if sizes.ndim != 1 or sizes.size < 2 or not (np.all(np.isfinite(sizes)) and np.all(sizes > 0)):
        raise InvalidValueError(f"`shapes` must be a vector of at least two numbers > 0, got {shapes!r}.")
    _checks.positive(time, "time")
    length = float(time)
    if length < SHORTEST_TIME:
        raise InvalidValueError(
            f"wright_fisher takes times of at least {SHORTEST_TIME}, got {length:g}: the exact probabilities of its "
            "ancestors would take minutes. Use sc.diffusions.beta_pair or cir, whose cost does not depend on the time."
        )
    return sizes, length


@functools.lru_cache(maxsize=64)
def ancestors(total: float, time: float) -> tuple[int, np.ndarray]:
    """Probabilities of the numbers of ancestors, without those below 10⁻¹⁷, and the first of these numbers."""
    mean, sd = _about(total, time)
    first, last = max(0, int(mean - _WIDTH * sd - 5)), int(mean + _WIDTH * sd + 15)
    digits = 30 + int(max(_largest_term(number, total, time) for number in (first, int(mean), last)) / math.log(10))
    with decimal.localcontext(decimal.Context(prec=digits)):
        theta, length = decimal.Decimal(total), decimal.Decimal(time)
        step, base = (-length).exp(), (-theta * length / 2).exp()
        decays = [base]  # e^(-(2k + θ)t/2)
        while len(decays) < 6 * last + 50:
            decays.append(decays[-1] * step)
        found = np.array([float(_probability(number, theta, decays)) for number in range(first, last + 1)])
    found = np.maximum(found, 0.0)
    return first, found / found.sum()


def _probability(number: int, theta: decimal.Decimal, decays: list[decimal.Decimal]) -> decimal.Decimal:
    """q_m: the terms by their ratios, until they are negligible."""
    term = decimal.Decimal(1)  # k = m
    for i in range(number):  # e^(-m(m+θ-1)t/2) (θ + 2m - 1) (m + θ)_(m-1) / m!, factor by factor
        term *= decays[i] * (number + theta + i - 1) / (i + 1)
    if number:
        term *= (theta + 2 * number - 1) / (number + theta - 1)
    total, k, negligible = term, number, decimal.Decimal("1e-25")
    while k + 1 < len(decays):
        top = theta + 1 if k == 0 else (theta + 2 * k + 1) / (theta + 2 * k - 1) * (number + theta + k - 1)
        term *= -decays[k] * top / (k + 1 - number)
        total, k = total + term, k + 1
        if abs(term) < negligible:
            break
    return total


def _about(total: float, time: float) -> tuple[float, float]:
    """About the mean of the number of ancestors (Griffiths 1984), and a bound for its standard deviation."""
    beta = (total - 1.0) * time / 2.0
    mean = 2.0 / time * (1.0 if abs(beta) < 1e-9 else beta / math.expm1(min(beta, 700.0)))
    return mean, math.sqrt(2.0 / (3.0 * time)) + 1.0


def _largest_term(number: int, total: float, time: float) -> float:
    """The logarithm of the largest term of q_m."""
    k = np.arange(max(number, 1), 6 * number + 50, dtype=np.float64)
    gammas = [math.lgamma(number + total + each - 1) - math.lgamma(each - number + 1) for each in k]
    logs = np.log(total + 2 * k - 1) + gammas - k * (k + total - 1) * time / 2
    return max(0.0, float(np.max(logs)) - math.lgamma(number + total) - math.lgamma(number + 1))
