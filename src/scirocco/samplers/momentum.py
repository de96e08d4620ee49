"""What samplers with momentum share: checks, fresh momenta, default step size and friction, the warning about heat."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks, _tree
from scirocco.errors import InvalidValueError
from scirocco.samplers import schedules
from scirocco.samplers.base import Scales, coefficients, reshuffling_spectrum
from scirocco.types import Array, ArrayLike, Key, Params, PyTree

_MARGIN = 5.0
"""Default friction, as a multiple of the least that the gradient noise needs."""
_TOLERATED_INFLATION = 0.05


def check_momentum_fields(sampler: Any, owner: str, damping: str) -> None:
    """Check and normalise step size, friction or diffusion, and temperature."""
    if sampler.step_size is not None:
        checked = schedules.normalise(sampler.step_size, owner, automatic=True)
        object.__setattr__(sampler, "step_size", checked)
    value = getattr(sampler, damping)
    for leaf in jax.tree.leaves(value):
        if not getattr(leaf, "shape", ()):
            _checks.positive(leaf, damping, owner)
    if isinstance(value, (int, float)):
        object.__setattr__(sampler, damping, float(value))
    _checks.positive(sampler.temperature, "temperature", owner, allow_zero=True)
    object.__setattr__(sampler, "temperature", _checks.as_float(sampler.temperature))


def fresh_momentum(key: Key, params: Params, temperature: ArrayLike) -> PyTree:
    """N(0, T) for each parameter."""
    root = jnp.sqrt(jnp.asarray(temperature))
    return jax.tree.map(lambda xi: root.astype(xi.dtype) * xi, _tree.normal_like(key, params))


def kinetic_temperature(momentum: PyTree) -> Array:
    """Mean squared momentum."""
    return _tree.vdot(momentum, momentum) / _tree.size(momentum)


def unzip(function: Any, *trees: PyTree) -> tuple[PyTree, PyTree]:
    """Map a function that returns a pair over trees; a pair of trees."""
    treedef = jax.tree.structure(trees[0])
    firsts, seconds = zip(*(function(*leaves) for leaves in _leaves(*trees)), strict=True)
    return jax.tree.unflatten(treedef, firsts), jax.tree.unflatten(treedef, seconds)


def momentum_step(scales: Scales) -> float:
    """ε = min(0.2/√λ, 2√λ/5V): 1 % error from the step, and friction against the noise that is near critical."""
    root = scales.largest_curvature**0.5
    if not root > 0:
        raise InvalidValueError(
            "no step size can be chosen: the log posterior has no curvature at the start."
        )
    noise = largest(scales.noise)
    return min(0.2 / root, 2.0 * root / (_MARGIN * noise)) if noise > 0 else 0.2 / root


def friction_for(scales: Scales, eps: PyTree) -> PyTree:
    """C = max(√λ, 5 εV/2) for each parameter, with εC ≤ 1/2."""
    root = scales.largest_curvature**0.5
    friction = jax.tree.map(lambda v, e: jnp.maximum(root, _MARGIN * e * v / 2.0), scales.noise, eps)
    friction = jax.tree.map(lambda c, e: jnp.minimum(c, 0.5 / e), friction, eps)
    short = max(float(jnp.max(e * v / (2.0 * c))) for e, v, c in _leaves(eps, scales.noise, friction))
    if short > 1.0:
        limit = min(float(jnp.min(1.0 / jnp.sqrt(v))) for v in jax.tree.leaves(scales.noise))
        raise InvalidValueError(
            f"the step size of SGHMC is too large for the noise of the gradient estimate: it must be below {limit:.3g} "
            "here. Lower it (or leave it out), take a larger batch, or use sc.ControlVariates."
        )
    return friction


def heating_noise(scales: Scales, eps: PyTree, friction: PyTree) -> PyTree:
    """The variance of independent errors that would heat a damped oscillator as much as the measured ones do.

    Overdamped (C ≥ √λ), it averages over the steps in which it forgets, and errors that cancel over an epoch hardly
    count. Underdamped, it answers to what the errors have at its own frequency ε√λ a step, however long it remembers.
    """
    slow = scales.lasting_noise(relaxation_steps(scales, eps, friction))

    def one(v: Array, s: Array, e: Array, c: Any, f: Array) -> Array:
        share = reshuffling_spectrum(np.asarray(e * jnp.sqrt(f)), scales.epoch)
        return jnp.where(c < jnp.sqrt(f), v * share.astype(v.dtype), s)

    return jax.tree.map(one, scales.noise, slow, eps, friction, scales.information)


def relaxation_steps(scales: Scales, eps: PyTree, friction: PyTree) -> PyTree:
    """Steps in which a damped oscillator forgets its position: C/(ελ) when overdamped, 2/(εC) when not."""
    return jax.tree.map(
        lambda e, c, f: jnp.maximum(c / (e * jnp.maximum(f, 1e-30)), 2.0 / (e * c)),
        eps,
        friction,
        scales.information,
    )


def warn_of_inflation(
    owner: str, eps: PyTree, friction: PyTree, scales: Scales, temperature: ArrayLike
) -> None:
    """Warn when the user's friction lets the gradient noise heat the chain by more than 5 %: factor 1 + εV/2CT."""
    friction = jax.tree.map(lambda c, f: jnp.broadcast_to(c, f.shape), friction, scales.information)
    noise = heating_noise(scales, eps, friction)
    excess = [
        float(jnp.max(e * v / (2.0 * c * jnp.maximum(temperature, 1e-12))))
        for e, v, c in _leaves(eps, noise, friction)
    ]
    worst = max(excess)
    if worst > _TOLERATED_INFLATION:
        need = max(float(jnp.max(e * v / (2.0 * _TOLERATED_INFLATION))) for e, v in _leaves(eps, noise))
        _checks.warn(
            f"the friction of {owner} is small against the noise of the gradient estimate: posterior variances will be "
            f"inflated by about {100 * worst:.0f} %. Use friction >= {need:.3g}, leave `friction` out (it is then "
            "set from the measured noise, and the noise is corrected for), or reduce the noise with "
            "sc.ControlVariates or a larger batch.",
        )


def check_damping(owner: str, name: str, value: Any, eps: PyTree, params: Params) -> None:
    """Refuse ε × friction > 1: the momentum would change sign at every step."""
    spread = coefficients(value, params, name)
    worst = max(
        float(jnp.max(e * c)) for e, c in zip(jax.tree.leaves(eps), jax.tree.leaves(spread), strict=True)
    )
    if worst > 1.0:
        raise InvalidValueError(
            f"`step_size` × `{name}` of {owner} is {worst:.3g}; it must not exceed 1. Lower one of them."
        )


def largest(tree: PyTree) -> float:
    """Largest entry of all leaves."""
    return max(float(jnp.max(leaf)) for leaf in jax.tree.leaves(tree))


def _leaves(*trees: PyTree) -> Any:
    return zip(*(jax.tree.leaves(tree) for tree in trees), strict=True)
