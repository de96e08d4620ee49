"""Other modes of the posterior: found by Newton's method from mirror images of the mode, the prior, and far away.

Chains do not move between modes that are far apart, and from draws around one of them nobody can tell that there are
others. Mirror images (the sign of a parameter, the order of the entries of arrays of one length) are what mixtures,
factors and squares have; points far away find others, if they are not too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from scirocco import _tree
from scirocco._random import SeedPurpose
from scirocco.estimators.newton import OnRows, Peak, prior_curvature
from scirocco.model import Model
from scirocco.run.choose import limits
from scirocco.samplers import Jumps
from scirocco.types import Params, PyTree, Rows

_FLAT = (1e-6, 1e-5)
"""Smallest eigenvalue of a Hessian with unit diagonal that is believed, and that of a mode."""


class WeighedMode(NamedTuple):
    """A mode on the real line, and the logarithm of its mass under the Gaussian there."""

    position: Params
    flat: np.ndarray
    """The same as numbers."""
    log_mass: float
    factor: np.ndarray


def other_modes(model: Model, num_rows: int, mode: Params, start: Params, rows: Rows) -> list[WeighedMode]:
    """All modes that were found, that of the most mass first; `mode` is one of them."""
    here = _flat(mode)
    if here.size > limits.LIMITS.mode_parameters:
        return []
    given = OnRows(model, num_rows, mode, rows)
    top = given.peak(mode, *_FLAT)
    if top is None:
        return []
    found, above = [_weighed(top)], top.log_density - limits.LIMITS.negligible_mass * max(1.0, 0.5 * here.size)
    deviations = np.sqrt(np.sum(found[0].factor ** 2, axis=1))
    for point in _images(mode):
        _add(found, given, _flat(point), above)
    away = np.maximum.reduce([np.abs(_flat(start) - here), 10 * deviations, np.abs(here)])
    prior = _prior(model, mode, here)
    random = np.random.default_rng([SeedPurpose.MODES])
    searches, last = 0, 0
    while searches < limits.LIMITS.most_mode_searches and searches - last < limits.LIMITS.mode_searches * len(found):
        known = np.stack([one.flat for one in found])
        beyond = np.maximum(away, 2 * known.std(axis=0)) * limits.LIMITS.mode_reach ** random.random()
        pair = known[random.integers(len(known), size=2)]
        between = pair.mean(axis=0), np.maximum(0.5 * np.abs(pair[1] - pair[0]), 5 * deviations)
        places = [(known.mean(axis=0), beyond), between, *prior] if len(known) > 1 else [(here, beyond), *prior]
        centre, spread = places[searches % len(places)]
        searches += 1
        if _add(found, given, centre + spread * random.standard_normal(here.size)):
            last = searches
    found.sort(key=lambda one: -one.log_mass)
    return [one for one in found if one.log_mass > found[0].log_mass - limits.LIMITS.negligible_mass]


def _prior(model: Model, mode: Params, flat: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """The mode, and the standard deviations of the prior there; none if it is improper."""
    curvature = np.diagonal(np.asarray(prior_curvature(model, mode), np.float64))
    return [(flat, 1 / np.sqrt(curvature))] if np.all(curvature > 0) else []


def _images(mode: Params) -> Iterator[Params]:
    """The mode with some signs changed, or with the entries of all arrays of one length in another order."""
    leaves, treedef = jax.tree.flatten(jax.tree.map(np.asarray, mode))
    made = 0
    yield jax.tree.unflatten(treedef, [-leaf for leaf in leaves])
    for number, leaf in enumerate(leaves):
        for entry in range(min(leaf.size, 4)):
            made += 1
            if made > limits.LIMITS.mode_images:
                return
            turned = leaf.copy()
            turned.flat[entry] *= -1
            yield jax.tree.unflatten(treedef, [*leaves[:number], turned, *leaves[number + 1 :]])
        if leaf.size > 1:
            yield jax.tree.unflatten(treedef, [*leaves[:number], -leaf, *leaves[number + 1 :]])
    for length in sorted({leaf.shape[0] for leaf in leaves if leaf.ndim and 2 <= leaf.shape[0] <= 8}):
        for shift in range(1, length):
            yield jax.tree.unflatten(
                treedef, [np.roll(leaf, shift, 0) if leaf.ndim and len(leaf) == length else leaf for leaf in leaves]
            )


def _add(found: list[WeighedMode], given: OnRows, point: np.ndarray, above: float = -math.inf) -> bool:
    """Climb from a point above a log density, and keep where it ends if that is a mode, and a new one that matters."""
    peak = given.climb(point, above, limits.LIMITS.mode_looks, *_FLAT)
    if peak is None:
        return False
    mode = _weighed(peak)
    if any(_distance(mode, other) <= limits.LIMITS.modes_apart for other in found):
        return False
    best = max(other.log_mass for other in found)
    if mode.log_mass < best - limits.LIMITS.negligible_mass:
        return False
    found.append(mode)
    return True


def _weighed(peak: Peak) -> WeighedMode:
    """A mode with its mass."""
    log_mass = peak.log_density + float(np.linalg.slogdet(peak.factor)[1])
    return WeighedMode(peak.position, _flat(peak.position), log_mass, peak.factor)


def _distance(one: WeighedMode, other: WeighedMode) -> float:
    change = one.flat - other.flat
    return min(_length(mode.factor, change) for mode in (one, other))


def _length(factor: np.ndarray, change: np.ndarray) -> float:
    """The largest change of a coordinate in which this mode has standard deviation 1."""
    solved = np.linalg.lstsq(factor, change, rcond=None)[0]
    return float(np.max(np.abs(solved)))


def _flat(position: Params) -> np.ndarray:
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(position)])


def jumps_between(modes: list[WeighedMode]) -> Jumps:
    """What joins the modes in a run."""
    factors = [np.linalg.cholesky(one.factor @ one.factor.T) for one in modes]
    return Jumps(
        np.stack([one.flat for one in modes]).astype(np.float32),
        np.stack(factors).astype(np.float32),
        np.array([one.log_mass - modes[0].log_mass for one in modes], np.float32),
    )


def describe(model: Model, modes: list[WeighedMode]) -> list[dict[str, Any]]:
    """Plain numbers: the share of the mass, and the first parameters in the user's units."""
    masses = np.exp([one.log_mass - modes[0].log_mass for one in modes])
    return [
        {"mass": float(mass), "at": _shown(model.constrain(one.position))}
        for mass, one in zip(masses / masses.sum(), modes, strict=True)
    ]


def _shown(params: PyTree) -> str:
    named = list(zip(_tree.leaf_names(params), jax.tree.leaves(params), strict=True))
    some = []
    for name, leaf in named[:3]:
        values = [f"{value:.3g}" for value in np.ravel(np.asarray(leaf))[:3]]
        more = ", ..." if np.size(leaf) > 3 else ""
        some.append(f"{name} = {values[0]}" if np.ndim(leaf) == 0 else f"{name} = [{', '.join(values)}{more}]")
    return ", ".join(some) + (", ..." if len(named) > 3 else "")
