"""Moves of the blocked Gibbs sampler along which coefficients and effects of several factors replace each other.

The likelihood is constant, or nearly so, in such directions, which draws of one factor after the other follow slowly:
the mean of the effects and the intercept; shops and their region; planes, most of which belong to one carrier.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.model.groups import cholesky, solve_lower, solve_transposed
from scirocco.models.glmm import density
from scirocco.models.glmm.density import Factor
from scirocco.models.glmm.layout import Layout, contribution, level_sums, of_rows, precision, slopes, solve
from scirocco.types import Array, Key, Params

SHORT, SHARE = 0.3, 0.25
"""Length of short proposals, in deviations, and how many are short: Newton steps may be too long."""


# -- directions in which the likelihood is constant --------------------------------------------------------------------


def shift(
    layout: Layout,
    data: dict[str, Any],
    theta: Params,
    coef: Array,
    factor: Factor,
    effects: Array,
    key: Key,
) -> tuple[Array, Array]:
    """Coefficients + δ and effects - T δ, with δ from its normal distribution given everything else."""
    places = layout.shifted[factor.number]
    if not places:
        return coef, effects
    replaced, at = data[f"shift_{factor.number}"], np.array(places)  # (s, q, levels)
    weighted = jnp.einsum("ab,sbn->san", precision(layout.root(theta, factor.number)), replaced)
    tight = 1.0 / density.SCALE**2
    matrix = jnp.einsum("san,tan->st", weighted, replaced) + tight * jnp.eye(len(at), dtype=coef.dtype)
    linear = jnp.einsum("san,an->s", weighted, effects) - tight * coef[at]
    root = jnp.linalg.cholesky(matrix)
    noise = jax.random.normal(key, linear.shape, linear.dtype)
    delta = jax.scipy.linalg.solve_triangular(root.T, solve(root, linear[:, None])[:, 0] + noise, lower=False)
    return coef.at[at].add(delta), effects - jnp.einsum("s,san->an", delta, replaced)


def shift_nested(
    layout: Layout,
    data: dict[str, Any],
    theta: Params,
    pair: tuple[int, int, int, int],
    effects: list[Array],
    key: Key,
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


class Together(NamedTuple):
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


def blank(layout: Layout, data: dict[str, Any], effects: tuple[Array, ...]) -> tuple[Together, ...]:
    """Zeros, for each large factor."""
    count = len(data["x"]) + sum(effects[number].size for number in layout.small)
    found = list[Together]()
    for number in layout.large:
        (size, levels), dtype = effects[number].shape, effects[number].dtype
        follows = jnp.zeros((size, levels, count), dtype)
        found.append(
            Together(follows, jnp.eye(count, dtype=dtype), jnp.zeros((size, size, count, count), dtype))
        )
    return tuple(found)


def measured(
    layout: Layout, data: dict[str, Any], theta: Params, effects: list[Array], eta: Array
) -> tuple[Together, ...]:
    """`Together` for each large factor, at the current state; any other is as right, and is accepted more rarely."""
    if not layout.small:
        return ()
    information = slopes(layout.family, data, theta, eta)[2]
    units = theta["noise"] ** 2 if "noise" in theta else jnp.ones((), eta.dtype)
    columns = [_Columns(data["x"], jnp.zeros((), jnp.int32), 1)]
    columns += [_columns(data, number, effects) for number in layout.small]
    own = jnp.concatenate([_products(a, columns, information) for a in columns])
    found = list[Together]()
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
        found.append(Together(follows, units * rows, jnp.einsum("ans,bnt->abst", follows, follows)))
    return tuple(found)


class _Columns(NamedTuple):
    """z (q, rows), and the level of each row: as many columns of a design as effects."""

    z: Array
    level: Array
    levels: int


def _columns(data: dict[str, Any], number: int, effects: list[Array]) -> _Columns:
    return _Columns(data[f"z_{number}"], data[f"level_{number}"], effects[number].shape[1])


def _products(left: _Columns, others: list[_Columns], weight: Array) -> Array:
    """Weighted products of the columns `left` with all others, (columns, columns)."""

    def with_one(right: _Columns) -> Array:
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
    layout: Layout,
    data: dict[str, Any],
    theta: Params,
    coef: Array,
    effects: list[Array],
    eta: Array,
    number: int,
    together: Together,
    key: Key,
) -> tuple[Array, list[Array], Array, Array]:
    """A Metropolis–Hastings step of s = (coefficients, effects of small factors); effects of `number` follow.

    From s, with m = s + H⁻¹ g: s' = m + c (s - m) + a H^{-1/2} ξ with a² + c² = 1, where H is constant. For normal
    responses this is a draw given b + C s. Returns coefficients, effects, η and whether they moved.
    """
    noise_key, length_key, accept_key = jax.random.split(key, 3)
    tight = [(coef[None, :], jnp.eye(1, dtype=coef.dtype) / density.SCALE**2)]
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
