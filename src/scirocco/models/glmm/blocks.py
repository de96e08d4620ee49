"""Moves of a blocked Gibbs sampler for mixed models with several large factors; each leaves the posterior as it is.

A sweep draws

1. the effects of each factor given everything else: its levels are independent then. Normal responses: exactly.
   Otherwise each level makes a Metropolis–Hastings step whose proposal is the normal approximation at its Newton step;
2. directions in which the likelihood is constant, exactly: a coefficient goes up and all effects of a factor go down by
   as much; a level goes up and the levels nested in it go down. Without them these sums mix slowly where there are many
   levels;
3. deviations and correlations given the effects, by random-walk Metropolis steps that read no rows;
4. all global parameters given the *standardised* effects, by Hamiltonian Monte Carlo: effects follow the deviations.
   3 mixes well where levels have many rows, 4 where they have few (interweaving).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from scirocco import transforms
from scirocco.model import Model
from scirocco.model.groups import Root, cholesky, solve_lower, solve_transposed
from scirocco.models.families import FAMILIES
from scirocco.models.glmm import density
from scirocco.models.glmm.density import Factor
from scirocco.types import Array, Key, Params

_SHORT, _SHARE = 0.3, 0.25
"""Length of short proposals for effects, in deviations, and how many are short: Newton steps may be too long."""
_WALKS, _WIDTHS = 15, {"sd": 0.7, "ro": 1.0}
"""Random-walk steps for deviations and correlations of a factor; their lengths, times the root of the levels."""
_LEAPFROG, _FREE = 3, (3, 5)
"""Leapfrog steps; of normal responses, for which they read no rows, the number of trajectories and their steps."""
_ACCEPTED = 0.8
_WEAKEST = 1e-3
TUNED = 60
"""Sweeps in which step size and metric of the Hamiltonian moves are adapted."""
RENEWED = (0, 5, 20, TUNED - 10)
"""Sweeps before which the metric is computed."""


@dataclass(frozen=True)
class Layout:
    """What does not change, and is part of the programs."""

    family: str
    model: Model
    """The global parameters, with priors and transforms."""
    factors: tuple[Factor, ...]
    shifted: tuple[tuple[int, ...], ...]
    """For each factor, the coefficients whose columns its effects can replace."""
    nested: tuple[tuple[int, int, int, int], ...]
    """Outer and inner factor of nested pairs, and the places of their intercepts."""

    def root(self, theta: Params, number: int) -> Array:
        """The Cholesky factor of the covariance of a factor's effects."""
        factor, sd = self.factors[number], theta[f"sd_{number}"]
        correlated = factor.size > 1 and factor.correlated
        return sd[:, None] * (theta[f"root_{number}"] if correlated else jnp.eye(factor.size, dtype=sd.dtype))

    def entries(self, number: int) -> list[tuple[int, int]]:
        """The entries of that matrix that are not always 0."""
        factor = self.factors[number]
        size = factor.size
        return [(k, j) for k in range(size) for j in range(k + 1) if k == j or factor.correlated]

    def linear(self, theta: Params) -> Array:
        """The parameters that the linear predictor is linear in, given standardised effects."""
        found = [theta["coef"]]
        for factor in self.factors:
            root = self.root(theta, factor.number)
            found.append(jnp.stack([root[entry] for entry in self.entries(factor.number)]))
        return jnp.concatenate(found)


class State(NamedTuple):
    """Everything that the next sweep needs."""

    position: Params
    """Global parameters on the real line."""
    effects: tuple[Array, ...]
    """(q, levels) for each factor."""
    metric: Array
    """A root of the covariance of the Hamiltonian moves."""
    log_step: Array
    accepted: Array
    """Acceptance rates of the last sweep: of effects, and of the Hamiltonian moves."""


def sweeps(layout: Layout, data: dict[str, Any], state: State, key: Key, begin: Array, count: Array) -> State:
    """`count` sweeps, with numbers from `begin` on; random numbers depend on key and number."""

    def one(number: Array, state: State) -> State:
        return sweep(layout, data, state, jax.random.fold_in(key, number), number)

    return jax.lax.fori_loop(begin, begin + count, one, state)


def sweep(layout: Layout, data: dict[str, Any], state: State, key: Key, number: Array) -> State:
    """One sweep."""
    theta, effects = layout.model.constrain(state.position), list(state.effects)
    keys = iter(jax.random.split(key, 3 * len(layout.factors) + len(layout.nested) + 1))
    eta = _predictor(layout, data, theta, effects)
    rates = []
    for factor in layout.factors:
        effects[factor.number], eta, rate = _draw_effects(
            layout, data, theta, factor, effects[factor.number], eta, next(keys)
        )
        rates.append(rate)
    coef = theta["coef"]
    for factor in layout.factors:
        coef, effects[factor.number] = _shift(
            layout, data, theta, coef, factor, effects[factor.number], next(keys)
        )
    for pair in layout.nested:
        effects[pair[0]], effects[pair[1]] = _shift_nested(layout, data, theta, pair, effects, next(keys))
    position = {**state.position, "coef": coef}
    for factor in layout.factors:
        position = _walk(layout, position, factor, effects[factor.number], next(keys))
    theta = layout.model.constrain(position)
    standard = [_solve(layout.root(theta, k), effects[k]) for k in range(len(effects))]
    given = _given(layout, data, position, standard)
    position, rate = _hamiltonian(given, layout, position, state, next(keys))
    theta = layout.model.constrain(position)
    effects = [layout.root(theta, k) @ standard[k] for k in range(len(effects))]
    gain = (rate - _ACCEPTED) / (1.0 + number) ** 0.6
    log_step = jnp.where(number < TUNED, state.log_step + gain, state.log_step)
    accepted = jnp.stack([sum(rates) / len(rates), rate])
    return State(position, tuple(effects), state.metric, jnp.minimum(log_step, 0.3), accepted)


def renewed_metric(layout: Layout, data: dict[str, Any], state: State) -> State:
    """The metric from the curvature at the current state."""
    theta = layout.model.constrain(state.position)
    standard = [_solve(layout.root(theta, k), effects) for k, effects in enumerate(state.effects)]
    given = _given(layout, data, state.position, standard)
    flat, unravel = ravel_pytree(state.position)
    curvature = -jax.hessian(lambda x: given(unravel(x)))(flat)
    scale = jax.lax.rsqrt(jnp.maximum(jnp.abs(jnp.diagonal(curvature)), 1e-6))
    values, vectors = jnp.linalg.eigh(curvature * jnp.outer(scale, scale))
    metric = scale[:, None] * vectors * jax.lax.rsqrt(jnp.maximum(jnp.abs(values), _WEAKEST))
    return state._replace(metric=metric)


# -- rows --------------------------------------------------------------------------------------------------------------


def _predictor(layout: Layout, data: dict[str, Any], theta: Params, effects: list[Array]) -> Array:
    eta = theta["coef"] @ data["x"] + data.get("offset", 0.0)
    for factor in layout.factors:
        eta += _contribution(data, factor, effects[factor.number])
    return eta


def _contribution(data: dict[str, Any], factor: Factor, effects: Array) -> Array:
    """Σ_j z_j b_j of each row."""
    level, z = data[f"level_{factor.number}"], data[f"z_{factor.number}"]
    return sum((z[j] * effects[j][level] for j in range(1, factor.size)), start=z[0] * effects[0][level])


def _of_rows(layout: Layout, data: dict[str, Any], theta: Params, eta: Array) -> Array:
    return data.get("weight", 1.0) * FAMILIES[layout.family].log_density(data, eta, theta)


def _slopes(layout: Layout, data: dict[str, Any], theta: Params, eta: Array) -> tuple[Array, Array, Array]:
    """The log likelihood of each row, its derivative in η, and its information (positive)."""
    ones = jnp.ones_like(eta)

    def slope(at: Array) -> tuple[Array, Array]:
        return jax.jvp(lambda x: _of_rows(layout, data, theta, x), (at,), (ones,))

    (value, first), (_, second) = jax.jvp(slope, (eta,), (ones,))
    if layout.family == "student":  # not concave: the expected information
        nu = theta["freedom"]
        second = -data.get("weight", ones) * (nu + 1.0) / (nu + 3.0) / theta["noise"] ** 2
    return value, first, -second


def _level_sums(data: dict[str, Any], factor: Factor, num_levels: int, columns: list[Array]) -> list[Array]:
    """Sums of columns over the rows of each level."""
    level = data[f"level_{factor.number}"]
    return [jax.ops.segment_sum(column, level, num_levels) for column in columns]


# -- effects -----------------------------------------------------------------------------------------------------------


class _Local(NamedTuple):
    """The normal approximation of the effects of all levels at some effects."""

    values: Array
    """Log likelihoods of rows."""
    newton: Array
    root: Root


def _local(
    layout: Layout, data: dict[str, Any], theta: Params, factor: Factor, effects: Array, eta: Array
) -> _Local:
    z, size = data[f"z_{factor.number}"], factor.size
    pairs = [(j, k) for j in range(size) for k in range(j + 1)]
    values, first, information = _slopes(layout, data, theta, eta)
    columns = [first * z[j] for j in range(size)]
    if layout.family == "normal":  # always the same, but for the noise
        sums = _level_sums(data, factor, effects.shape[1], columns)
        sums += list(data[f"gram_{factor.number}"] / theta["noise"] ** 2)
    else:
        columns += [information * z[j] * z[k] for j, k in pairs]
        sums = _level_sums(data, factor, effects.shape[1], columns)
    precision = _precision(layout.root(theta, factor.number))
    gradient = jnp.stack(sums[:size]) - precision @ effects
    matrix = [[jnp.zeros(())] * size for _ in range(size)]
    for (j, k), total in zip(pairs, sums[size:], strict=True):
        matrix[j][k] = matrix[k][j] = total + precision[j, k]
    root = cholesky(jnp.stack([jnp.stack(row) for row in matrix]))
    return _Local(values, solve_transposed(root, solve_lower(root, gradient)), root)


def _draw_effects(
    layout: Layout,
    data: dict[str, Any],
    theta: Params,
    factor: Factor,
    effects: Array,
    eta: Array,
    key: Key,
) -> tuple[Array, Array, Array]:
    """Effects, linear predictor, and the share of levels that moved.

    From b, with m = b + H⁻¹ g: b' = m + c (b - m) + s H^{-1/2} ξ with s² + c² = 1, and s = 1 for most.
    """
    noise_key, length_key, accept_key = jax.random.split(key, 3)
    here = _local(layout, data, theta, factor, effects, eta)
    noise = jax.random.normal(noise_key, effects.shape, effects.dtype)
    if layout.family == "normal":
        there = effects + here.newton + solve_transposed(here.root, noise)
        eta = eta + _contribution(data, factor, there - effects)
        return there, eta, jnp.ones((), eta.dtype)
    short = jax.random.bernoulli(length_key, _SHARE, effects.shape[1:])
    length = jnp.where(short, _SHORT, 1.0).astype(effects.dtype)
    share = 1.0 - jnp.sqrt(1.0 - length**2)
    there = effects + share * here.newton + length * solve_transposed(here.root, noise)
    eta_there = eta + _contribution(data, factor, there - effects)
    back = _local(layout, data, theta, factor, there, eta_there)
    noise_back = _transposed(back.root, effects - there - share * back.newton) / length
    (gain,) = _level_sums(data, factor, effects.shape[1], [back.values - here.values])
    root = layout.root(theta, factor.number)
    gain += 0.5 * jnp.sum(_solve(root, effects) ** 2 - _solve(root, there) ** 2, axis=0)
    gain += 0.5 * jnp.sum(noise**2 - noise_back**2, axis=0)
    gain += sum(jnp.log(back.root[j][j] / here.root[j][j]) for j in range(factor.size))
    moves = jnp.log(jax.random.uniform(accept_key, gain.shape, gain.dtype)) < gain  # False for NaN
    new = jnp.where(moves, there, effects)
    eta = eta + _contribution(data, factor, new - effects)
    return new, eta, jnp.mean(moves.astype(eta.dtype))


def _transposed(root: Root, x: Array) -> Array:
    """Cᵀ x."""
    size = len(root)
    return jnp.stack([sum(root[k][j] * x[k] for k in range(j, size)) for j in range(size)])


def _solve(root: Array, x: Array) -> Array:
    """L⁻¹ x for one small triangle and many columns: a library call would take longer than the rows."""
    found = list[Array]()
    for i in range(len(root)):
        rest = sum((root[i, j] * found[j] for j in range(i)), start=jnp.zeros((), x.dtype))
        found.append((x[i] - rest) / root[i, i])
    return jnp.stack(found)


def _precision(root: Array) -> Array:
    half = _solve(root, jnp.eye(len(root), dtype=root.dtype))
    return half.T @ half


# -- directions in which the likelihood is constant --------------------------------------------------------------------


def _shift(
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
    weighted = jnp.einsum("ab,sbn->san", _precision(layout.root(theta, factor.number)), replaced)
    tight = 1.0 / density.SCALE**2
    matrix = jnp.einsum("san,tan->st", weighted, replaced) + tight * jnp.eye(len(at), dtype=coef.dtype)
    linear = jnp.einsum("san,an->s", weighted, effects) - tight * coef[at]
    root = jnp.linalg.cholesky(matrix)
    noise = jax.random.normal(key, linear.shape, linear.dtype)
    delta = jax.scipy.linalg.solve_triangular(
        root.T, _solve(root, linear[:, None])[:, 0] + noise, lower=False
    )
    return coef.at[at].add(delta), effects - jnp.einsum("s,san->an", delta, replaced)


def _shift_nested(
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
    above, below = (_precision(layout.root(theta, number)) for number in (outer, inner))
    count = effects[outer].shape[1]
    sizes = jax.ops.segment_sum(jnp.ones(len(parent), effects[outer].dtype), parent, count)
    tight = above[place, place] + sizes * below[within, within]
    linear = jax.ops.segment_sum((below @ effects[inner])[within], parent, count)
    linear -= (above @ effects[outer])[place]
    delta = linear / tight + jax.random.normal(key, (count,), tight.dtype) * jax.lax.rsqrt(tight)
    return effects[outer].at[place].add(delta), effects[inner].at[within].add(-delta[parent])


# -- deviations and correlations given the effects ---------------------------------------------------------------------


def _walk(layout: Layout, position: Params, factor: Factor, effects: Array, key: Key) -> Params:
    """Random-walk Metropolis steps, which depend on the effects by Σ b bᵀ alone."""
    number, count = factor.number, effects.shape[1]
    names = [name for name in (f"sd_{number}", f"root_{number}") if name in position]
    own = {name: position[name] for name in names}
    maps = {f"sd_{number}": transforms.positive, f"root_{number}": transforms.cholesky_correlation}
    squares = effects @ effects.T / count
    flat, unravel = ravel_pytree(own)
    widths, _ = ravel_pytree({name: jnp.full_like(leaf, _WIDTHS[name[:2]]) for name, leaf in own.items()})

    def constrained(flat: Array) -> tuple[Array, Array]:
        """The root of the covariance, and the log prior on the real line."""
        own = unravel(flat)
        theta = {name: maps[name].forward(leaf) for name, leaf in own.items()}
        volume = sum(maps[name].log_det(leaf) for name, leaf in own.items())
        return layout.root(theta, number), factor.log_prior(theta) + volume

    def gain(new: tuple[Array, Array], old: tuple[Array, Array]) -> Array:
        """In differences: sums over all levels would lose the last digits."""
        (after, prior_after), (before, prior_before) = new, old
        moved = _solve(after, before - after)
        half = _solve(before, _solve(before, squares).T)  # L⁻¹ S L⁻ᵀ
        change = jnp.sum((moved + moved.T + moved.T @ moved) * half)
        ratio = jnp.diagonal(after) / jnp.diagonal(before)
        grown = jnp.diagonal(after - before) / jnp.diagonal(before)
        volume = jnp.sum(jnp.where(jnp.abs(grown) < 0.5, jnp.log1p(grown), jnp.log(ratio)))
        return -count * (volume + 0.5 * change) + prior_after - prior_before

    keys = jax.random.split(key, 3)
    noise = jax.random.normal(keys[0], (_WALKS, len(flat)), flat.dtype) * widths
    noise *= jnp.exp(jax.random.normal(keys[1], (_WALKS, 1), flat.dtype)) * (2.0 / np.sqrt(len(flat) * count))
    logs = jnp.log(jax.random.uniform(keys[2], (_WALKS,), flat.dtype))

    def one(step: Array, carry: tuple[Array, tuple[Array, Array]]) -> tuple[Array, tuple[Array, Array]]:
        here, known = carry
        new = here + noise[step]
        there = constrained(new)
        moves = logs[step] < gain(there, known)  # False for NaN
        return jax.tree.map(lambda a, b: jnp.where(moves, a, b), (new, there), carry)

    flat, _ = jax.lax.fori_loop(0, _WALKS, one, (flat, constrained(flat)))
    return {**position, **unravel(flat)}


# -- all global parameters given the standardised effects --------------------------------------------------------------


def _given(layout: Layout, data: dict[str, Any], here: Params, standard: list[Array]) -> Any:
    """log p(θ | standardised effects, rows) as a function of the position, in differences to `here`."""
    theta = layout.model.constrain(here)
    linear = layout.linear(theta)
    columns = [data["x"]]
    for factor in layout.factors:
        z, level = data[f"z_{factor.number}"], data[f"level_{factor.number}"]
        own = [u[level] for u in standard[factor.number]]
        columns.append(jnp.stack([z[k] * own[j] for k, j in layout.entries(factor.number)]))
    design = jnp.concatenate(columns)
    eta = linear @ design + data.get("offset", 0.0)
    prior = layout.model.log_prior_density(here)
    if layout.family != "normal":
        values = _of_rows(layout, data, theta, eta)

        def gained(position: Params) -> Array:
            new = layout.model.constrain(position)
            there = eta + (layout.linear(new) - linear) @ design
            total = jnp.sum(_of_rows(layout, data, new, there) - values)
            return total + layout.model.log_prior_density(position) - prior

        return gained
    weight = data.get("weight", jnp.ones_like(eta))
    rest = data["y"] - eta
    weighted = design * weight
    slope, matrix = weighted @ rest, weighted @ design.T
    total, squares = jnp.sum(weight), jnp.sum(weight * rest**2) / theta["noise"] ** 2

    def of_normal(position: Params) -> Array:
        new = layout.model.constrain(position)
        delta = layout.linear(new) - linear
        longer = position["noise"] - here["noise"]
        change = (delta @ matrix @ delta - 2.0 * slope @ delta) / new["noise"] ** 2
        value = -total * longer - 0.5 * (change + squares * jnp.expm1(-2.0 * longer))
        return value + layout.model.log_prior_density(position) - prior

    return of_normal


def _hamiltonian(given: Any, layout: Layout, here: Params, state: State, key: Key) -> tuple[Params, Array]:
    """Trajectories from `here`, and how many are accepted."""
    _, unravel = ravel_pytree(here)
    start = ravel_pytree(here)[0]
    trajectories, steps = _FREE if layout.family == "normal" else (1, _LEAPFROG)

    keys = jax.random.split(key, 3)
    momenta = jax.random.normal(keys[0], (trajectories, len(start)), start.dtype)
    jitter = jax.random.uniform(keys[1], (trajectories,), start.dtype, 0.8, 1.2)
    uniform = jax.random.uniform(keys[2], (trajectories,), start.dtype)

    def value(moved: Array) -> Array:
        return given(unravel(start + state.metric @ moved))

    gradient = jax.grad(value)

    def one(number: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        moved, rate = carry
        momentum, width = momenta[number], jnp.exp(state.log_step) * jitter[number]
        place, speed, slope = moved, momentum, gradient(moved)
        for _ in range(steps):  # unrolled: the values in between are not computed
            speed = speed + 0.5 * width * slope
            place = place + width * speed
            slope = gradient(place)
            speed = speed + 0.5 * width * slope
        before, after = value(moved), value(place)
        gain = after - before + 0.5 * jnp.sum(momentum**2 - speed**2)
        chance = jnp.where(jnp.isfinite(gain), jnp.minimum(1.0, jnp.exp(jnp.minimum(gain, 0.0))), 0.0)
        moves = uniform[number] < chance
        return jnp.where(moves, place, moved), rate + chance / trajectories

    begin = jnp.zeros_like(start), jnp.zeros((), start.dtype)
    moved, rate = jax.lax.fori_loop(0, trajectories, one, begin)
    return unravel(start + state.metric @ moved), rate
