"""Shared by samplers with momentum: checks, new momenta, default step size and friction, warning on low friction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks, _tree
from scirocco.errors import InvalidValueError
from scirocco.samplers.base import Known, Mover, check_amounts, check_fields, coefficients, damping_of, is_open
from scirocco.samplers.scales import MARGIN, Excess, Scales, momentum_step, reshuffling_spectrum
from scirocco.types import Array, ArrayLike, Key, Params, PyTree

_TOLERATED_INFLATION = 0.05  # of a variance by gradient noise, beyond which users are warned


class MomentumSampler(Mover):
    """Samplers with a momentum r and a friction C, the field `damping`."""

    damping: ClassVar[str] = "friction"
    """Name of the friction hyper-parameter."""
    absorbs_noise: ClassVar[bool] = False
    """Whether gradient noise of unknown variance leaves the stationary distribution unchanged."""
    exact_on_gaussians: ClassVar[bool] = False
    """Whether the step alone leaves the variances of a Gaussian unchanged (symmetric splittings)."""
    gradient_noise: Any = None
    """V, if it is subtracted from the injected noise."""
    heating: Any = 0.0
    """Relative inflation of the variance by gradient noise that is subtracted from the injected noise."""

    @property
    def known(self) -> Known:
        """With half of the stability limit as the longest step, for splittings that are exact on Gaussians."""
        return Known(
            step_order=1,
            gradient_alone=True,
            damping=self.damping,
            absorbs_noise=self.absorbs_noise,
            stiffest=2.0 if self.exact_on_gaussians else None,
            noise_ratio=self._noise_ratio,
            excess=self._excess,
        )

    @property
    def is_open(self) -> bool:
        """Whether step size or friction is missing."""
        return is_open(self.step_size) or damping_of(self) is None

    def _friction_like(self, params: Params) -> PyTree:
        """C for each parameter."""
        return jax.tree.map(
            lambda c, p: jnp.broadcast_to(jnp.asarray(c), p.shape),
            coefficients(damping_of(self), params, self.damping),
            params,
        )

    def _noise_ratio(self, scales: Scales, eps: PyTree, params: Params) -> PyTree:
        """ε V / 2 C T."""
        friction = self._friction_like(params)
        return self._ratio(eps, heating_noise(scales, eps, friction), friction)

    def _ratio(self, eps: PyTree, noise: PyTree, friction: PyTree) -> PyTree:
        temperature = max(float(self.temperature), 1e-12)
        return jax.tree.map(lambda e, v, c: e * v / (2.0 * c * temperature), eps, noise, friction)

    def step_excess(self, stiffness: float, damped: float) -> float:
        """Relative excess of the variance in the stiffest direction, from ε²λ and the smallest εC."""
        return 0.0

    def _excess(self, scales: Scales, stiffness: float, eps: PyTree, params: Params) -> Excess:
        """1 + εV/2CT from the part of the gradient noise that is not corrected for or absorbed."""
        friction = self._friction_like(params)
        noise = left = heating_noise(scales, eps, friction)
        if self.gradient_noise is not None:
            known = coefficients(self.gradient_noise, params, "gradient_noise")
            left = jax.tree.map(lambda v, k: jnp.maximum(v - k, 0.0), noise, known)
        least = min(float(jnp.min(e * c)) for e, c in _leaves(eps, friction))
        step = self.step_excess(stiffness, least) if stiffness < 4.0 else float("inf")
        needed = jax.tree.map(lambda r, c: r * c / _TOLERATED_INFLATION, self._ratio(eps, noise, friction), friction)
        suggested = momentum_step(scales._replace(noise=noise))
        heating = coefficients(self.heating, params, "heating")
        excess = jax.tree.map(lambda ratio, h: jnp.maximum(ratio - h, 0.0), self._ratio(eps, left, friction), heating)
        return Excess(step, excess, suggested, friction, needed)


def check_momentum_fields(sampler: MomentumSampler) -> None:
    """Check and normalise step size, friction or diffusion, and temperature."""
    check_fields(sampler, automatic=True)
    check_amounts(sampler, sampler.damping)
    check_amounts(sampler, "gradient_noise", allow_zero=True)


def is_due(number: Array, every: int) -> Array:
    """Whether a step is one of every so many; more than there are numbers of steps, which have 32 bits, is never."""
    return number % min(every, 2**31 - 1) == 0


def fresh_momentum(key: Key, params: Params, temperature: ArrayLike) -> PyTree:
    """A momentum from N(0, T) for each parameter."""
    root = jnp.sqrt(jnp.asarray(temperature))
    return jax.tree.map(lambda xi: root.astype(xi.dtype) * xi, _tree.normal_like(key, params))


def kinetic_temperature(momentum: PyTree) -> Array:
    """Mean squared momentum."""
    return _tree.vdot(momentum, momentum) / _tree.size(momentum)


def unzip(function: Callable[..., tuple[Array, Array]], *trees: PyTree) -> tuple[PyTree, PyTree]:
    """Map a function that returns a pair over trees; a pair of trees."""
    treedef = jax.tree.structure(trees[0])
    firsts, seconds = zip(*(function(*leaves) for leaves in _leaves(*trees)), strict=True)
    return jax.tree.unflatten(treedef, firsts), jax.tree.unflatten(treedef, seconds)


def friction_for(scales: Scales, eps: PyTree) -> PyTree:
    """C = max(√λ, 5 εV/2) for each parameter, with εC ≤ 1/2."""
    root = scales.largest_curvature**0.5
    friction = jax.tree.map(lambda v, e: jnp.maximum(root, MARGIN * e * v / 2.0), scales.noise, eps)
    friction = jax.tree.map(lambda c, e: jnp.minimum(c, 0.5 / e), friction, eps)
    short = max(float(jnp.max(e * v / (2.0 * c))) for e, v, c in _leaves(eps, scales.noise, friction))
    if short > 1.0:
        limit = min(float(jnp.min(1.0 / jnp.sqrt(v))) for v in jax.tree.leaves(scales.noise))
        raise InvalidValueError(
            f"the step size of SGHMC is too large for the noise of the gradient estimate: it must be below {limit:.3g} "
            "here. Lower it (or omit it), use a larger batch, or use sc.ControlVariates."
        )
    return friction


def heating_noise(scales: Scales, eps: PyTree, friction: PyTree) -> PyTree:
    """The variance of independent errors that inflate the variance of a damped oscillator as much as the measured ones.

    Overdamped (C ≥ √λ), it averages over its relaxation time, and errors that cancel over an epoch hardly count.
    Underdamped, it responds to the errors at its own frequency ε√λ per step, however long its relaxation time.
    """
    slow = scales.lasting_noise(relaxation_steps(scales, eps, friction))

    def one(v: Array, s: Array, e: Array, c: ArrayLike, f: Array) -> Array:
        share = reshuffling_spectrum(np.asarray(e * jnp.sqrt(f)), scales.epoch)
        return jnp.where(c < jnp.sqrt(f), v * share.astype(v.dtype), s)

    return jax.tree.map(one, scales.noise, slow, eps, friction, scales.information)


def relaxation_steps(scales: Scales, eps: PyTree, friction: PyTree) -> PyTree:
    """Relaxation time of a damped oscillator's position in steps: C/(ελ) if overdamped, otherwise 2/(εC)."""
    return jax.tree.map(
        lambda e, c, f: jnp.maximum(c / (e * jnp.maximum(f, 1e-30)), 2.0 / (e * c)), eps, friction, scales.information
    )


def warn_of_inflation(owner: str, eps: PyTree, friction: PyTree, scales: Scales, temperature: ArrayLike) -> None:
    """Warn if gradient noise inflates variances by more than 5 % at the user's friction: factor 1 + εV/2CT."""
    friction = jax.tree.map(lambda c, f: jnp.broadcast_to(c, f.shape), friction, scales.information)
    noise = heating_noise(scales, eps, friction)
    excess = [
        float(jnp.max(e * v / (2.0 * c * jnp.maximum(temperature, 1e-12)))) for e, v, c in _leaves(eps, noise, friction)
    ]
    worst = max(excess)
    if worst > _TOLERATED_INFLATION:
        need = max(float(jnp.max(e * v / (2.0 * _TOLERATED_INFLATION))) for e, v in _leaves(eps, noise))
        _checks.warn(
            f"the friction of {owner} is too small for the noise of the gradient estimate: posterior variances will be "
            f"inflated by about {100 * worst:.0f} %. Use friction >= {need:.3g}, omit `friction` (it is then "
            "set from the measured noise, and the noise is corrected for), or reduce the noise with "
            "sc.ControlVariates or a larger batch."
        )


def check_damping(owner: str, name: str, value: PyTree, eps: PyTree, params: Params) -> None:
    """Reject ε × friction > 1: the momentum would change sign at every step."""
    spread = coefficients(value, params, name)
    worst = max(float(jnp.max(e * c)) for e, c in zip(jax.tree.leaves(eps), jax.tree.leaves(spread), strict=True))
    if worst > 1.0:
        raise InvalidValueError(
            f"`step_size` × `{name}` of {owner} is {worst:.3g}; it must not exceed 1. Lower one of them."
        )


def _leaves(*trees: PyTree) -> Any:
    return zip(*(jax.tree.leaves(tree) for tree in trees), strict=True)
