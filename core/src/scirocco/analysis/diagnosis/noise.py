"""Gradient noise along a run, relative to the injected noise."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _tree
from scirocco.analysis.diagnosis.probing import noise_ratios
from scirocco.data.tables import Table
from scirocco.errors import InvalidValueError
from scirocco.estimators.base import around
from scirocco.run import Run, encoding, setup
from scirocco.run.cadence import cadence_of
from scirocco.run.choose import pilot
from scirocco.run.records import Record
from scirocco.run.result import Origin
from scirocco.samplers import Sampler, Scales, schedules
from scirocco.samplers.preconditioned import core_of, rows_times
from scirocco.store import Stored
from scirocco.types import Key, Params, PyTree

Array = np.ndarray[Any, np.dtype[Any]]

_POINTS = 12  # of a curve
_CHAINS, _BATCHES = 4, 4  # chains that are followed; batches at each draw
_MOST_PARAMETERS = 2_000  # whose noise is measured
_LINEAR = 100
"""The most parameters for which gradients are regressed on the draws."""


class NoiseCurve(NamedTuple):
    """Variance that gradient noise adds in a step over the injected variance, at some points of a run."""

    steps: Array
    median: Array
    """The median over the parameters."""
    largest: Array
    how: str
    """How it was measured, as a sentence."""


def noise_along(run: Run, seed: int = 0) -> NoiseCurve:
    """Gradient noise over injected noise along a run, from model and data or from stored gradients.

    In a step a gradient estimate of variance V adds ε² V to the variance, and the sampler 2 ε T, with momentum 2 ε C T:
    the ratio is ε V / 2 T, or ε V / 2 C T. For batches drawn without replacement, noise that cancels within a pass is
    left out.

    Parameters
    ----------
    run
        A run from `sc.sample`. A loaded run has no model, so it must contain gradients.
    seed
        Random seed of the batches used to measure it.

    Raises
    ------
    InvalidValueError
        If it cannot be estimated; the message says why.
    """
    if run.origin is not None:
        return _from_model(run, run.origin, seed)
    if run.gradients is None:
        raise InvalidValueError(
            "gradient noise requires the model and the data, which a stored run does not contain, or gradients "
            "(keep_gradients=True)."
        )
    return _from_gradients(run)


def _from_model(run: Run, origin: Origin, seed: int) -> NoiseCurve:
    _check(origin)
    model, key = origin.model, jax.random.key(seed)
    places = np.unique(np.linspace(0, run.num_draws - 1, _POINTS).round().astype(int))
    chains = min(run.num_chains, _CHAINS)
    drawn = jax.tree.map(lambda leaf: jnp.stack([np.asarray(leaf[:chains, int(place)]) for place in places]), run.draws)
    drawn = jax.tree.map(lambda leaf: jnp.repeat(leaf.reshape(-1, *leaf.shape[2:]), _BATCHES, axis=0), drawn)
    positions = jax.jit(jax.vmap(model.unconstrain))(drawn)
    last = jax.tree.map(lambda leaf: leaf[-1], positions)
    if _tree.size(last) > _MOST_PARAMETERS:
        raise InvalidValueError(
            f"gradient noise is measured for at most {_MOST_PARAMETERS:,} parameters; there are {_tree.size(last):,}."
        )
    problem = setup.compose(model, origin.source, origin.sampler, origin.estimator, seed)
    memory = _memory(origin, problem.table, last, key)
    sampler = origin.sampler
    factor = sampler.known.factor
    parts, table = problem.parts, problem.table
    scales = pilot.scales_at(model, parts, table, memory, last, factor, key)
    noise = pilot.noise_at(model, parts, table, memory, positions, factor, key)
    noise = jax.tree.map(lambda leaf: leaf.reshape(len(places), -1, *leaf.shape[1:]).mean(axis=1), noise)
    each = [jax.tree.map(lambda leaf, k=k: leaf[k], noise) for k in range(len(places))]
    how = f"Measured with four batches at each of {len(places)} draws of {'each chain' if chains > 1 else 'the chain'}"
    how += "." if chains == run.num_chains else f"; the first {chains} of {run.num_chains} chains."
    return _curve(_steps(run, places), each, scales, sampler, last, how)


def _inner(sampler: Sampler) -> Any:
    """The sampler whose injected noise is known."""
    inner = core_of(sampler)
    if inner.known.noise_ratio is None:
        raise InvalidValueError(
            "gradient noise cannot be compared with the noise of this sampler, which has no closed form."
        )
    return inner


def _check(origin: Origin) -> None:
    """Raise an error if there is no gradient noise, or its distribution is not known."""
    if not origin.model.facts.has_density:
        raise InvalidValueError("there is no gradient noise: the model has counts, not a log density.")
    if origin.estimator.traits.is_exact:
        raise InvalidValueError("there is no gradient noise: every gradient is exact (all rows).")
    if origin.estimator.traits.learns:
        raise InvalidValueError(
            f"gradient noise of {type(origin.estimator).__name__} depends on its memory along the run, which is "
            "not stored."
        )
    if float(_inner(origin.sampler).temperature) == 0.0:
        raise InvalidValueError("at temperature 0 no noise is injected, so gradient noise cannot be compared with it.")


def _memory(origin: Origin, table: Table, position: Params, key: Key) -> PyTree:
    if origin.memory is not None:
        return origin.memory
    # no need to search for the mode again
    estimator = around(origin.estimator, origin.model.constrain(position))
    return estimator.prepare(origin.model, table, position, key).memory


def _from_gradients(run: Run) -> NoiseCurve:
    """V is the residual variance of the gradients regressed on the draws, in segments of the run."""
    sampler = _stored_sampler(run)
    _inner(sampler)
    x, g = (_flat(tree) for tree in (run.draws, run.gradients))
    size = x.shape[2]
    needed = 4 * (size + 1)
    windows = min(_POINTS, x.shape[0] * x.shape[1] // needed, x.shape[1])
    if size > _LINEAR or windows < 1:
        raise InvalidValueError(
            f"gradient noise from stored gradients requires at most {_LINEAR} parameters and at least {needed:,} draws."
        )
    factor = sampler.known.factor
    if factor is not None:
        g = rows_times(np.asarray(factor), g, transposed=True)
    edges = np.linspace(0, x.shape[1], windows + 1).astype(int)
    parts = [(x[:, a:b].reshape(-1, size), g[:, a:b].reshape(-1, size)) for a, b in itertools.pairwise(edges)]
    position = jax.tree.map(lambda leaf: jnp.asarray(leaf[0, -1]), run.draws)
    spread = _tree_like(1.0 / np.maximum(x.reshape(-1, size).var(axis=0), 1e-300), position)
    noise = [_tree_like(_unexplained(*part), position) for part in parts]
    scales = Scales(0.0, noise[0], spread, 1, factor)
    how = (
        "Estimated from the stored gradients, as the residual of a linear regression on the draws. If the "
        "posterior is far from normal, this is more than the noise."
    )
    return _curve(_steps(run, (edges[:-1] + edges[1:]) // 2), noise, scales, sampler, position, how)


def _stored_sampler(run: Run) -> Any:
    sampler = Record.from_json(Stored.open(run.path).record).sampler if run.path else None
    if sampler is None:
        raise InvalidValueError("gradient noise requires the sampler, which this run does not contain.")
    return encoding.decode(sampler, "sampler")


def _unexplained(x: Array, g: Array) -> Array:
    """The variance for each parameter."""
    design = np.column_stack([np.ones(len(x)), (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-300)])
    left = g - design @ np.linalg.lstsq(design, g, rcond=None)[0]
    return np.asarray(np.sum(left**2, axis=0) / max(1, len(x) - design.shape[1]))


def _curve(
    steps: Array, noise: list[PyTree], scales: Scales, sampler: Sampler, position: Params, how: str
) -> NoiseCurve:
    inner = _inner(sampler)
    found = []
    for step, each in zip(steps, noise, strict=True):
        eps = schedules.step_sizes(inner.step_size, position, int(step))
        ratio = noise_ratios(scales._replace(noise=each), eps, sampler, position)
        assert ratio is not None  # checked before
        found.append(ratio)
    ratios = np.stack(found)
    return NoiseCurve(np.asarray(steps), np.median(ratios, axis=1), ratios.max(axis=1), how)


def _steps(run: Run, places: Array) -> Array:
    """The step of each draw, burn-in included."""
    steps: Array = cadence_of(run.configuration).steps(np.asarray(places) + 1) - 1
    return steps


def _flat(tree: PyTree) -> Array:
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]
    return np.concatenate([leaf.reshape(*leaf.shape[:2], -1) for leaf in leaves], axis=2)


def _tree_like(flat: Array, position: Params) -> PyTree:
    leaves, structure = jax.tree.flatten(position)
    cuts = np.cumsum([leaf.size for leaf in leaves])[:-1]
    parts = np.split(flat, cuts)
    return jax.tree.unflatten(
        structure,
        [jnp.asarray(part.reshape(leaf.shape), jnp.float32) for part, leaf in zip(parts, leaves, strict=True)],
    )
