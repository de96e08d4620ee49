"""Moves of a blocked Gibbs sampler for mixed models with several large factors; each leaves the posterior as it is.

A sweep draws

1. the deviations, correlations and effects of each factor together, given everything else: the deviations as if the
   effects were integrated out. Normal responses: exactly. Otherwise by one Metropolis–Hastings step for all levels, for
   factors where that is often accepted; and, before it, by one for the effects of each level, whose proposal is the
   normal approximation at its Newton step;
2. coefficients and the effects of factors with few levels together, while the effects of a large factor follow: as if
   those were integrated out, for normal responses;
3. directions in which the likelihood is constant, exactly: a coefficient goes up and all effects of a factor go down by
   as much; a level goes up and the levels nested in it go down. Without 2 and 3, which are in `shifts`, these sums mix
   slowly where there are many levels;
4. deviations and correlations given the effects, by random-walk Metropolis steps that read no rows (`deviations`);
5. all global parameters given the *standardised* effects, by Hamiltonian Monte Carlo: effects follow the deviations.
   4 mixes well where levels have many rows, 5 where they have few (interweaving).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from scirocco.model.groups import Root, cholesky, solve_lower, solve_transposed
from scirocco.models.glmm import moves
from scirocco.models.glmm.density import (
    Columns,
    Factor,
    SweepLayout,
    contribution,
    expansion,
    level_sums,
    of_rows,
    precision,
    predictor,
    solve,
    transposed,
)
from scirocco.models.glmm.moves import SHARE, SHORT
from scirocco.types import Array, Key, Params

_LEAPFROG, _FREE = 3, (10, 6)
"""Leapfrog steps; of normal responses, for which they read no rows, the number of trajectories and their steps."""
_ACCEPTED = 0.8  # rate that the Hamiltonian moves are adapted to
_WEAKEST = 1e-3  # least curvature in the metric, in units of the diagonal's
_RARELY, _MEMORY = 0.1, 0.1
"""Acceptance rate below which deviations and all effects are not drawn together; weight of a sweep in its average."""
TUNED = 60
"""Sweeps in which step size and metric of the Hamiltonian moves are adapted."""
RENEWED = (0, 5, 20, TUNED - 10)
"""Sweeps before which the metric is computed."""


class SweepState(NamedTuple):
    """Everything that the next sweep needs."""

    position: Params
    """Global parameters on the real line."""
    effects: tuple[Array, ...]
    """(q, levels) for each factor."""
    metric: Array
    """A root of the covariance of the Hamiltonian moves."""
    log_step: Array
    together: tuple[moves.JointDraw, ...]
    """How factors with few levels are drawn, for each large factor."""
    references: tuple[Array, ...]
    """Effects at which the likelihood is expanded, for each factor."""
    whole: Array
    """For each factor, how often deviations and all effects together were accepted in the first sweeps."""
    accepted: Array
    """Acceptance rates of the last sweep, in the order of `rates`."""


def sweeps(layout: SweepLayout, data: Columns, state: SweepState, key: Key, begin: Array, count: Array) -> SweepState:
    """`count` sweeps, with numbers from `begin` on; random numbers depend on key and number."""

    def one(number: Array, state: SweepState) -> SweepState:
        return sweep(layout, data, state, jax.random.fold_in(key, number), number)

    return jax.lax.fori_loop(begin, begin + count, one, state)


def sweep(layout: SweepLayout, data: Columns, state: SweepState, key: Key, number: Array) -> SweepState:
    """One sweep."""
    position, effects = state.position, list(state.effects)
    theta = layout.model.constrain(position)
    keys = iter(jax.random.split(key, 4 * len(layout.factors) + len(layout.nested) + len(layout.large) + 1))
    eta = predictor(layout, data, theta, effects)
    single, whole, joint = list[Array](), list[Array](), list[Array]()
    for factor in layout.factors:
        own = next(keys), next(keys)
        if not layout.is_conjugate:
            effects[factor.number], eta, rate = _draw_effects(
                layout, data, layout.model.constrain(position), factor, effects[factor.number], eta, own[0]
            )
            single.append(rate)
        position, effects[factor.number], eta, rate = _draw_whole(
            layout, data, position, factor, effects[factor.number], eta, state, own[1], number
        )
        whole.append(rate)
    theta = layout.model.constrain(position)
    coef = theta["coef"]
    for large, together in zip(layout.large, state.together, strict=True):
        coef, effects, eta, rate = moves.draw_together(
            layout, data, theta, coef, effects, eta, large, together, next(keys)
        )
        joint.append(rate)
    for factor in layout.factors:
        coef, effects[factor.number] = moves.shift(
            layout, data, theta, coef, factor, effects[factor.number], next(keys)
        )
    for pair in layout.nested:
        effects[pair[0]], effects[pair[1]] = moves.shift_nested(layout, data, theta, pair, effects, next(keys))
    position = {**position, "coef": coef}
    for factor in layout.factors:
        position = moves.given_effects(layout, position, factor, effects[factor.number], next(keys))
    theta = layout.model.constrain(position)
    standard = [solve(layout.root(theta, k), effects[k]) for k in range(len(effects))]
    given = _given(layout, data, position, standard)
    position, rate = _hamiltonian(given, layout, position, state, next(keys))
    theta = layout.model.constrain(position)
    effects = [layout.root(theta, k) @ standard[k] for k in range(len(effects))]
    gain = (rate - _ACCEPTED) / (1.0 + number) ** 0.6
    log_step = jnp.where(number < TUNED, state.log_step + gain, state.log_step)
    each = [jnp.mean(jnp.stack(some)) for some in (single, whole, joint) if some]
    seen = state.whole + (jnp.stack(whole) - state.whole) * _MEMORY
    return state._replace(
        position=position,
        effects=tuple(effects),
        log_step=jnp.minimum(log_step, 0.3),
        whole=jnp.where(number < TUNED, seen, state.whole),
        accepted=jnp.stack([rate, *each]),
    )


def rates(layout: SweepLayout) -> tuple[str, ...]:
    """Names of the acceptance rates of a sweep."""
    names = ["acceptance_rate"] + ["effects_acceptance_rate"] * (not layout.is_conjugate)
    return *names, "deviations_acceptance_rate", *["joint_acceptance_rate"] * bool(layout.small)


def renewed(layout: SweepLayout, data: Columns, state: SweepState) -> SweepState:
    """Metric, `together` and `references` from the curvature at the current state."""
    theta = layout.model.constrain(state.position)
    eta = predictor(layout, data, theta, list(state.effects))
    together = moves.measured(layout, data, theta, list(state.effects), eta)
    standard = [solve(layout.root(theta, k), effects) for k, effects in enumerate(state.effects)]
    given = _given(layout, data, state.position, standard)
    flat, unravel = ravel_pytree(state.position)
    curvature = -jax.hessian(lambda x: given(unravel(x)))(flat)
    scale = jax.lax.rsqrt(jnp.maximum(jnp.abs(jnp.diagonal(curvature)), 1e-6))
    values, vectors = jnp.linalg.eigh(curvature * jnp.outer(scale, scale))
    metric = scale[:, None] * vectors * jax.lax.rsqrt(jnp.maximum(jnp.abs(values), _WEAKEST))
    modes = list[Array]()
    for factor, effects in zip(layout.factors, state.effects, strict=True):
        modes.append(effects + _local(layout, data, theta, factor, effects, eta).newton)
    return state._replace(metric=metric, together=together, references=tuple(modes))


# -- effects -----------------------------------------------------------------------------------------------------------


class _LevelApproximation(NamedTuple):
    """The normal approximation of the effects of all levels at some effects."""

    values: Array
    """Log likelihoods of rows."""
    newton: Array
    root: Root


def _local(
    layout: SweepLayout, data: Columns, theta: Params, factor: Factor, effects: Array, eta: Array
) -> _LevelApproximation:
    values, slope, matrix = expansion(layout, data, theta, factor, effects.shape[1], eta)
    tight = precision(layout.root(theta, factor.number))
    root = cholesky(matrix + tight[:, :, None])
    return _LevelApproximation(values, solve_transposed(root, solve_lower(root, slope - tight @ effects)), root)


def _draw_effects(
    layout: SweepLayout, data: Columns, theta: Params, factor: Factor, effects: Array, eta: Array, key: Key
) -> tuple[Array, Array, Array]:
    """Effects, linear predictor, and the share of levels that moved.

    From b, with m = b + H⁻¹ g: b' = m + c (b - m) + s H^{-1/2} ξ with s² + c² = 1, and s = 1 for most.
    """
    noise_key, length_key, accept_key = jax.random.split(key, 3)
    here = _local(layout, data, theta, factor, effects, eta)
    noise = jax.random.normal(noise_key, effects.shape, effects.dtype)
    short = jax.random.bernoulli(length_key, SHARE, effects.shape[1:])
    length = jnp.where(short, SHORT, 1.0).astype(effects.dtype)
    share = 1.0 - jnp.sqrt(1.0 - length**2)
    there = effects + share * here.newton + length * solve_transposed(here.root, noise)
    eta_there = eta + contribution(data, factor, there - effects)
    back = _local(layout, data, theta, factor, there, eta_there)
    noise_back = transposed(back.root, effects - there - share * back.newton) / length
    (gain,) = level_sums(data, factor, effects.shape[1], [back.values - here.values])
    root = layout.root(theta, factor.number)
    gain += 0.5 * jnp.sum(solve(root, effects) ** 2 - solve(root, there) ** 2, axis=0)
    gain += 0.5 * jnp.sum(noise**2 - noise_back**2, axis=0)
    gain += sum(jnp.log(back.root[j][j] / here.root[j][j]) for j in range(factor.size))
    moves = jnp.log(jax.random.uniform(accept_key, gain.shape, gain.dtype)) < gain  # False for NaN
    new = jnp.where(moves, there, effects)
    eta = eta + contribution(data, factor, new - effects)
    return new, eta, jnp.mean(moves.astype(eta.dtype))


def _draw_whole(
    layout: SweepLayout,
    data: Columns,
    position: Params,
    factor: Factor,
    effects: Array,
    eta: Array,
    state: SweepState,
    key: Key,
    number: Array,
) -> tuple[Params, Array, Array, Array]:
    """Deviations and effects together, if that was accepted often enough in the first sweeps."""
    reference = state.references[factor.number]

    def draw(_: None) -> tuple[Params, Array, Array, Array]:
        return moves.with_effects(layout, data, position, factor, effects, eta, reference, key)

    if layout.is_conjugate:
        return draw(None)
    wanted = (number < TUNED) | (state.whole[factor.number] > _RARELY)
    return jax.lax.cond(wanted, draw, lambda _: (position, effects, eta, jnp.zeros((), eta.dtype)), None)


# -- all global parameters given the standardised effects --------------------------------------------------------------


def _given(layout: SweepLayout, data: Columns, here: Params, standard: list[Array]) -> Any:
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
    if not layout.is_conjugate:
        values = of_rows(layout.family, data, theta, eta)

        def gained(position: Params) -> Array:
            new = layout.model.constrain(position)
            there = eta + (layout.linear(new) - linear) @ design
            total = jnp.sum(of_rows(layout.family, data, new, there) - values)
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


def _hamiltonian(given: Any, layout: SweepLayout, here: Params, state: SweepState, key: Key) -> tuple[Params, Array]:
    """Trajectories from `here`, and how many are accepted."""
    _, unravel = ravel_pytree(here)
    start = ravel_pytree(here)[0]
    trajectories, steps = _FREE if layout.is_conjugate else (1, _LEAPFROG)

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
