"""Moves of the blocked Gibbs sampler along which draws of one factor after the other would be slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from scirocco import transforms
from scirocco.model.groups import Root, cholesky, solve_lower, solve_transposed
from scirocco.models.glmm import density
from scirocco.models.glmm.density import (
    Columns,
    Factor,
    SweepLayout,
    contribution,
    expansion,
    level_sums,
    of_rows,
    precision,
    slopes,
    solve,
)
from scirocco.types import Array, Key, Params

# -- deviations and correlations of a factor's effects -----------------------------------------------------------------
#
# Given the effects they are known well, and where the rows say little about each effect they mix slowly: small
# deviations need many sweeps to become smaller still. So they are also drawn with the effects integrated out,
# approximately, and new effects with them; a Metropolis–Hastings step makes up for the approximation.

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


def given_effects(layout: SweepLayout, position: Params, factor: Factor, effects: Array, key: Key) -> Params:
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
    layout: SweepLayout,
    data: Columns,
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
    layout: SweepLayout,
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


# -- coefficients and effects of several factors, which replace each other ---------------------------------------------
#
# The likelihood is constant, or nearly so, in such directions, which draws of one factor after the other follow slowly:
# the mean of the effects and the intercept; shops and their region; planes, most of which belong to one carrier.

SHORT, SHARE = 0.3, 0.25
"""Length of short proposals, in deviations, and how many are short: Newton steps may be too long."""


# -- directions in which the likelihood is constant --------------------------------------------------------------------


def shift(
    layout: SweepLayout, data: Columns, theta: Params, coef: Array, factor: Factor, effects: Array, key: Key
) -> tuple[Array, Array]:
    """Coefficients + δ and effects - T δ, with δ from its normal distribution given everything else."""
    places = layout.shifted[factor.number]
    if not places:
        return coef, effects
    replaced, at = data[f"shift_{factor.number}"], np.array(places)  # (s, q, levels)
    weighted = jnp.einsum("ab,sbn->san", precision(layout.root(theta, factor.number)), replaced)
    tight = 1.0 / density.PRIOR.scale**2
    matrix = jnp.einsum("san,tan->st", weighted, replaced) + tight * jnp.eye(len(at), dtype=coef.dtype)
    linear = jnp.einsum("san,an->s", weighted, effects) - tight * coef[at]
    root = jnp.linalg.cholesky(matrix)
    noise = jax.random.normal(key, linear.shape, linear.dtype)
    delta = jax.scipy.linalg.solve_triangular(root.T, solve(root, linear[:, None])[:, 0] + noise, lower=False)
    return coef.at[at].add(delta), effects - jnp.einsum("s,san->an", delta, replaced)


def shift_nested(
    layout: SweepLayout, data: Columns, theta: Params, pair: tuple[int, int, int, int], effects: list[Array], key: Key
) -> tuple[Array, Array]:
    """The intercept of each outer level + δ, and those of the levels within it - δ."""
    outer, inner, place, within = pair
    parent = data[f"parent_{outer}_{inner}"]
    above, below = (precision(layout.root(theta, number)) for number in (outer, inner))
    count = effects[outer].shape[1]
    sizes = jax.ops.segment_sum(jnp.ones(len(parent), effects[outer].dtype), parent, count)
    tight = above[place, place] + sizes * below[within, within]
    linear = jax.ops.segment_sum((below @ effects[inner])[within], parent, count)
    linear -= (above @ effects[outer])[place]
    delta = linear / tight + jax.random.normal(key, (count,), tight.dtype) * jax.lax.rsqrt(tight)
    return effects[outer].at[place].add(delta), effects[inner].at[within].add(-delta[parent])


# -- coefficients and the effects of small factors together ------------------------------------------------------------


class JointDraw(NamedTuple):
    """How coefficients and effects of small factors, s, are drawn while the effects b of a large factor follow.

    b + C s is kept, where C is the regression of the columns of s on those of the factor, with the distribution of b as
    its prior. Were the likelihood normal, s would then be drawn as if b were integrated out.
    """

    follows: Array
    """C: (q, levels, s)."""
    rows: Array
    """The information (s, s) of the rows about s along these directions; of continuous responses, times σ²."""
    squares: Array
    """Cᵀ C for each pair of effects: (q, q, s, s)."""


def blank(layout: SweepLayout, data: Columns, effects: tuple[Array, ...]) -> tuple[JointDraw, ...]:
    """Zeros, for each large factor."""
    count = len(data["x"]) + sum(effects[number].size for number in layout.small)
    found = list[JointDraw]()
    for number in layout.large:
        (size, levels), dtype = effects[number].shape, effects[number].dtype
        follows = jnp.zeros((size, levels, count), dtype)
        found.append(JointDraw(follows, jnp.eye(count, dtype=dtype), jnp.zeros((size, size, count, count), dtype)))
    return tuple(found)


def measured(
    layout: SweepLayout, data: Columns, theta: Params, effects: list[Array], eta: Array
) -> tuple[JointDraw, ...]:
    """`JointDraw` for each large factor, at the current state; any other is as right, and is accepted more rarely."""
    if not layout.small:
        return ()
    information = slopes(layout.family, data, theta, eta)[2]
    units = theta["noise"] ** 2 if "noise" in theta else jnp.ones((), eta.dtype)
    columns = [_LevelColumns(data["x"], jnp.zeros((), jnp.int32), 1)]
    columns += [_columns(data, number, effects) for number in layout.small]
    own = jnp.concatenate([_products(a, columns, information) for a in columns])
    found = list[JointDraw]()
    for number in layout.large:
        factor, (size, count) = layout.factors[number], effects[number].shape
        z = data[f"z_{number}"]
        shared = _products(_columns(data, number, effects), columns, information).reshape(size, count, -1)
        pairs = [information * z[j] * z[k] for j in range(size) for k in range(size)]
        gram = jnp.stack(level_sums(data, factor, count, pairs)).reshape(size, size, count)
        root = cholesky(gram + precision(layout.root(theta, number))[:, :, None])
        follows = jax.vmap(lambda x, root=root: solve_transposed(root, solve_lower(root, x)), 2, 2)(shared)
        back = jnp.einsum("ans,ant->st", shared, follows)
        rows = own - back - back.T + jnp.einsum("ans,abn,bnt->st", follows, gram, follows)
        values, vectors = jnp.linalg.eigh(0.5 * (rows + rows.T))
        rows = (vectors * jnp.maximum(values, 0.0)) @ vectors.T  # differences of large sums
        found.append(JointDraw(follows, units * rows, jnp.einsum("ans,bnt->abst", follows, follows)))
    return tuple(found)


class _LevelColumns(NamedTuple):
    """z (q, rows), and the level of each row: as many columns of a design as effects."""

    z: Array
    level: Array
    levels: int


def _columns(data: Columns, number: int, effects: list[Array]) -> _LevelColumns:
    return _LevelColumns(data[f"z_{number}"], data[f"level_{number}"], effects[number].shape[1])


def _products(left: _LevelColumns, others: list[_LevelColumns], weight: Array) -> Array:
    """Weighted products of the columns `left` with all others, (columns, columns)."""

    def with_one(right: _LevelColumns) -> Array:
        place = left.level * right.levels + right.level

        def of_pair(pair: Array) -> Array:
            product = weight * left.z[pair[0]] * right.z[pair[1]]
            if place.ndim == 0:
                return jnp.sum(product, keepdims=True)
            return jax.ops.segment_sum(product, place, left.levels * right.levels)

        q, r = len(left.z), len(right.z)
        pairs = jnp.stack([jnp.repeat(jnp.arange(q), r), jnp.tile(jnp.arange(r), q)], axis=1)
        sums = jax.lax.map(of_pair, pairs).reshape(q, r, left.levels, right.levels)
        return jnp.moveaxis(sums, 2, 1).reshape(q * left.levels, r * right.levels)

    return jnp.concatenate([with_one(right) for right in others], axis=1)


def draw_together(
    layout: SweepLayout,
    data: Columns,
    theta: Params,
    coef: Array,
    effects: list[Array],
    eta: Array,
    number: int,
    together: JointDraw,
    key: Key,
) -> tuple[Array, list[Array], Array, Array]:
    """A Metropolis–Hastings step of s = (coefficients, effects of small factors); effects of `number` follow.

    From s, with m = s + H⁻¹ g: s' = m + c (s - m) + a H^{-1/2} ξ with a² + c² = 1, where H is constant. For normal
    responses this is a draw given b + C s. Returns coefficients, effects, η and whether they moved.
    """
    noise_key, length_key, accept_key = jax.random.split(key, 3)
    tight = [(coef[None, :], jnp.eye(1, dtype=coef.dtype) / density.PRIOR.scale**2)]
    tight += [(effects[k], precision(layout.root(theta, k))) for k in layout.small]
    ends = np.cumsum([part.size for part, _ in tight])
    above = precision(layout.root(theta, number))

    def moves(delta: Array) -> list[Array]:
        """Changes of coefficients, of effects of small factors, and of the effects that follow."""
        parts = jnp.split(delta, ends[:-1])
        shaped = [part.reshape(of.shape) for part, (of, _) in zip(parts, tight, strict=True)]
        return [*shaped, -together.follows @ delta]

    def change(delta: Array) -> Array:
        """How much the linear predictor changes."""
        first, *rest = moves(delta)
        numbered = zip([*layout.small, number], rest, strict=True)
        parts = [contribution(data, layout.factors[k], part) for k, part in numbered]
        return sum(parts, start=first[0] @ data["x"])

    def prior(delta: Array) -> Array:
        """The log density of coefficients and effects, in differences."""
        of_all = zip(moves(delta), [*tight, (effects[number], above)], strict=True)
        each = [jnp.sum(part * (matrix @ (here + 0.5 * part))) for part, (here, matrix) in of_all]
        return -jnp.sum(jnp.stack(each))

    def rows_at(eta: Array) -> tuple[Array, Array]:
        """Log likelihoods, and their derivatives in η."""
        return jax.jvp(lambda x: of_rows(layout.family, data, theta, x), (eta,), (jnp.ones_like(eta),))

    units = theta["noise"] ** 2 if "noise" in theta else 1.0
    wide = [jnp.kron(matrix, jnp.eye(part.shape[1], dtype=coef.dtype)) for part, matrix in tight]
    matrix = together.rows / units + jnp.einsum("ab,abst->st", above, together.squares)
    root = jnp.linalg.cholesky(matrix + jax.scipy.linalg.block_diag(*wide))
    inverse = jax.scipy.linalg.solve_triangular(root, jnp.eye(len(root), dtype=root.dtype), lower=True)
    length = jnp.where(jax.random.bernoulli(length_key, SHARE), SHORT, 1.0).astype(coef.dtype)
    share = 1.0 - jnp.sqrt(1.0 - length**2)
    noise = jax.random.normal(noise_key, (len(root),), coef.dtype)
    origin = jnp.zeros_like(noise)
    _, back = jax.vjp(change, origin)  # linear: the same everywhere
    values, slopes_here = rows_at(eta)
    newton = inverse @ (back(slopes_here)[0] + jax.grad(prior)(origin))
    delta = inverse.T @ (share * newton + length * noise)
    there = eta + change(delta)
    values_there, slopes_there = rows_at(there)
    newton = inverse @ (back(slopes_there)[0] + jax.grad(prior)(delta))
    noise_back = (root.T @ -delta - share * newton) / length
    gain = jnp.sum(values_there - values) + prior(delta) + 0.5 * jnp.sum(noise**2 - noise_back**2)
    chance = jnp.where(jnp.isfinite(gain), jnp.exp(jnp.minimum(gain, 0.0)), 0.0)
    accepted = jax.random.uniform(accept_key, (), coef.dtype) < chance
    first, *rest = moves(jnp.where(accepted, delta, origin))
    new = list(effects)
    for k, part in zip([*layout.small, number], rest, strict=True):
        new[k] = effects[k] + part
    return coef + first[0], new, jnp.where(accepted, there, eta), chance
