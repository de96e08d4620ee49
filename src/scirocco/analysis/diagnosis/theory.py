"""By how much step size and gradient noise inflate variances, as the sampler's closed forms say."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from scirocco import _tree
from scirocco.analysis.diagnosis.probing import Probe, stiffness
from scirocco.samplers import Sampler, Scales
from scirocco.types import Params, PyTree


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


def predict(probe: Probe, sampler: Sampler) -> Theory | None:
    """What the sampler's closed forms say; None for those that have none."""
    core = sampler.core
    ratios = core.noise_ratio(probe.scales, probe.eps, probe.position)
    if ratios is None:
        return None
    # stiffness() has √ε on both sides of H; with momentum it is ε
    power = 2 // core.step_order
    product = stiffness(probe._replace(eps=jax.tree.map(lambda e: e**power, probe.eps)))
    found = core.excess(probe.scales, product, probe.eps, probe.position)
    if found is None:
        return None
    noise = _flat(found.noise)
    place = int(np.argmax(noise))
    return Theory(
        product,
        found.step,
        float(_flat(ratios).max()),
        0.0 if core.absorbs_noise else float(noise[place]),
        place,
        _largest(probe.eps),
        found.suggested,
        None if found.friction is None else float(_flat(found.friction)[place]),
        None if found.friction_needed is None else float(_flat(found.friction_needed).max()),
    )


def noise_ratios(scales: Scales, eps: PyTree, sampler: Sampler, position: Params) -> np.ndarray | None:
    """Variance of what gradient noise adds in a step over that of what is injected, for each parameter.

    None for samplers whose injected noise is not known in closed form.
    """
    ratios = sampler.core.noise_ratio(scales, eps, position)
    return None if ratios is None else _flat(ratios)


def _flat(tree: PyTree) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)])


def _largest(tree: PyTree) -> float:
    return float(_flat(tree).max()) if _tree.size(tree) else 0.0
