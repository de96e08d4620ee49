r"""Ratings to come, from posterior draws.

Given a draw a new rating is normal with mean offset + U_i·V_j + a_i + b_j and variance 1/τ. A user without ratings has
U_i ~ N(0, I/λ_U) and a_i ~ N(0, 1/λ_a), whatever the chain says of it: integrated out, the mean loses these terms and
the variance gains |V_j|²/λ_U + 1/λ_a; likewise for an item. (Where both are new, U_i·V_j has the variance D/(λ_U λ_V),
and is taken as normal.) The predictive law is the mixture of these normals over the draws.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.types import Array

_NUMBERS = 1 << 22
_HALVINGS = 30


class Known(NamedTuple):
    """Which users and which items have ratings."""

    users: np.ndarray
    items: np.ndarray


class Parts(NamedTuple):
    """Of each draw and pair (draw, pair): the mean, the variance of the mean rating, and of the rating about it."""

    mean: Array
    spread: Array
    noise: Array


def parts(draws: dict[str, Any], tau: Any, known: Known, users: np.ndarray, items: np.ndarray) -> Parts:
    """For pairs that fit into memory; `draws` have one leading axis."""
    return _parts(draws, tau, known.users[users], known.items[items], users, items)


@jax.jit
def _parts(draws: Any, tau: Any, old_user: Any, old_item: Any, users: Any, items: Any) -> Parts:
    def one(draw: tuple[Any, Any]) -> Parts:
        params, tau = draw
        lam_u, lam_v, lam_a, lam_b = params["precisions"]
        left, right = params["users"][users], params["items"][items]
        mean = jnp.where(old_user & old_item, jnp.sum(left * right, axis=1), 0.0)
        mean += jnp.where(old_user, params["user_bias"][users], 0.0)
        mean += jnp.where(old_item, params["item_bias"][items], 0.0)
        size = left.shape[1]
        square_u = jnp.where(old_user, jnp.sum(left**2, axis=1), size / lam_u)
        square_v = jnp.where(old_item, jnp.sum(right**2, axis=1), size / lam_v)
        # one side new: |known|² over the other's precision; both new: D / (λ_U λ_V)
        spread = jnp.where(old_user, 0.0, square_v / lam_u + 1 / lam_a)
        spread += jnp.where(old_item, 0.0, 1 / lam_b + jnp.where(old_user, square_u / lam_v, 0.0))
        return Parts(mean, spread, jnp.full_like(mean, 1.0) / tau)

    return jax.lax.map(one, (draws, tau))


def pieces(num_draws: int, num_pairs: int) -> list[slice]:
    """Stretches of pairs for which the numbers of all draws fit into memory; an empty one where there are no pairs."""
    length = max(1, _NUMBERS // max(1, num_draws))
    return [slice(start, min(start + length, num_pairs)) for start in range(0, max(1, num_pairs), length)]


@partial(jax.jit, static_argnums=1)
def quantile(found: Parts, noisy: bool, level: Array) -> Array:
    """Of the mixture of normals for each pair, by bisection of its distribution function."""
    spread = jnp.sqrt(found.spread + (found.noise if noisy else 0.0))
    reach = 8.0 * jnp.max(spread, axis=0) + 1e-6
    low, high = jnp.min(found.mean, axis=0) - reach, jnp.max(found.mean, axis=0) + reach

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        below = jnp.mean(_below(middle - found.mean, spread), axis=0) < level
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (low, high))
    return 0.5 * (low + high)


def _below(distance: Array, spread: Array) -> Array:
    """P(N(0, spread²) < distance); a step where there is no spread."""
    scaled = distance / jnp.where(spread > 0, spread, 1.0)
    return jnp.where(spread > 0, jax.scipy.special.ndtr(scaled), (distance >= 0).astype(distance.dtype))


@jax.jit
def moments(found: Parts) -> tuple[Array, Array]:
    """Mean and standard deviation of a new rating, for each pair."""
    mean = jnp.mean(found.mean, axis=0)
    variance = jnp.mean(found.spread + found.noise + (found.mean - mean) ** 2, axis=0)
    return mean, jnp.sqrt(variance)


@jax.jit
def log_density(found: Parts, ratings: Array) -> Array:
    """log of the mean over draws of the density of each rating."""
    variance = found.spread + found.noise
    each = -0.5 * ((ratings - found.mean) ** 2 / variance + jnp.log(2 * jnp.pi * variance))
    return jax.scipy.special.logsumexp(each, axis=0) - jnp.log(each.shape[0])
