"""By how much step size and gradient noise inflate variances, for each family of samplers: exact on Gaussians."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _tree
from scirocco.analysis.diagnosis.probing import Probe, stiffness
from scirocco.samplers import BADODAB, BAOAB, SGHMC, SGLD, SGNHT, Preconditioned, Scales
from scirocco.samplers.base import coefficients
from scirocco.samplers.langevin import langevin_step
from scirocco.samplers.momentum import heating_noise, momentum_step

_THERMOSTATS = (SGNHT, BADODAB)
_WITH_MOMENTUM = (SGHMC, BAOAB, *_THERMOSTATS)
COMPARABLE = (SGLD, *_WITH_MOMENTUM)
"""Samplers whose injected noise is known, so that gradient noise can be compared with it."""


class Theory(NamedTuple):
    """What the closed forms say of this run."""

    stiffness: float
    """ε λ for SGLD, ε² λ for samplers with momentum."""
    step: float
    """Relative excess of the variance in the stiffest direction, from the step alone; inf: unstable."""
    noise_ratio: float
    """Variance of what gradient noise adds in a step over that of what is injected, largest over parameters."""
    noise: float
    """Relative excess of the variance from gradient noise, largest over parameters."""
    place: int
    """Number of the parameter with that excess."""
    step_size: float
    """ε now (the largest)."""
    suggested: float
    """ε at which step and noise each inflate variances by about 5 % (1 % for samplers with momentum)."""
    friction: float | None
    friction_needed: float | None
    """C at which the noise inflates variances by 5 %."""


def predict(probe: Probe, sampler: Any) -> Theory | None:
    """The closed forms for this sampler; None for those that have none."""
    inner = sampler.inner if isinstance(sampler, Preconditioned) else sampler
    temperature = max(float(inner.temperature), 1e-12) if hasattr(inner, "temperature") else 1.0
    if isinstance(inner, SGLD):
        return _langevin(probe, temperature)
    if isinstance(inner, _WITH_MOMENTUM):
        return _momentum(probe, inner, temperature)
    return None


def noise_ratios(scales: Scales, eps: Any, sampler: Any, position: Any) -> np.ndarray | None:
    """Variance of what gradient noise adds in a step over that of what is injected, for each parameter.

    None for samplers whose injected noise is not known in closed form.
    """
    inner = sampler.inner if isinstance(sampler, Preconditioned) else sampler
    if not isinstance(inner, COMPARABLE):
        return None
    temperature = max(float(inner.temperature), 1e-12) if hasattr(inner, "temperature") else 1.0
    if isinstance(inner, SGLD):
        return _flat(jax.tree.map(lambda e, v: e * v / (2.0 * temperature), eps, _lasting(scales, eps)))
    friction = _friction(inner, position)
    noise = heating_noise(scales, eps, friction)
    return _flat(jax.tree.map(lambda e, v, c: e * v / (2.0 * c * temperature), eps, noise, friction))


def _lasting(scales: Scales, eps: Any) -> Any:
    """Gradient noise, less what cancels over an epoch before an overdamped chain feels it."""
    relaxation = jax.tree.map(lambda e, f: 1.0 / jnp.maximum(e * f, 1e-12), eps, scales.information)
    return scales.lasting_noise(relaxation)


def _friction(inner: Any, position: Any) -> Any:
    """C for each parameter."""
    damping = "diffusion" if isinstance(inner, _THERMOSTATS) else "friction"
    return jax.tree.map(
        lambda c, p: jnp.broadcast_to(jnp.asarray(c), p.shape),
        coefficients(getattr(inner, damping), position, damping),
        position,
    )


def _langevin(probe: Probe, temperature: float) -> Theory:
    product = stiffness(probe)
    noise = _lasting(probe.scales, probe.eps)
    ratios = _flat(jax.tree.map(lambda e, v: e * v / (2.0 * temperature), probe.eps, noise))
    place = int(np.argmax(ratios))
    step = 1.0 / (1.0 - product / 2.0) - 1.0 if product < 2 else float("inf")
    suggested = langevin_step(probe.scales._replace(noise=noise))
    worst = float(ratios[place])
    return Theory(product, step, worst, worst, place, _largest(probe.eps), suggested, None, None)


def _momentum(probe: Probe, inner: Any, temperature: float) -> Theory:
    # stiffness() has √ε on both sides of H; with momentum it is ε
    squared = probe._replace(eps=jax.tree.map(lambda e: e * e, probe.eps))
    product = stiffness(squared)
    friction = _friction(inner, probe.position)
    noise = heating_noise(probe.scales, probe.eps, friction)
    ratios = jax.tree.map(lambda e, v, c: e * v / (2.0 * c * temperature), probe.eps, noise, friction)
    left = ratios
    known = getattr(inner, "gradient_noise", None)
    if known is not None:
        left = jax.tree.map(
            lambda e, v, k, c: e * jnp.maximum(v - k, 0.0) / (2.0 * c * temperature),
            probe.eps,
            noise,
            coefficients(known, probe.position, "gradient_noise"),
            friction,
        )
    excess = _flat(left)
    place = int(np.argmax(excess))
    need = _flat(jax.tree.map(lambda e, v: e * v / (2.0 * 0.05 * temperature), probe.eps, noise))
    absorbed = isinstance(inner, _THERMOSTATS)  # the thermostat cools what the noise heats
    least = float(np.min(_flat(jax.tree.map(lambda e, c: e * c, probe.eps, friction))))
    return Theory(
        product,
        _step_excess(inner, product, least),
        float(_flat(ratios).max()),
        0.0 if absorbed else float(excess[place]),
        place,
        _largest(probe.eps),
        momentum_step(probe.scales._replace(noise=noise)),
        float(_flat(friction)[place]),
        float(need.max()),
    )


def _step_excess(inner: Any, product: float, damped: float) -> float:
    """Of the variance in the stiffest direction, from ε²λ and εC."""
    if product >= 4.0:
        return float("inf")
    if not isinstance(inner, SGHMC):  # splittings are exact on Gaussians; thermostats hold the temperature
        return 0.0
    left = 1.0 - product / (2.0 * (2.0 - min(damped, 1.0)))
    return 1.0 / left - 1.0 if left > 0 else float("inf")


def _flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)])


def _largest(tree: Any) -> float:
    return float(_flat(tree).max()) if _tree.size(tree) else 0.0
