"""From the user's arguments to the inputs of the loop: composition, checks, preparation."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from scirocco import _checks, _tree
from scirocco.data import (
    ArraySource,
    Devices,
    Resident,
    Streamed,
    Table,
    as_source,
    spread_over,
    to_device,
)
from scirocco.data.arrays import RowSource
from scirocco.errors import BadStartError, InvalidValueError
from scirocco.estimators import Estimator, Referenced
from scirocco.model import Posterior
from scirocco.run import arguments
from scirocco.run.blocks import scheme_of
from scirocco.run.loop import Parts, Start
from scirocco.run.schemes import Scheme
from scirocco.samplers import Sampler
from scirocco.samplers.base import has_one_scale
from scirocco.types import Array, Data, Params, PyTree


class Problem(NamedTuple):
    """Model, data and method, composed and arranged, before any parameter is known."""

    model: Posterior
    source: RowSource
    parts: Parts
    """Without rows for streamed data: each segment brings its own."""
    table: Table


class Ready(NamedTuple):
    """The results of the set-up; they can be used in other processes."""

    sampler: Sampler
    """With all automatic choices filled in."""
    estimator: Estimator
    """With all automatic choices filled in."""
    start: Start
    report: dict[str, Any]
    thin: int | None = None
    """Steps after which the sampler has forgotten where it was, where that can be foreseen."""
    resumed: bool = False
    """Whether `start` only has the right shapes, because the chains' states come from a store."""


def compose(
    model: Posterior,
    data: Data,
    sampler: Sampler,
    estimator: Estimator,
    seed: int,
    devices: Devices | None = None,
) -> Problem:
    """Check that the parts fit together, and arrange the data on the device or devices."""
    arguments.check_kind(model, Posterior, "model", "sc.Model(log_likelihood, log_prior)")
    arguments.check_kind(sampler, Sampler, "sampler", "sc.SGLD(step_size=1e-5)")
    arguments.check_kind(estimator, Estimator, "estimator", "sc.Minibatch(batch_size=500)")
    source, scheme = source_of(model, data), scheme_of(sampler)
    model = scheme.adapt(model, sampler)
    arguments.check_value(model, sampler)
    spread = devices is not None and bool(devices.row_axes)
    _checks.note_run()
    if source.wild_scales and has_one_scale(sampler):
        _checks.warn(source.wild_scales)
    resident = isinstance(source, ArraySource)
    scheme.check(model, estimator, not resident, spread, source.num_rows)
    arguments.check_independence(sampler, estimator)
    arguments.check_auxiliary(sampler, estimator, spread)
    arguments.check_trajectory(model, sampler, estimator, resident and not spread)
    arguments.check_expansion(model, sampler, estimator, resident and not spread)
    automatic = estimator.traits.sampling == "auto"
    estimator = with_reference(sampler, estimator)
    if devices is not None and spread:
        return _spread(model, source, sampler, estimator, scheme, seed, devices)
    if devices is not None and not resident:
        raise InvalidValueError(
            "chains on separate devices require the data in memory: load them first, or use a mesh with an axis for "
            "rows, whose devices read parts of the folder."
        )
    batching = scheme.batching(sampler, estimator, source.num_rows)
    if isinstance(source, ArraySource):
        arranged = jax.tree.map(to_device, batching.arrange(source.arrays, seed))
        parts = Parts(sampler, estimator, batching, arranged, scheme)
        return Problem(model, source, parts, Resident(arranged, batching))
    table = Streamed(source, batching, automatic, estimator.traits.needs_index)
    return Problem(model, source, Parts(sampler, estimator, table.batching, None, scheme), table)


def source_of(model: Any, data: Data) -> RowSource:
    """The data as a source of what the model's data are: rows, or groups of rows."""
    return as_source(data, model.facts.groups if isinstance(model, Posterior) else None)


def _spread(
    model: Posterior,
    source: RowSource,
    sampler: Sampler,
    estimator: Estimator,
    scheme: Scheme,
    seed: int,
    devices: Devices,
) -> Problem:
    """Rows shared by several devices."""
    if not estimator.traits.can_spread:
        who = sampler if sampler.needs.reference else estimator.core
        raise InvalidValueError(
            f"{type(who).__name__} requires all rows on one device. Only sc.Full, sc.Minibatch, "
            "sc.ControlVariates and sc.SVRG support rows spread over a mesh; all support a mesh with only `chains`."
        )
    # its defaults depend on the total number of rows, not on that of a device
    estimator = estimator.resolved(source.num_rows)
    table = spread_over(source, scheme.batching(sampler, estimator, source.num_rows), devices, seed)
    return Problem(model, source, Parts(sampler, estimator, table.own, table.data, scheme), table)


def blank_memory(model: Posterior, parts: Parts, table: Table, position: Params, num_rows: int) -> PyTree:
    """Something with the structure and shapes of the estimator's memory."""
    return parts.scheme.blank_memory(model, parts, position, num_rows, table.row_spec)


def with_reference(sampler: Sampler, estimator: Estimator) -> Estimator:
    """The estimator, with a reference if the sampler compares its estimates with one."""
    renewals = sampler.needs.reference
    if renewals is None:
        return estimator
    return Referenced(estimator.core, renewals.every or None, renewals.size)


def check_first(problem: Problem, params: Params, density: Array, gradient: PyTree) -> None:
    """Check that the first log density and gradient are finite; if not, find out why and raise an error."""
    names, leaves = _tree.leaf_names(gradient), jax.tree.leaves(gradient)
    unhappy = [name for name, leaf in zip(names, leaves, strict=True) if not np.all(np.isfinite(leaf))]
    if not unhappy and np.all(np.isfinite(density)):
        return
    problem.model.explain_bad_start(
        problem.model.unconstrain(arguments.check_params(params)), problem.table, unhappy
    )
    raise BadStartError(
        "the log density is not finite at the starting point for some rows. Start elsewhere, or check for rows for "
        "which the likelihood is not defined."
    )
