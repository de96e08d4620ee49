"""Nosé–Hoover thermostats: friction that adapts until the momentum has the right temperature."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from scirocco import _checks, _tree
from scirocco._tree import cited, pytree_dataclass, static
from scirocco.samplers.base import Gradient, Sampler, coefficients, is_open
from scirocco.samplers.momentum import (
    MomentumSampler,
    check_damping,
    check_momentum_fields,
    fresh_momentum,
    kinetic_temperature,
    unzip,
)
from scirocco.samplers.scales import Scales, momentum_step
from scirocco.types import Array, ArrayLike, Key, Params, PyTree


class ThermostatState(NamedTuple):
    """Position, momentum and the thermostat variables (one for all, one per leaf or one per parameter)."""

    position: Params
    momentum: PyTree
    thermostat: PyTree


class _Thermostat(MomentumSampler):
    """Shared by the two thermostat samplers: defaults, initial state, the excess of kinetic energy."""

    step_size: Any
    diffusion: Any
    thermostat: str
    temperature: ArrayLike
    damping = "diffusion"
    absorbs_noise = True

    def __post_init__(self) -> None:
        check_momentum_fields(self)
        _checks.choice(self.thermostat, "thermostat", ("scalar", "leaf", "elementwise"))

    def resolve(self, scales: Scales, params: Params) -> Sampler:
        """Step as for SGHMC; A = √λ, near critical damping. The thermostat absorbs gradient noise."""
        step_size = momentum_step(scales) if is_open(self.step_size) else self.step_size
        diffusion = self.diffusion if self.diffusion is not None else scales.largest_curvature**0.5
        return dataclasses.replace(self, step_size=step_size, diffusion=diffusion)  # type: ignore[type-var]

    def check_params(self, params: Params, num_steps: int) -> None:
        super().check_params(params, num_steps)
        check_damping(type(self).__name__, "diffusion", self.diffusion, self.sizes(params, jnp.array(0)), params)

    def init(self, params: Params, key: Key) -> ThermostatState:
        """Momentum N(0, T); thermostats at A/T, their mean when gradients are exact."""
        momentum = fresh_momentum(key, params, self.temperature)
        level = jax.tree.map(
            lambda a, p: jnp.broadcast_to(jnp.asarray(a / jnp.maximum(self.temperature, 1e-12), p.dtype), p.shape),
            coefficients(self.diffusion, params, "diffusion"),
            params,
        )
        return ThermostatState(params, momentum, self._reduce(level))

    def _reduce(self, tree: PyTree) -> PyTree:
        """Average over the parameters of each thermostat variable."""
        if self.thermostat == "elementwise":
            return tree
        if self.thermostat == "leaf":
            return jax.tree.map(jnp.mean, tree)
        leaves = jax.tree.leaves(tree)
        return sum(jnp.sum(leaf) for leaf in leaves) / sum(leaf.size for leaf in leaves)

    def _spread(self, thermostat: PyTree, params: Params) -> PyTree:
        """The thermostat variable of each leaf."""
        return jax.tree.map(lambda _: thermostat, params) if self.thermostat == "scalar" else thermostat

    def _heat(self, momentum: PyTree, eps: PyTree) -> PyTree:
        """ε (mean of r² - T) for each thermostat variable."""
        return self._reduce(jax.tree.map(lambda r, e: (e * (r * r - self.temperature)).astype(r.dtype), momentum, eps))

    def stats(self, state: ThermostatState) -> dict[str, Array]:
        """Mean squared momentum (exactly T on average at equilibrium) and the mean thermostat."""
        leaves = jax.tree.leaves(state.thermostat)
        mean = sum(jnp.sum(leaf) for leaf in leaves) / sum(leaf.size for leaf in leaves)
        return {"kinetic_temperature": kinetic_temperature(state.momentum), "thermostat": mean}


@cited("the stochastic gradient Nosé-Hoover thermostat", "ding2014")
@pytree_dataclass
class SGNHT(_Thermostat):
    r"""Stochastic gradient Nosé–Hoover thermostat (Ding et al. 2014), momentum first.

    .. math::
        r' = (1 - εζ)\,r + ε\,\hat g(θ) + \sqrt{2εA}\,ξ, \quad θ' = θ + ε r', \quad
        ζ' = ζ + ε\,(r'^\top r'/d - T)

    The thermostat ζ rises until the momentum has temperature T, so gradient noise of unknown (but constant) variance V
    is absorbed: ζ converges to about (A + εV/2)/T. Exactly, for every step size, E[r'ᵀr'/d] = T at equilibrium.

    Targets posterior^(1/T) up to O(ε) when the gradient noise has the same variance in every coordinate that shares a
    thermostat (with `thermostat="elementwise"` every coordinate has its own): on a Gaussian of curvature λ,
    Var θ = (T/λ)(1 - εζ/2). `BADODAB` is of second order at the same cost. ζ needs about (A + εV/2)/ε steps to
    converge, which is long in raw units: `sc.Preconditioned` shortens it.

    Parameters
    ----------
    step_size
        ε: number, prefix tree or schedule, in units of θ; None: chosen at the start, "auto": by trying many.
    diffusion
        A > 0, in units of 1/ε; None: √λ with λ the largest curvature at the start.
    thermostat
        "scalar" (one ζ, the paper), "leaf" (one for each array of parameters, as R does), "elementwise".
    temperature
        T.

    References
    ----------
    Thesis eqs (4.3.3)-(4.3.5) (there ν = εr, step η = ε², α = εζ, a = εA: see `from_r`). As a recipe its energy is
    U + ½rᵀr + (d/2)(ζ - A)².
    """

    step_size: Any = None
    diffusion: Any = None
    thermostat: str = static(default="scalar")
    temperature: ArrayLike = 1.0

    @classmethod
    def from_r(cls, stepsize: PyTree, a: ArrayLike = 0.01) -> SGNHT:
        r"""The R package's form: ν' = (1-α)ν + η ĝ + N(0, 2aη), θ' = θ + ν', α' = α + ν'ᵀν'/p - η, for each array.

        It is this sampler with ε = √η, A = a/√η, r = ν/√η, ζ = α/√η, step for step.
        """
        eps = jax.tree.map(lambda eta: float(eta) ** 0.5, stepsize)
        return cls(eps, diffusion=jax.tree.map(lambda e: float(a) / e, eps), thermostat="leaf")

    def step(self, state: ThermostatState, gradient: Gradient, noise: PyTree, number: Array) -> ThermostatState:
        eps = self.sizes(state.position, number)
        diffusion = coefficients(self.diffusion, state.position, "diffusion")
        friction = self._spread(state.thermostat, state.position)
        momentum = jax.tree.map(
            lambda r, e, z, a, g, xi: ((1.0 - e * z) * r + e * g + jnp.sqrt(2.0 * e * a) * xi).astype(r.dtype),
            state.momentum,
            eps,
            friction,
            diffusion,
            gradient.total,
            noise,
        )
        position = jax.tree.map(lambda p, e, r: p + e * r, state.position, eps, momentum)
        return ThermostatState(position, momentum, _tree.add(state.thermostat, self._heat(momentum, eps)))


@cited("the BADODAB splitting of the Nosé-Hoover thermostat", "leimkuhler2016 ding2014")
@pytree_dataclass
class BADODAB(_Thermostat):
    r"""The thermostat by a symmetric splitting (Leimkuhler & Shang 2016), one gradient per step.

    Kick ε (B), half drift (A), half thermostat (D), exact friction and noise (O), half thermostat (D), half drift (A):

    .. math::
        ζ_1 = ζ + \tfrac ε2 (r^\top r/d - T), \quad
        r' = e^{-εζ_1} r + \sqrt{A (1 - e^{-2εζ_1})/ζ_1}\,ξ

    (at ζ₁ = 0 the root is √(2εA)). The two half kicks around a position use the same estimate and are joined.

    Targets posterior^(1/T); second order in ε, with a smaller constant than `SGNHT`. Parameters as for `SGNHT`.
    """

    exact_on_gaussians = True

    step_size: Any = None
    diffusion: Any = None
    thermostat: str = static(default="scalar")
    temperature: ArrayLike = 1.0

    def step(self, state: ThermostatState, gradient: Gradient, noise: PyTree, number: Array) -> ThermostatState:
        """B, A, D, O, D, A."""
        eps = self.sizes(state.position, number)
        diffusion = coefficients(self.diffusion, state.position, "diffusion")
        half = _tree.scale(0.5, eps)

        def kick_and_drift(p: Array, r: Array, e: Array, g: Array) -> tuple[Array, Array]:
            r = r + e * g
            return p + 0.5 * e * r, r

        position, momentum = unzip(kick_and_drift, state.position, state.momentum, eps, gradient.total)
        thermostat = _tree.add(state.thermostat, self._heat(momentum, half))
        momentum = jax.tree.map(_exact_friction, momentum, eps, self._spread(thermostat, position), diffusion, noise)
        thermostat = _tree.add(thermostat, self._heat(momentum, half))
        position = jax.tree.map(lambda p, e, r: p + 0.5 * e * r, position, eps, momentum)
        return ThermostatState(position, momentum, thermostat)


def _exact_friction(r: Array, e: Array, z: Array, a: ArrayLike, xi: Array) -> Array:
    """Ornstein–Uhlenbeck over time e with friction z of any sign; the variance is A(1 - e^(-2ez))/z."""
    small = jnp.abs(z * e) < 1e-4
    safe = jnp.where(small, 1.0, z)
    variance = jnp.where(small, 2.0 * a * e * (1.0 - e * z), -a * jnp.expm1(-2.0 * e * safe) / safe)
    return (jnp.exp(-e * z) * r + jnp.sqrt(variance) * xi).astype(r.dtype)
