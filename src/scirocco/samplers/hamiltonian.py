"""Stochastic gradient Hamiltonian Monte Carlo: momentum with friction, and the BAOAB splitting."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from scirocco import _checks, _tree
from scirocco._tree import pytree_dataclass, static
from scirocco.errors import InvalidValueError, SciroccoWarning
from scirocco.samplers import schedules
from scirocco.samplers.base import Gradient, Sampler, Scales, coefficients
from scirocco.types import Array, ArrayLike, Key, Params, PyTree

_MARGIN = 5.0
"""Default friction, as a multiple of the least that the gradient noise needs."""
_TOLERATED_INFLATION = 0.05


class HamiltonianState(NamedTuple):
    """Position and momentum (unit mass)."""

    position: Params
    momentum: PyTree


@pytree_dataclass
class SGHMC(Sampler):
    r"""Stochastic gradient Hamiltonian Monte Carlo (Chen, Fox & Guestrin 2014), momentum first.

    .. math::
        r' = (1 - εC)\,r + ε\,\hat g(θ) + \sqrt{2εCT - ε^2 V}\,ξ, \qquad θ' = θ + ε r'

    with ĝ an unbiased estimate of ∇ log posterior and V the variance of ĝ where it is known, else 0.

    Targets posterior^(1/T). On a Gaussian with precision λ its exact stationary variance is
    T/λ · 1/(1 - ε²λ/(2(2 - εC))) · (1 + εV/2CT) with V uncorrected: second order in ε, whatever the friction. (Moving the
    position with the OLD momentum, as several libraries do, is off by first order: 24 % where this is off by 1 %.)

    Cost per step: one gradient estimate and one normal a parameter.

    Parameters
    ----------
    step_size
        ε: number, prefix tree or schedule, in units of θ. None: chosen from curvature and gradient noise at the start.
    friction
        C > 0, in units of 1/ε; number or prefix tree. None (default): max(√λ, 5 εV/2) for each parameter, with V measured
        near the mode and taken out of the injected noise (less what the blocks of an epoch cancel among themselves).
        A friction given by the user is used as it is, with a warning when εV/2C says that the variance will be
        inflated.
    gradient_noise
        V, to be taken out of the injected noise: a number or prefix tree. Normally left to the default.
    resample_every
        Draw fresh momenta every so many steps (R's L); None: never.
    temperature
        T.

    References
    ----------
    Thesis section 4.3.2 (there ν = εr, step η = ε², α = εC: see `from_r`); Ma, Chen & Fox (2015) section 3.1.
    """

    step_size: Any = None
    friction: Any = None
    gradient_noise: Any = None
    resample_every: int | None = static(None)
    temperature: ArrayLike = 1.0

    def __post_init__(self) -> None:
        _check_momentum_fields(self, "SGHMC", "friction")
        if self.resample_every is not None:
            _checks.positive_int(self.resample_every, "resample_every")

    @classmethod
    def from_r(cls, stepsize: PyTree, alpha: ArrayLike = 0.01, num_leapfrog: int = 5) -> SGHMC:
        r"""The R package's form: ν' = (1-α)ν + η ĝ + N(0, 2αη), θ' = θ + ν', ν ∼ N(0, η) afresh every L steps.

        It is this sampler with ε = √η, C = α/√η and r = ν/√η, step for step; keep every L-th draw to match. (R's own
        code refreshes ν with half that variance; here it has the right one.)
        """
        eps = jax.tree.map(lambda eta: float(eta) ** 0.5, stepsize)
        return cls(eps, friction=jax.tree.map(lambda e: float(alpha) / e, eps), resample_every=num_leapfrog)

    @property
    def needs_scales(self) -> bool:
        """To choose what was left open, and to warn when the friction is too small."""
        return self.gradient_noise is None

    def resolve(self, scales: Scales, params: Params) -> SGHMC:
        """Fill in step size and friction, or warn about the user's."""
        step_size = self.step_size if self.step_size is not None else momentum_step(scales)
        eps = schedules.step_sizes(step_size, params, 0)
        if self.friction is not None:
            warn_of_inflation(
                "SGHMC", eps, coefficients(self.friction, params, "friction"), scales, self.temperature
            )
            return dataclasses.replace(self, step_size=step_size, gradient_noise=0.0)
        friction = friction_for(scales, eps)
        noise = scales.lasting_noise(relaxation_steps(scales, eps, friction))
        return dataclasses.replace(self, step_size=step_size, friction=friction, gradient_noise=noise)

    def check_params(self, params: Params, num_steps: int) -> None:
        """εC must not exceed 1."""
        super().check_params(params, num_steps)
        check_damping("SGHMC", "friction", self.friction, self.sizes(params, jnp.array(0)), params)

    def init(self, params: Params, key: Key) -> HamiltonianState:
        """Momentum from its stationary law N(0, T)."""
        return HamiltonianState(params, fresh_momentum(key, params, self.temperature))

    def noise(self, key: Key, params: Params) -> PyTree:
        """Normals for the friction, and more for fresh momenta when they are asked for."""
        if self.resample_every is None:
            return _tree.normal_like(key, params), None
        kick, fresh = jax.random.split(key)
        return _tree.normal_like(kick, params), _tree.normal_like(fresh, params)

    def step(
        self, state: HamiltonianState, gradient: Gradient, noise: PyTree, number: Array
    ) -> HamiltonianState:
        """Kick, then move with the new momentum."""
        kick, fresh = noise
        momentum = state.momentum
        if self.resample_every is not None:
            due = number % self.resample_every == 0
            root = jnp.sqrt(jnp.asarray(self.temperature))
            momentum = jax.tree.map(
                lambda r, xi: jnp.where(due, root.astype(r.dtype) * xi, r), momentum, fresh
            )
        eps = self.sizes(state.position, number)
        friction = coefficients(self.friction, state.position, "friction")
        variance = coefficients(
            0.0 if self.gradient_noise is None else self.gradient_noise, state.position, "noise"
        )

        def push(r: Array, e: Array, c: Any, v: Any, g: Array, xi: Array) -> Array:
            injected = jnp.maximum(2.0 * e * c * self.temperature - e * e * v, 0.0).astype(r.dtype)
            return ((1.0 - e * c) * r + e * g + jnp.sqrt(injected) * xi).astype(r.dtype)

        momentum = jax.tree.map(push, momentum, eps, friction, variance, gradient.total, kick)
        position = jax.tree.map(lambda p, e, r: p + e * r, state.position, eps, momentum)
        return HamiltonianState(position, momentum)

    def stats(self, state: HamiltonianState) -> dict[str, Array]:
        """Mean squared momentum: T at equilibrium."""
        return {"kinetic_temperature": kinetic_temperature(state.momentum)}


@pytree_dataclass
class BAOAB(Sampler):
    r"""Langevin dynamics with momentum by the BAOAB splitting (Leimkuhler & Matthews 2013), one gradient a step.

    .. math::
        r_1 = r + ε\,\hat g(θ), \quad θ_1 = θ + \tfrac ε2 r_1, \quad
        r' = e^{-εC} r_1 + \sqrt{T(1 - e^{-2εC})}\,ξ, \quad θ' = θ_1 + \tfrac ε2 r'

    (the closing half kick of one step and the opening half kick of the next use the same estimate and are joined).

    Targets posterior^(1/T). On a Gaussian, with exact gradients, the stationary variance of the position is exactly T/λ
    for every stable ε < 2/√λ; gradient noise adds to it.

    Parameters
    ----------
    step_size
        ε: number, prefix tree or schedule, in units of θ; None: chosen at the start.
    friction
        C > 0; None: max(√λ, 25 εV/2), so that the gradient noise inflates the variance by about 4 % at most.
    temperature
        T.
    """

    step_size: Any = None
    friction: Any = None
    temperature: ArrayLike = 1.0

    def __post_init__(self) -> None:
        _check_momentum_fields(self, "BAOAB", "friction")

    @property
    def needs_scales(self) -> bool:
        """When something was left open."""
        return self.step_size is None or self.friction is None

    def resolve(self, scales: Scales, params: Params) -> BAOAB:
        """Fill in step size and friction."""
        step_size = self.step_size if self.step_size is not None else momentum_step(scales)
        friction = self.friction
        if friction is None:
            eps = schedules.step_sizes(step_size, params, 0)
            root = scales.largest_curvature**0.5
            friction = jax.tree.map(lambda v, e: jnp.maximum(root, 12.5 * e * v), scales.noise, eps)
        return dataclasses.replace(self, step_size=step_size, friction=friction)

    def init(self, params: Params, key: Key) -> HamiltonianState:
        """Momentum from its stationary law N(0, T)."""
        return HamiltonianState(params, fresh_momentum(key, params, self.temperature))

    def step(
        self, state: HamiltonianState, gradient: Gradient, noise: PyTree, number: Array
    ) -> HamiltonianState:
        """Kick, half drift, exact friction, half drift."""
        eps = self.sizes(state.position, number)
        friction = coefficients(self.friction, state.position, "friction")

        def one(p: Array, r: Array, e: Array, c: Any, g: Array, xi: Array) -> tuple[Array, Array]:
            r = r + e * g
            p = p + 0.5 * e * r
            r = jnp.exp(-e * c) * r + jnp.sqrt(-jnp.expm1(-2.0 * e * c) * self.temperature) * xi
            return (p + 0.5 * e * r).astype(p.dtype), r.astype(p.dtype)

        return HamiltonianState(
            *unzip(one, state.position, state.momentum, eps, friction, gradient.total, noise)
        )

    def stats(self, state: HamiltonianState) -> dict[str, Array]:
        """Mean squared momentum after the friction step: T at equilibrium, up to O(ε²)."""
        return {"kinetic_temperature": kinetic_temperature(state.momentum)}


# -- shared by all samplers with momentum ------------------------------------------------------------------


def _check_momentum_fields(sampler: Any, owner: str, damping: str) -> None:
    if sampler.step_size is not None:
        object.__setattr__(sampler, "step_size", schedules.normalise(sampler.step_size, owner))
    value = getattr(sampler, damping)
    for leaf in jax.tree.leaves(value):
        if not getattr(leaf, "shape", ()):
            _checks.positive(leaf, damping, owner)
    if isinstance(value, (int, float)):
        object.__setattr__(sampler, damping, float(value))
    _checks.positive(sampler.temperature, "temperature", owner, allow_zero=True)


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
    pairs = [
        function(*leaves) for leaves in zip(*(treedef.flatten_up_to(tree) for tree in trees), strict=True)
    ]
    return jax.tree.unflatten(treedef, [a for a, _ in pairs]), jax.tree.unflatten(
        treedef, [b for _, b in pairs]
    )


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
    noise = scales.lasting_noise(relaxation_steps(scales, eps, friction))
    excess = [
        float(jnp.max(e * v / (2.0 * c * jnp.maximum(temperature, 1e-12))))
        for e, v, c in _leaves(eps, noise, friction)
    ]
    worst = max(excess)
    if worst > _TOLERATED_INFLATION:
        need = max(float(jnp.max(e * v / (2.0 * _TOLERATED_INFLATION))) for e, v in _leaves(eps, noise))
        warnings.warn(
            f"the friction of {owner} is small against the noise of the gradient estimate: posterior variances will be "
            f"inflated by about {100 * worst:.0f} %. Use friction >= {need:.3g}, leave `friction` out (it is then set from "
            "the measured noise, and the noise is corrected for), or reduce the noise with sc.ControlVariates or a "
            "larger batch.",
            SciroccoWarning,
            stacklevel=5,
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
