"""By how much step size and gradient noise inflate variances, from the sampler's closed forms."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from scirocco import _tree
from scirocco.analysis.diagnosis.probing import Probe
from scirocco.run.choose import pilot
from scirocco.samplers import Sampler, Scales
from scirocco.samplers.preconditioned import core_of
from scirocco.types import Params, PyTree


class Theory(NamedTuple):
    """The results of the closed forms for a run."""

    stiffness: float
    """ε λ for SGLD, ε² λ for samplers with momentum."""
    step: float
    """Relative excess of the variance in the stiffest direction, from the step alone; inf: unstable."""
    noise_ratio: float
    """Variance that gradient noise adds in a step over the injected variance, largest over parameters."""
    noise: float
    """Relative excess of the variance from gradient noise, largest over parameters."""
    place: int
    """Index of the parameter with that excess."""
    step_size: float
    """The current ε (the largest)."""
    suggested: float
    """ε at which step and noise each inflate variances by about 5 % (1 % for samplers with momentum)."""
    friction: float | None
    friction_needed: float | None
    """C at which the noise inflates variances by 5 %."""


def predict(probe: Probe, sampler: Sampler) -> Theory | None:
    """The results of the sampler's closed forms; None for samplers without them."""
    core = core_of(sampler)
    if core.known.noise_ratio is None:
        return None
    ratios = core.known.noise_ratio(probe.scales, probe.eps, probe.position)
    product = pilot.stiffness(probe.model, probe.table, probe.position, sampler, probe.eps, probe.key)
    found = core.known.excess(probe.scales, product, probe.eps, probe.position)
    if found is None:
        return None
    noise = _flat(found.noise)
    place = int(np.argmax(noise))
    return Theory(
        product,
        found.step,
        float(_flat(ratios).max()),
        0.0 if core.known.absorbs_noise else float(noise[place]),
        place,
        _largest(probe.eps),
        found.suggested,
        None if found.friction is None else float(_flat(found.friction)[place]),
        None if found.friction_needed is None else float(_flat(found.friction_needed).max()),
    )


def noise_ratios(scales: Scales, eps: PyTree, sampler: Sampler, position: Params) -> np.ndarray | None:
    """Variance that gradient noise adds in a step over the injected variance, for each parameter.

    None for samplers whose injected noise is not known in closed form.
    """
    ratio = core_of(sampler).known.noise_ratio
    return None if ratio is None else _flat(ratio(scales, eps, position))


def _flat(tree: PyTree) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)])


def _largest(tree: PyTree) -> float:
    return float(_flat(tree).max()) if _tree.size(tree) else 0.0
