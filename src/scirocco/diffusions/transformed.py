"""Laws that are functions of Cox–Ingersoll–Ross processes: generalised gamma (powers) and Beta (a ratio of two)."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from scirocco.diffusions.cox_ingersoll_ross import cir
from scirocco.types import Array, ArrayLike, Key


@jax.jit
def generalised_gamma(
    key: Key, x: ArrayLike, shape: ArrayLike, time: ArrayLike, power: ArrayLike = 1.0, rate: ArrayLike = 1.0
) -> Array:
    r"""An exact transition whose stationary density is ∝ x^(pa - 1) exp(-b x^p): x = θ^(1/p) for a CIR process θ.

    p = 1 is the gamma law, p = 2 and b = ¼ the one behind the Langevin view of SCIR (supplement A.2), a = 1 Weibull's.

    Parameters
    ----------
    key
        A JAX key.
    x
        ≥ 0.
    shape, rate
        a > 0 and b of the CIR process x^p.
    time
        t > 0.
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


@partial(jax.jit, static_argnames="log")
def beta_pair(key: Key, pair: ArrayLike, shapes: ArrayLike, time: ArrayLike, *, log: bool = False) -> Array:
    r"""An exact transition of two CIR processes (θ₁, θ₂); x = θ₁ / (θ₁ + θ₂) then has the stationary law Beta(a₁, a₂).

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
