"""From the user's arguments to the inputs of the loop: composition, checks, preparation."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import math
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from scirocco import _checks, _tree
from scirocco._programs import compile_ahead
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
from scirocco.estimators import Estimator, Prepared, Referenced, find_mode, measure_counts, newton
from scirocco.estimators.mode import Mode, some_rows
from scirocco.estimators.newton import DENSE_PARAMETERS, FAR, beside
from scirocco.model import Model, Posterior
from scirocco.run import arguments, defaults, metric, modes, pilot, scores
from scirocco.run.blocks import scheme_of
from scirocco.run.loop import Parts, Start
from scirocco.run.metric import DENSE_LIMIT
from scirocco.run.schemes import Scheme
from scirocco.run.tuning import Arena, tune_prepared
from scirocco.samplers import Reference, Sampler
from scirocco.samplers.base import has_one_scale, is_tuned
from scirocco.samplers.scales import largest
from scirocco.types import Array, Data, Key, Params, PyTree


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


def prepare(
    problem: Problem,
    params: Params,
    *,
    num_steps: int,
    num_chains: int,
    key: Key,
    free: bool = False,
    near_mode: bool = False,
) -> tuple[Problem, Ready]:
    """Check the start, prepare the estimator, and let the sampler fill in its automatic choices.

    `free`: the batch size is chosen, too, and the shape of the posterior is measured. `near_mode`: a search has ended
    at `params`. Returns the problem with the completed method, and the results of the set-up.
    """
    with arguments.order_explained(problem.model, problem.source, params):
        params = arguments.check_params(params)
        if not problem.parts.sampler.is_open:
            problem.parts.sampler.check_params(params, num_steps)
        if free or (is_tuned(problem.parts.sampler) and problem.parts.estimator.traits.finds_mode):
            _compile_ahead(problem, params, key, free)
        parts, prepared = prepare_estimator(problem, params, num_chains=num_chains, key=key)
        if prepared.estimator is not None:
            problem = _rebatched(problem, parts)
    report = dict(prepared.report)
    start, thin = Start(prepared.position, prepared.memory, prepared.gradient), None
    if free and defaults.is_large(params) and not report.get("is_mode", True):  # no shape to be measured
        return problem, Ready(parts.sampler, parts.estimator, start, report | {"roundness": math.inf})
    if not report.get("is_mode", True):
        _checks.warn(
            "the search for the posterior mode ended where the log density is not concave, as it does for networks: "
            "control variates and coordinates scaled at a mode are of little use. Use sc.SGHMC() with sc.Minibatch."
        )
    if near_mode:
        prepared = prepared._replace(near_mode=True)
    if parts.sampler.is_open:
        with _explained(problem, params):
            parts, start, found, thin = _resolved(problem, parts, prepared, start, key, free)
        parts.sampler.check_params(prepared.position, num_steps)
        report |= found
    if problem.table.streamed and parts.batching.size != problem.table.batching.size:
        problem = _rebatched(problem, parts)  # streams are cut for their batch size
    table = problem.table
    if isinstance(table, Streamed):
        parts = parts._replace(batching=table.batching)
        report["batches"] = table.reason
    return problem._replace(parts=parts), Ready(parts.sampler, parts.estimator.core, start, report, thin)


def _rebatched(problem: Problem, parts: Parts) -> Problem:
    """The problem with a table for the batches of these parts."""
    if not isinstance(problem.table, Streamed):
        return problem._replace(table=Resident(parts.data, parts.batching))
    automatic = parts.estimator.traits.sampling == "auto"
    table = Streamed(problem.source, parts.batching, automatic, parts.estimator.traits.needs_index)
    return problem._replace(table=table)


def _compile_ahead(problem: Problem, params: Params, key: Key, free: bool) -> None:
    """Begin to compile the programs of a set-up of few parameters whose rows are in memory."""
    model, table, sampler = problem.model, problem.table, problem.parts.sampler
    size = _tree.size(params)
    if not isinstance(model, Model) or not isinstance(table, Resident) or size > DENSE_PARAMETERS:
        return
    if model.facts.takes_key or not sampler.is_open:
        return
    with contextlib.suppress(
        Exception
    ):  # what is wrong with the user's functions is said where they are checked
        position = beside(table.data, model.unconstrain(params))
        noise = not sampler.needs.trajectory and not problem.parts.estimator.traits.is_exact
        rows = some_rows(model, table, key)
        compile_ahead(newton.programs(model, table, position, rows) + metric.programs(model, table, position))
        if free:
            compile_ahead(pilot.programs(model, table, position, key, noise))


def prepare_estimator(
    problem: Problem, params: Params, *, num_chains: int, key: Key
) -> tuple[Parts, Prepared]:
    """Check the start and prepare the estimator."""
    model, parts, table = problem.model, problem.parts, problem.table
    num_rows = problem.source.num_rows
    params = arguments.check_params(params)
    model.check_start(params, problem.source, parts.batching.size)
    parts.scheme.check_moves(model, parts.sampler, params, table.row_spec)
    parts.estimator.check_memory(params, num_rows, num_chains)
    renewals = parts.sampler.needs.reference
    if renewals is not None and renewals.every is None:
        latent = model.latent(params, table.row_spec)  # type: ignore[attr-defined]
        sampler = renewals.completed(latent, parts.batching.size, num_rows)
        parts = parts._replace(sampler=sampler, estimator=with_reference(sampler, parts.estimator))
    position = model.place(model.unconstrain(params), table, key)
    position = beside(table.data, position) if isinstance(table, Resident) else position
    with _explained(problem, params):
        prepared = parts.scheme.prepare(model, parts, table, position, key)
    if prepared.estimator is not None:
        batching = prepared.estimator.batching(num_rows)
        parts = parts._replace(estimator=prepared.estimator, batching=batching)
    if parts.sampler.needs.expansion:
        arguments.check_cost_and_prior(model, parts.sampler, prepared.memory.expansion, num_rows)
    return parts, prepared


@contextlib.contextmanager
def _explained(problem: Problem, params: Params) -> Iterator[None]:
    """If the preparation fails at the start, explain why."""
    try:
        yield
    except BadStartError:
        if problem.model.facts.has_density:
            problem.model.explain_bad_start(problem.model.unconstrain(params), problem.table, [])
        raise


def _resolved(
    problem: Problem, parts: Parts, prepared: Prepared, start: Start, key: Key, free: bool
) -> tuple[Parts, Start, dict[str, Any], int | None]:
    """The method with all automatic choices filled in, where it starts, what was found, and its thinning."""
    model, table, position = problem.model, problem.table, prepared.position
    if not model.facts.has_density:
        shapes: Any = count_scales(model, table, position, parts.estimator, key)
        return parts._replace(sampler=parts.sampler.resolve(shapes, position)), start, {}, None
    density = cast(Model, model)
    if is_tuned(parts.sampler):
        tuning, near_mode = tune_prepared([Arena(density, parts, table, start, {})], prepared, key)
        # settings were tried near the mode, and may be unstable on the way to it
        begin = start if prepared.near_mode else near_mode
        return parts._replace(sampler=tuning.sampler), begin, {"tuning": tuning.record()}, None
    if parts.sampler.needs.trajectory:
        return *_first_guess(density, parts, table, start, key), None
    chooses = free and not parts.estimator.traits.is_exact and parts.estimator.traits.keeps_one_sum
    scales = pilot.measure(density, parts, table, prepared, key, thorough=chooses and prepared.near_mode)
    if chooses:
        estimator, scales = defaults.with_best_batch(
            parts.sampler,
            parts.estimator,
            scales,
            table.num_rows,
            position,
            table.batching.epoch > 1,
            not table.streamed,
            model.facts.row_cost(table.row_spec),
        )
        parts = parts._replace(estimator=estimator, batching=estimator.batching(table.num_rows))
        if estimator.traits.is_exact:
            start = start._replace(memory=())
    found: dict[str, Any] = {"largest_curvature": scales.largest_curvature}
    if free and scales.factor is not None:
        found["roundness"] = scores.roundness(density, table, position, scales.factor, key)
        found |= _several_modes(density, table, position, start.position, key)[1]
    setting = parts.sampler.known.foreseen(scales)
    thin = None if setting is None else setting.forgets
    if setting is not None:
        found |= {
            "steps_per_effective_draw": setting.time,
            "variance_from_noise": setting.gain * largest(scales.noise),
        }
    return parts._replace(sampler=parts.sampler.resolve(scales, position)), start, found, thin


def _first_guess(
    model: Model, parts: Parts, table: Table, start: Start, key: Key
) -> tuple[Parts, Start, dict[str, Any]]:
    """Where a sampler with trajectories begins its adaptation, and in which coordinates.

    At the mode in those of the curvature, if there is a mode and the posterior around it resembles a Gaussian; else at
    the given start, in units of the rows' information there.
    """
    sampler: Any = parts.sampler
    dense = _tree.size(start.position) <= DENSE_LIMIT
    found: dict[str, Any] = {}
    factor, position = sampler.known.factor, start.position
    if factor is None:
        mode = _mode_if_any(model, table, position, key)
        if mode is not None:
            kind = "laplace" if dense else "diagonal"
            best, several = _several_modes(model, table, mode.position, position, key)
            shape = metric.shape_at(model, table, best, kind, key)
            found = (
                mode.report | {"roundness": scores.roundness(model, table, best, shape.factor, key)} | several
            )
            if found["roundness"] < scores.ROUND_ENOUGH and not shape.flat:
                factor, position = shape.factor, best
    if factor is None:
        factor = np.minimum(metric.shape_at(model, table, position, "diagonal", key).factor, 1.0)
        factor = np.diag(factor) if dense else factor
    if factor.ndim == 2:  # lower triangular, with the same LLᵀ
        product = np.asarray(factor, np.float64) @ np.asarray(factor, np.float64).T
        factor = np.linalg.cholesky(product).astype(np.float32)
    step = 0.8 / _tree.size(position) ** 0.25 if sampler.step_size is None else sampler.step_size
    sampler = dataclasses.replace(sampler, step_size=step, factor=factor)
    return parts._replace(sampler=sampler), Start(position, start.memory, None), found


def _several_modes(
    model: Model, table: Table, mode: Params, start: Params, key: Key
) -> tuple[Params, dict[str, Any]]:
    """The mode of the most mass, and a description of all if there are several."""
    rows = some_rows(model, table, key)
    found = modes.other_modes(model, table.num_rows, mode, start, rows)
    if len(found) < 2:
        return mode, {}
    return found[0].position, {"modes": modes.describe(model, found)}


def _mode_if_any(model: Model, table: Table, position: Params, key: Key) -> Mode | None:
    if importlib.util.find_spec("optax") is None:
        return None
    try:
        mode = find_mode(model, table, position, key, quiet=True)
    except BadStartError:
        raise
    except InvalidValueError:  # it diverged
        return None
    return mode if mode.report["distance_to_mode_in_sd"] <= FAR else None


def count_scales(
    model: Posterior, table: Table, position: Params, estimator: Estimator, key: Key
) -> Reference:
    """The shapes α + Σz and the variance of an estimate of them, where the chain starts (one pass)."""
    if not estimator.core.traits.is_uniform:
        raise InvalidValueError(
            "the automatic step size is based on the noise of plain batches, which does not apply to "
            f"{type(estimator.core).__name__}: set one, e.g. sc.SCIR(step_size=0.1)."
        )
    total, variance = measure_counts(model, table, position, estimator.batching(table.num_rows), key)
    many = table.num_rows if estimator.passes is None else estimator.passes.rows(table.num_rows)
    batch = estimator.batching(table.num_rows).size
    renewed = None if many == table.num_rows else batch / many * (1 - many / table.num_rows)
    return Reference(model.combine(position, total), variance, renewed)


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
