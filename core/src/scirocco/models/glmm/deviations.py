"""Moves of the blocked Gibbs sampler for the deviations and correlations of a factor's effects.

Given the effects they are known well, and where the rows say little about each effect they mix slowly: small deviations
need many sweeps to become smaller still. So they are also drawn with the effects integrated out, approximately, and new
effects with them; a Metropolis–Hastings step makes up for the approximation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from scirocco import transforms
from scirocco.model.groups import Root, cholesky, solve_lower, solve_transposed
from scirocco.models.glmm.density import Factor
from scirocco.models.glmm.layout import Layout, contribution, expansion, level_sums, of_rows, solve
from scirocco.types import Array, Key, Params

_STEPS, _WIDTHS = 15, {"sd": 0.7, "ro": 1.0}
"""Random-walk steps for deviations and correlations of a factor; their lengths, times the root of the levels."""
_LONGEST = 2.0
"""Length of the longest steps where effects are integrated out."""


class _Seen(NamedTuple):
    """What a random walk needs to know about a place."""

    root: Array
    """The Cholesky factor of the covariance of the effects."""
    prior: Array
    """The log prior of deviations and correlations, on the real line."""
    rows: Any
    """The result of `look`."""


def given_effects(layout: Layout, position: Params, factor: Factor, effects: Array, key: Key) -> Params:
    """Deviations and correlations given the effects, on which they depend by Σ b bᵀ alone."""
    count = effects.shape[1]
    squares = effects @ effects.T / count

    def gain(new: _Seen, old: _Seen) -> Array:
        """In differences: sums over all levels would lose the last digits."""
        after, before = new.root, old.root
        moved = solve(after, before - after)
        half = solve(before, solve(before, squares).T)  # L⁻¹ S L⁻ᵀ
        change = jnp.sum((moved + moved.T + moved.T @ moved) * half)
        ratio = jnp.diagonal(after) / jnp.diagonal(before)
        grown = jnp.diagonal(after - before) / jnp.diagonal(before)
        volume = jnp.sum(jnp.where(jnp.abs(grown) < 0.5, jnp.log1p(grown), jnp.log(ratio)))
        return -count * (volume + 0.5 * change)

    keys = jax.random.split(key, 3)
    spread = jnp.exp(jax.random.normal(keys[1], (_STEPS, 1), effects.dtype)) * (2.0 / np.sqrt(count))
    return _walk(layout, position, factor, lambda root: (), gain, spread, (keys[0], keys[2]))[0]


def with_effects(
    layout: Layout,
    data: dict[str, Any],
    position: Params,
    factor: Factor,
    effects: Array,
    eta: Array,
    reference: Array,
    key: Key,
) -> tuple[Params, Array, Array, Array]:
    """Deviations, correlations and effects of a factor together; position, effects, η, and the chance to move.

    The likelihood is expanded at the effects `reference`. Deviations make a random walk that leaves their distribution
    under this approximation, without effects, as it is; then effects are drawn given them. The approximation does not
    depend on either, so that the ratio of Metropolis and Hastings is that of its errors before and after: 1 for normal
    responses, and near 1 if the effects or what is unknown about them is small.
    """
    theta, count = layout.model.constrain(position), effects.shape[1]
    at = eta + contribution(data, factor, reference - effects)
    _, slope, matrix = expansion(layout, data, theta, factor, count, at)
    linear = slope + jnp.einsum("abn,bn->an", matrix, reference)

    def marginal(root: Array) -> tuple[Array, Root, Array]:
        """log ∫ over the effects L u of each level; the root C of the precision of u, and C⁻¹ Lᵀ h."""
        wide = jnp.einsum("ka,kln,lb->abn", root, matrix, root)
        inner = cholesky(wide + jnp.eye(len(root), dtype=root.dtype)[:, :, None])
        half = solve_lower(inner, root.T @ linear)
        volume = sum(jnp.log(inner[j][j]) for j in range(len(root)))
        return 0.5 * jnp.sum(half**2, axis=0) - volume, inner, half

    def gain(new: _Seen, old: _Seen) -> Array:
        return jnp.sum(new.rows[0] - old.rows[0])

    keys = jax.random.split(key, 5)
    shortest = 1.0 / np.sqrt(count)
    spread = shortest * (_LONGEST / shortest) ** jax.random.uniform(keys[1], (_STEPS, 1), effects.dtype)
    moved, seen = _walk(layout, position, factor, marginal, gain, spread, (keys[0], keys[2]))
    _, inner, half = seen.rows
    noise = jax.random.normal(keys[3], effects.shape, effects.dtype)
    there = seen.root @ solve_transposed(inner, half + noise)
    eta_there = eta + contribution(data, factor, there - effects)
    if layout.is_conjugate:
        return moved, there, eta_there, jnp.ones((), eta.dtype)

    def approximate(effects: Array) -> Array:
        """The log likelihood of each level, less that at the reference."""
        away = effects - reference
        return jnp.sum(away * (slope - 0.5 * jnp.einsum("abn,bn->an", matrix, away)), axis=0)

    change = of_rows(layout.family, data, theta, eta_there) - of_rows(layout.family, data, theta, eta)
    (gained,) = level_sums(data, factor, count, [change])
    total = jnp.sum(gained - (approximate(there) - approximate(effects)))
    chance = jnp.where(jnp.isfinite(total), jnp.exp(jnp.minimum(total, 0.0)), 0.0)
    accepted = jax.random.uniform(keys[4], (), eta.dtype) < chance
    new, old = (moved, there, eta_there), (position, effects, eta)
    moved, there, eta = jax.tree.map(lambda a, b: jnp.where(accepted, a, b), new, old)
    return moved, there, eta, chance


def _walk(
    layout: Layout,
    position: Params,
    factor: Factor,
    look: Callable[[Array], Any],
    gain: Callable[[_Seen, _Seen], Array],
    spread: Array,
    keys: tuple[Key, Key],
) -> tuple[Params, _Seen]:
    """Random-walk Metropolis steps of lengths `spread`; `gain` is the difference of log densities without the prior."""
    number = factor.number
    names = [name for name in (f"sd_{number}", f"root_{number}") if name in position]
    own = {name: position[name] for name in names}
    maps = {f"sd_{number}": transforms.positive, f"root_{number}": transforms.cholesky_correlation}
    flat, unravel = ravel_pytree(own)
    widths, _ = ravel_pytree({name: jnp.full_like(leaf, _WIDTHS[name[:2]]) for name, leaf in own.items()})

    def at(flat: Array) -> _Seen:
        own = unravel(flat)
        theta = {name: maps[name].forward(leaf) for name, leaf in own.items()}
        volume = sum(maps[name].log_det(leaf) for name, leaf in own.items())
        root = layout.root(theta, number)
        return _Seen(root, factor.log_prior(theta) + volume, look(root))

    noise = jax.random.normal(keys[0], (len(spread), len(flat)), flat.dtype) * widths
    noise *= spread / np.sqrt(len(flat))
    logs = jnp.log(jax.random.uniform(keys[1], (len(spread),), flat.dtype))

    def one(step: Array, carry: tuple[Array, _Seen]) -> tuple[Array, _Seen]:
        here, known = carry
        new = here + noise[step]
        there = at(new)
        moves = logs[step] < gain(there, known) + there.prior - known.prior  # False for NaN
        return jax.tree.map(lambda a, b: jnp.where(moves, a, b), (new, there), carry)

    flat, seen = jax.lax.fori_loop(0, len(spread), one, (flat, at(flat)))
    return {**position, **unravel(flat)}, seen
