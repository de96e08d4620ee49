"""Stochastic gradient Hamiltonian Monte Carlo: momentum with friction, and the BAOAB splitting."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks, _tree
from scirocco._tree import cited, pytree_dataclass, static
from scirocco.samplers import schedules
from scirocco.samplers.base import Gradient, Known, check_amounts, coefficients, is_open
from scirocco.samplers.momentum import (
    MomentumSampler,
    check_damping,
    check_momentum_fields,
    fresh_momentum,
    friction_for,
    heating_noise,
    is_due,
    kinetic_temperature,
    unzip,
    warn_of_inflation,
)
from scirocco.samplers.scales import MOST_HEATING, Scales, Setting, best_setting, largest, momentum_step
from scirocco.types import Array, ArrayLike, Key, Params, PyTree


class HamiltonianState(NamedTuple):
    """Position and momentum (unit mass)."""

    position: Params
    momentum: PyTree


class _Hamiltonian(MomentumSampler):
    """Position and momentum alone; the momentum starts from its stationary distribution N(0, T)."""

    def init(self, params: Params, key: Key) -> HamiltonianState:
        return HamiltonianState(params, fresh_momentum(key, params, self.temperature))

    def stats(self, state: HamiltonianState) -> dict[str, Array]:
        """Mean squared momentum: T at equilibrium; of BAOAB after its friction, up to O(ε²)."""
        return {"kinetic_temperature": kinetic_temperature(state.momentum)}


@cited("stochastic gradient Hamiltonian Monte Carlo", "chen2014")
@pytree_dataclass
class SGHMC(_Hamiltonian):
    r"""Stochastic gradient Hamiltonian Monte Carlo (Chen, Fox & Guestrin 2014), momentum first.

    .. math::
        r' = (1 - εC)\,r + ε\,\hat g(θ) + \sqrt{2εCT - ε^2 V}\,ξ, \qquad θ' = θ + ε r'

    with ĝ an unbiased estimate of ∇ log posterior and V the variance of ĝ if it is known, otherwise 0.

    Targets posterior^(1/T). On a Gaussian with precision λ its exact stationary variance is
    T/λ · 1/(1 - ε²λ/(2(2 - εC))) · (1 + εV/2CT) with V uncorrected: second order in ε, for any friction. (Moving
    the position with the OLD momentum, as several libraries do, is off by first order: 24 % where this is off by 1 %.)

    Cost per step: one gradient estimate and one normal per parameter.

    Parameters
    ----------
    step_size
        ε: number, prefix tree or schedule, in units of θ. None: chosen from curvature and gradient noise at the start;
        "auto": by trying many.
    friction
        C > 0, in units of 1/ε; number or prefix tree. None (default): max(√λ, 5 εV/2) for each parameter, with V
        measured near the mode and subtracted from the injected noise (except noise that cancels over an epoch). A
        friction that you give is used as it is, with a warning if εV/2C shows that the variance will be inflated.
    gradient_noise
        V, to be subtracted from the injected noise: a number or prefix tree. Normally leave the default.
    resample_every
        Redraw the momenta every so many steps (R's L); None: never. The kick after a refresh is halved, as in leapfrog:
        with a full kick the variance would be L/(L+1) of the right one at any step size.
    temperature
        T.

    References
    ----------
    Thesis section 4.3.2 (there ν = εr, step η = ε², α = εC: see `from_r`); Ma, Chen & Fox (2015) section 3.1.
    """

    step_size: Any = None
    friction: Any = None
    gradient_noise: Any = None
    resample_every: int | None = static(default=None)
    temperature: ArrayLike = 1.0

    def __post_init__(self) -> None:
        check_momentum_fields(self)
        if self.resample_every is not None:
            _checks.positive_int(self.resample_every, "resample_every")

    @classmethod
    def from_r(cls, stepsize: PyTree, alpha: ArrayLike = 0.01, num_leapfrog: int = 5) -> SGHMC:
        r"""The R package's form: ν' = (1-α)ν + η ĝ + N(0, 2αη), θ' = θ + ν', ν ∼ N(0, η) redrawn every L steps.

        It is this sampler with ε = √η, C = α/√η and r = ν/√η; keep every L-th draw to match. Two errors of R's code are
        corrected: it refreshes ν with half the variance, and follows the refresh with a full kick instead of half a
        kick; at its defaults it gives 0.43 of the posterior variance.
        """
        eps = jax.tree.map(lambda eta: float(eta) ** 0.5, stepsize)
        return cls(eps, friction=jax.tree.map(lambda e: float(alpha) / e, eps), resample_every=num_leapfrog)

    @property
    def is_open(self) -> bool:
        """True: to choose missing hyper-parameters, and to warn if the friction is too small."""
        return super().is_open or self.gradient_noise is None

    def resolve(self, scales: Scales, params: Params) -> SGHMC:
        """Fill in step size and friction, or warn about the user's."""
        step_size = momentum_step(scales) if is_open(self.step_size) else self.step_size
        eps = schedules.step_sizes(step_size, params, 0)
        if self.friction is not None:
            if self.gradient_noise is not None:
                return dataclasses.replace(self, step_size=step_size)
            friction = coefficients(self.friction, params, "friction")
            warn_of_inflation("SGHMC", eps, friction, scales, self.temperature)
            return dataclasses.replace(self, step_size=step_size, gradient_noise=0.0)
        friction, noise = friction_for(scales, eps), self.gradient_noise
        if noise is None:
            noise = heating_noise(scales, eps, friction)
        return dataclasses.replace(self, step_size=step_size, friction=friction, gradient_noise=noise)

    def step_excess(self, stiffness: float, damped: float) -> float:
        """1/(1 - ε²λ/2(2 - εC)) - 1."""
        left = 1.0 - stiffness / (2.0 * (2.0 - min(damped, 1.0)))
        return 1.0 / left - 1.0 if left > 0 else float("inf")

    def check_params(self, params: Params, num_steps: int) -> None:
        super().check_params(params, num_steps)
        check_damping("SGHMC", "friction", self.friction, self.sizes(params, jnp.array(0)), params)

    def noise(self, key: Key, params: Params) -> PyTree:
        if self.resample_every is None:
            return _tree.normal_like(key, params), None
        kick, fresh = jax.random.split(key)
        return _tree.normal_like(kick, params), _tree.normal_like(fresh, params)

    def step(self, state: HamiltonianState, gradient: Gradient, noise: PyTree, number: Array) -> HamiltonianState:
        """Kick, then move with the new momentum."""
        kick, fresh = noise
        momentum, share = state.momentum, jnp.array(1.0)
        if self.resample_every is not None:
            due = is_due(number, self.resample_every)
            share = jnp.where(due, 0.5, 1.0)  # a fresh momentum starts with half a kick, as in leapfrog
            root = jnp.sqrt(jnp.asarray(self.temperature))
            momentum = jax.tree.map(lambda r, xi: jnp.where(due, root.astype(r.dtype) * xi, r), momentum, fresh)
        eps = self.sizes(state.position, number)
        friction = coefficients(self.friction, state.position, "friction")
        variance = coefficients(0.0 if self.gradient_noise is None else self.gradient_noise, state.position, "noise")

        def push(r: Array, e: Array, c: ArrayLike, v: ArrayLike, g: Array, xi: Array) -> Array:
            injected = jnp.maximum(2.0 * e * c * self.temperature - e * e * v, 0.0).astype(r.dtype)
            return ((1.0 - e * c) * r + share * e * g + jnp.sqrt(injected) * xi).astype(r.dtype)

        momentum = jax.tree.map(push, momentum, eps, friction, variance, gradient.total, kick)
        position = jax.tree.map(lambda p, e, r: p + e * r, state.position, eps, momentum)
        return HamiltonianState(position, momentum)


@cited("the BAOAB splitting of Langevin dynamics", "leimkuhler2013")
@pytree_dataclass
class BAOAB(_Hamiltonian):
    r"""Langevin dynamics with momentum by the BAOAB splitting (Leimkuhler & Matthews 2013), one gradient per step.

    .. math::
        r_1 = r + ε\,\hat g(θ), \quad θ_1 = θ + \tfrac ε2 r_1, \quad
        r' = e^{-εC} r_1 + \sqrt{T(1 - e^{-2εC})}\,ξ, \quad θ' = θ_1 + \tfrac ε2 r'

    (the closing half kick of one step and the opening half kick of the next use the same estimate and are joined).

    Targets posterior^(1/T). On a Gaussian, with exact gradients, the stationary variance of the position is exactly T/λ
    for every stable ε < 2/√λ; gradient noise adds to it.

    Parameters
    ----------
    step_size
        ε: number, prefix tree or schedule, in units of θ; None: chosen at the start, "auto": by trying many.
    friction
        C > 0; None: max(√λ, 25 εV/2), so that the gradient noise inflates the variance by about 4 % at most.
        Inside `sc.Preconditioned`, where λ is about 1 in all directions, an ε and a C that are both left out are those
        with the most effective draws per step at which the noise would inflate the variance by at most 15 %.
    temperature
        T.
    heating
        The relative inflation of the variance by gradient noise, which is subtracted from the injected noise: number or
        tree like the parameters. Chosen with step size and friction inside `sc.Preconditioned`, where it is known
        (exactly on a Gaussian), else 0.
    """

    exact_on_gaussians = True

    step_size: Any = None
    friction: Any = None
    temperature: ArrayLike = 1.0
    heating: Any = 0.0

    def __post_init__(self) -> None:
        check_momentum_fields(self)
        check_amounts(self, "heating", allow_zero=True)

    def resolve(self, scales: Scales, params: Params) -> BAOAB:
        """Fill in step size and friction; in round coordinates together, with the heating that they bring."""
        found = self._foreseen(scales)
        if found is not None:
            heating = jax.tree.map(
                lambda v: np.minimum(found.gain * np.asarray(v), MOST_HEATING).astype(v.dtype), scales.noise
            )
            return dataclasses.replace(self, step_size=found.step_size, friction=found.friction, heating=heating)
        step_size = momentum_step(scales) if is_open(self.step_size) else self.step_size
        friction = self.friction
        if friction is None:
            eps = schedules.step_sizes(step_size, params, 0)
            root = scales.largest_curvature**0.5
            friction = jax.tree.map(lambda v, e: np.maximum(root, 12.5 * np.asarray(e) * v), scales.noise, eps)
        return dataclasses.replace(self, step_size=step_size, friction=friction)

    @property
    def known(self) -> Known:
        return dataclasses.replace(super().known, foreseen=self._foreseen)

    def _foreseen(self, scales: Scales) -> Setting | None:
        """The best step size and friction where all directions have curvature about 1."""
        if scales.factor is None or self.step_size is not None or self.friction is not None:
            return None
        return best_setting(scales.largest_curvature, largest(scales.noise) / max(float(self.temperature), 1e-12))

    def step(self, state: HamiltonianState, gradient: Gradient, noise: PyTree, number: Array) -> HamiltonianState:
        """Kick, half drift, exact friction, half drift."""
        eps = self.sizes(state.position, number)
        friction = coefficients(self.friction, state.position, "friction")
        heating = coefficients(self.heating, state.position, "heating")

        def one(p: Array, r: Array, e: Array, c: ArrayLike, h: ArrayLike, g: Array, xi: Array) -> tuple[Array, Array]:
            r = r + e * g
            p = p + 0.5 * e * r
            share = jnp.maximum(1.0 - h, 0.0) * self.temperature
            r = jnp.exp(-e * c) * r + jnp.sqrt(-jnp.expm1(-2.0 * e * c) * share) * xi
            return (p + 0.5 * e * r).astype(p.dtype), r.astype(p.dtype)

        return HamiltonianState(
            *unzip(one, state.position, state.momentum, eps, friction, heating, gradient.total, noise)
        )
