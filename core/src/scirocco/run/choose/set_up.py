"""The set-up of a run: the mode, the shape of the posterior, the noise, and all automatic choices of the method."""

from __future__ import annotations

import contextlib
import importlib.util
import math
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from scirocco import _checks, _tree
from scirocco._programs import compile_ahead
from scirocco.data import Resident, Streamed, Table
from scirocco.errors import BadStartError, InvalidValueError
from scirocco.estimators import Estimator, Prepared, find_mode, measure_counts, newton
from scirocco.estimators.mode import FoundMode, some_rows
from scirocco.estimators.newton import DENSE_PARAMETERS, FAR, beside
from scirocco.model import Model, Posterior
from scirocco.run import setup
from scirocco.run.choose import limits, methods, metric, modes, pilot, scores
from scirocco.run.choose.measure import dimension_of
from scirocco.run.choose.race import Arena
from scirocco.run.choose.tuning import tune_prepared
from scirocco.run.loop import Parts, Start
from scirocco.run.setup import Problem, Ready, with_reference
from scirocco.samplers import Reference
from scirocco.samplers.base import is_tuned
from scirocco.samplers.scales import largest
from scirocco.types import Key, Params


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
    with setup.order_explained(problem.model, problem.source, params):
        params = setup.check_params(params)
        if not problem.parts.sampler.is_open:
            problem.parts.sampler.check_params(params, num_steps)
        if free or (is_tuned(problem.parts.sampler) and problem.parts.estimator.traits.finds_mode):
            _compile_ahead(problem, params, key, free)
        parts, prepared = prepare_estimator(problem, params, num_chains=num_chains, key=key)
        if prepared.estimator is not None:
            problem = _rebatched(problem, parts)
    report = dict(prepared.report)
    start, thin = Start(prepared.position, prepared.memory, prepared.gradient), None
    if (
        free and dimension_of(params) > limits.LIMITS.trajectory_parameters and not report.get("is_mode", True)
    ):  # no shape to be measured
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
    with contextlib.suppress(Exception):  # what is wrong with the user's functions is said where they are checked
        position = beside(table.data, model.unconstrain(params))
        noise = not sampler.needs.trajectory and not problem.parts.estimator.traits.is_exact
        rows = some_rows(model, table, key)
        compile_ahead(newton.programs(model, table, position, rows) + metric.programs(model, table, position))
        if free:
            compile_ahead(pilot.programs(model, table, position, key, noise))


def prepare_estimator(problem: Problem, params: Params, *, num_chains: int, key: Key) -> tuple[Parts, Prepared]:
    """Check the start and prepare the estimator."""
    model, parts, table = problem.model, problem.parts, problem.table
    num_rows = problem.source.num_rows
    params = setup.check_params(params)
    model.check_start(params, problem.source, parts.batching.size)
    parts.scheme.check_moves(model, parts.sampler, params, table.row_spec)
    parts.estimator.check_memory(params, num_rows, num_chains)
    renewals = parts.sampler.needs.reference
    if renewals is not None and renewals.every is None:
        latent = model.latent(params, table.row_spec)  # type: ignore[attr-defined]
        sampler = renewals.completed(latent, parts.batching.size, num_rows)
        parts = parts._replace(sampler=sampler, estimator=with_reference(sampler, parts.estimator))
    position = started(model, table, params, key)
    with _explained(problem, params):
        prepared = parts.scheme.prepare(model, parts, table, position, key)
    if prepared.estimator is not None:
        batching = prepared.estimator.batching(num_rows)
        parts = parts._replace(estimator=prepared.estimator, batching=batching)
    if parts.sampler.needs.expansion:
        setup.check_cost_and_prior(model, parts.sampler, prepared.memory.expansion, num_rows)
    return parts, prepared


def started(model: Posterior, table: Table, params: Params, key: Key) -> Params:
    """The user's start on the real line, on the device of the rows."""
    position = model.place(model.unconstrain(params), table, key)
    return beside(table.data, position) if isinstance(table, Resident) else position


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
        estimator, scales = methods.with_best_batch(
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
        steepest = scores.stiffness_in_tails(density, table, position, scales.factor, key)
        found["curvature_in_tails"] = steepest
        largest_curvature = max(scales.largest_curvature, min(steepest, limits.LIMITS.steepest) / limits.LIMITS.stable)
        scales = scales._replace(largest_curvature=largest_curvature)
        several = several_modes(density, table, position, start.position, key)
        found |= {"modes": modes.describe(density, several)} if several else {}
    setting = parts.sampler.known.foreseen(scales)
    thin = None if setting is None else setting.forgets
    if setting is not None:
        found |= {"steps_per_effective_draw": setting.time, "variance_from_noise": setting.gain * largest(scales.noise)}
    return parts._replace(sampler=parts.sampler.resolve(scales, position)), start, found, thin


def _first_guess(
    model: Model, parts: Parts, table: Table, start: Start, key: Key
) -> tuple[Parts, Start, dict[str, Any]]:
    """Where a sampler with trajectories begins its adaptation, and in which coordinates.

    At the mode in those of the curvature, if there is a mode; else at the given start. The adaptation compares the two
    if the posterior around the mode does not resemble a Gaussian.
    """
    sampler: Any = parts.sampler
    report: dict[str, Any] = {}
    factor, position, jumps = sampler.known.factor, start.position, sampler.jumps
    if factor is None:
        mode = _mode_if_any(model, table, position, key)
        if mode is not None:
            kind = "laplace" if _tree.size(position) <= limits.LIMITS.dense_parameters else "diagonal"
            several = several_modes(model, table, mode.position, position, key)
            best = several[0].position if several else mode.position
            shape = metric.shape_at(model, table, best, kind, key)
            roundness = scores.roundness(model, table, best, shape.factor, key)
            report = mode.report | {"roundness": roundness}
            if several:
                jumps = modes.jumps_between(several) if jumps is None else jumps
                report |= {"modes": modes.describe(model, several), "jumps": True}
            position, factor = best, shape.factor
            if shape.flat:
                report["roundness"] = max(roundness, limits.LIMITS.no_shape)
                factor = None
    factor = information_factor(model, table, position, key) if factor is None else lower(factor)
    step = first_step(position) if sampler.step_size is None else sampler.step_size
    sampler = sampler.with_settings(step_size=step, factor=factor, jumps=jumps)
    return parts._replace(sampler=sampler), Start(position, start.memory, None), report


def first_step(position: Params) -> float:
    """A step size for so many parameters in round coordinates."""
    return float(0.8 / _tree.size(position) ** 0.25)


def information_factor(model: Model, table: Table, position: Params, key: Key) -> np.ndarray:
    """L in units of the rows' information at a position that is no mode."""
    factor = np.minimum(metric.shape_at(model, table, position, "diagonal", key).factor, 1.0)
    return lower(np.diag(factor)) if _tree.size(position) <= limits.LIMITS.dense_parameters else factor


def lower(factor: np.ndarray) -> np.ndarray:
    """The lower triangular matrix with the same LLᵀ; a diagonal as it is."""
    if factor.ndim == 1:
        return factor
    product = np.asarray(factor, np.float64) @ np.asarray(factor, np.float64).T
    return np.linalg.cholesky(product).astype(np.float32)


def several_modes(model: Model, table: Table, mode: Params, start: Params, key: Key) -> list[modes.WeighedMode]:
    """All modes that were found, that of the most mass first; none if there is one."""
    found = modes.other_modes(model, table.num_rows, mode, start, some_rows(model, table, key))
    return found if len(found) > 1 else []


def _mode_if_any(model: Model, table: Table, position: Params, key: Key) -> FoundMode | None:
    if importlib.util.find_spec("optax") is None:
        return None
    try:
        mode = find_mode(model, table, position, key, quiet=True)
    except BadStartError:
        raise
    except InvalidValueError:  # it diverged
        return None
    return mode if mode.report["distance_to_mode_in_sd"] <= FAR else None


def count_scales(model: Posterior, table: Table, position: Params, estimator: Estimator, key: Key) -> Reference:
    """The shapes α + Σz and the variance of an estimate of them, where the chain starts (one pass)."""
    if not estimator.core.traits.is_uniform:
        raise InvalidValueError(
            "the automatic step size is based on the noise of plain batches, which does not apply to "
            f"{type(estimator.core).__name__}: set one, e.g. sc.SCIR(step_size=0.1)."
        )
    total, variance, *_ = measure_counts(model, table, position, estimator.batching(table.num_rows), key)
    many = table.num_rows if estimator.passes is None else estimator.passes.rows(table.num_rows)
    batch = estimator.batching(table.num_rows).size
    renewed = None if many == table.num_rows else batch / many * (1 - many / table.num_rows)
    return Reference(model.combine(position, total), variance, renewed)
