"""From what the user typed to what the loop runs: composition, checks, preparation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax

from scirocco import _tree
from scirocco._random import Purpose, key_for
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
from scirocco.errors import BadStartError, InvalidTypeError, InvalidValueError
from scirocco.estimators import (
    SVRG,
    Batching,
    ControlVariates,
    Estimator,
    Full,
    Minibatch,
    Prepared,
    Referenced,
    Stratified,
    Weighted,
    measure_counts,
)
from scirocco.model import BlockModel, Model, Posterior
from scirocco.run import pilot, probe, sweeps
from scirocco.run.loop import Parts, Start
from scirocco.run.tuning import Arena, tune_prepared
from scirocco.samplers import Blocks, Reference, Sampler
from scirocco.types import Data, Key, Params, PyTree

T = TypeVar("T")
_ROWS = 256


class Problem(NamedTuple):
    """Model, data and method, composed and arranged, before any parameter is known."""

    model: Posterior
    source: Any
    parts: Parts
    """For streamed data without rows: each segment brings its own."""
    table: Table


class Ready(NamedTuple):
    """Everything a chain starts from."""

    parts: Parts
    table: Table
    start: Start
    report: dict[str, Any]
    resumed: bool = False
    """Whether `start` only has the right shapes: the chains' states come from a store."""


def compose(
    model: Posterior,
    data: Data,
    sampler: Sampler,
    estimator: Estimator,
    seed: int,
    devices: Devices | None = None,
) -> Problem:
    """Check that the parts fit together, and put the data in order on the device, or on those that share them."""
    check_kind(model, Posterior, "model", "sc.Model(log_likelihood, log_prior)")
    check_kind(sampler, Sampler, "sampler", "sc.SGLD(step_size=1e-5)")
    check_kind(estimator, Estimator, "estimator", "sc.Minibatch(batch_size=500)")
    if isinstance(sampler, Blocks):
        model = sweeps.as_block_model(model, sampler)
    _check_pair(model, sampler)
    if model.takes_key and isinstance(estimator, ControlVariates) and not isinstance(model, BlockModel):
        raise InvalidValueError(
            "ControlVariates keeps one sum over all rows for the whole run; for counts that are drawn it would be one "
            "random draw, and the chain would settle around it. Use sc.Minibatch, sc.SVRG or sc.SCIRCV."
        )
    source = as_source(data)
    automatic = getattr(estimator, "sampling", "auto") == "auto"
    estimator = with_reference(sampler, estimator)
    if devices is not None and devices.row_axes:
        return _spread(model, source, sampler, estimator, seed, devices)
    if devices is not None and not isinstance(source, ArraySource):
        raise InvalidValueError(
            "chains on devices of their own need the data in memory: read them first, or use a mesh with an axis for "
            "rows, whose devices read the folder between them."
        )
    batching = batching_of(model, sampler, estimator, source.num_rows)
    if isinstance(source, ArraySource):
        arranged = jax.tree.map(to_device, batching.arrange(source.arrays, seed))
        parts = Parts(sampler, estimator, batching, arranged)
        return Problem(model, source, parts, Resident(arranged, batching))
    if isinstance(model, BlockModel) and estimator.next_pass(0, source.num_rows) is not None:
        raise InvalidValueError(
            "sc.Blocks on streamed data needs an estimator of batches: sc.Minibatch, not sc.Full."
        )
    table = Streamed(source, batching, automatic, estimator.needs_index)
    return Problem(model, source, Parts(sampler, estimator, table.batching, None), table)


def _spread(
    model: Posterior, source: Any, sampler: Sampler, estimator: Estimator, seed: int, devices: Devices
) -> Problem:
    """Rows shared by several devices."""
    if isinstance(model, BlockModel):
        raise InvalidValueError(
            "sc.Blocks needs all rows on one device: use a mesh with an axis `chains` only."
        )
    if not isinstance(estimator, (Full, Minibatch, ControlVariates, SVRG)):
        name = type(getattr(estimator, "inner", estimator)).__name__
        raise InvalidValueError(
            f"{type(sampler).__name__ if sampler.needs_reference else name} needs all rows on one device. Rows spread "
            "over a mesh serve sc.Full, sc.Minibatch, sc.ControlVariates and sc.SVRG; a mesh with an axis `chains` "
            "only serves all."
        )
    if isinstance(estimator, SVRG):  # its default follows from the number of all rows, not of a device's
        estimator = estimator.resolved(source.num_rows)
    table = spread_over(source, batching_of(model, sampler, estimator, source.num_rows), devices, seed)
    return Problem(model, source, Parts(sampler, estimator, table.own, table.data), table)


def batching_of(model: Posterior, sampler: Sampler, estimator: Estimator, num_rows: int) -> Batching:
    """How the rows of a step are drawn."""
    if isinstance(model, BlockModel) and isinstance(sampler, Blocks):
        return sweeps.batching(estimator, num_rows, len(sweeps.reading(sampler)))
    return estimator.batching(num_rows)


def blank_memory(model: Posterior, parts: Parts, table: Table, position: Params, num_rows: int) -> PyTree:
    """Something with the structure and shapes of the estimator's memory."""
    if isinstance(model, BlockModel):
        return sweeps.blank_memory(model, parts, position, num_rows, table.row_spec)
    return parts.estimator.blank_memory(position, num_rows)


def _check_pair(model: Posterior, sampler: Sampler) -> None:
    if model.drive == sampler.driven_by:
        return
    name = type(sampler).__name__
    if model.drive == "blocks":
        raise InvalidTypeError(
            f"a BlockModel is moved block by block: sampler=sc.Blocks({{...}}) with a sampler for each, not {name}."
        )
    if sampler.driven_by == "counts":
        raise InvalidTypeError(
            f"{name} moves on the simplex and is driven by counts: it needs a sc.CountModel(concentration, counts), "
            "not a log likelihood. One that takes proportions can make them with jax.nn.softmax: then use e.g. sc.SGLD."
        )
    raise InvalidTypeError(
        f"{name} follows the gradient of a log density, which a CountModel has not: use sc.SCIR, sc.SCIRCV or "
        "sc.SimplexSGRLD."
    )


def with_reference(sampler: Sampler, estimator: Estimator) -> Estimator:
    """The estimator, with a reference where the sampler compares its estimates with one."""
    if not sampler.needs_reference:
        return estimator
    inner = estimator.inner if isinstance(estimator, Referenced) else estimator
    return Referenced(inner, sampler.refresh_every or None, sampler.refresh_size)  # type: ignore[attr-defined]


def check_kind(value: Any, kind: type, name: str, example: str) -> None:
    """Refuse what is not of this kind; say so when a class stands where an instance should."""
    if isinstance(value, kind):
        return
    called = (
        " (an instance is needed: add parentheses)"
        if isinstance(value, type) and issubclass(value, kind)
        else ""
    )
    raise InvalidTypeError(f"`{name}` must be a scirocco {name} such as {example}; got {value!r}{called}.")


def prepare(problem: Problem, params: Params, *, num_steps: int, num_chains: int, key: Key) -> Ready:
    """Check the start, let the estimator do its one-off work, let the sampler fill in what was left open."""
    params = probe.check_params(params)
    if not problem.parts.sampler.needs_scales:
        problem.parts.sampler.check_params(params, num_steps)
    parts, prepared = prepare_estimator(problem, params, num_chains=num_chains, key=key)
    report = dict(prepared.report)
    if isinstance(problem.table, Streamed):
        report["batches"] = problem.table.reason
    start = Start(prepared.position, prepared.memory, prepared.gradient)
    if parts.sampler.needs_scales:
        begin = start
        sampler, start, found = _explained(
            problem, params, lambda: _resolved(problem, parts, prepared, begin, key)
        )
        sampler.check_params(prepared.position, num_steps)
        parts, report = parts._replace(sampler=sampler), report | found
    return Ready(parts, problem.table, start, report)


def prepare_estimator(
    problem: Problem, params: Params, *, num_chains: int, key: Key
) -> tuple[Parts, Prepared]:
    """Check the start and let the estimator do its one-off work."""
    model, parts, table = problem.model, problem.parts, problem.table
    num_rows = problem.source.num_rows
    params = probe.check_params(params)
    model.check_domain(params)
    probe.check_shapes(model, params, problem.source, parts.batching)
    if isinstance(model, BlockModel) and isinstance(parts.sampler, Blocks):
        sweeps.try_updates(model, parts.sampler, params, problem.table.row_spec)
    parts.estimator.check_memory(params, num_rows, num_chains)
    if parts.sampler.needs_reference and parts.sampler.refresh_every is None:  # type: ignore[attr-defined]
        latent = model.latent(params, table.row_spec)  # type: ignore[attr-defined]
        sampler = parts.sampler.with_refresh(latent, parts.batching.size, num_rows)  # type: ignore[attr-defined]
        parts = parts._replace(sampler=sampler, estimator=with_reference(sampler, parts.estimator))
    position = place(model, table, params, key)
    estimator = parts.estimator
    if isinstance(model, BlockModel):
        return parts, sweeps.prepare(model, parts, table, position, key)
    prepared = _explained(problem, params, lambda: estimator.prepare(model, table, position, key))
    return parts, prepared


def _explained(problem: Problem, params: Params, work: Callable[[], T]) -> T:
    """Do the work; when it fails at the start, say why."""
    try:
        return work()
    except BadStartError:
        if isinstance(problem.model, Model):
            position = problem.model.unconstrain(params)
            probe.explain_bad_start(problem.model, position, problem.table)
        raise


def _resolved(
    problem: Problem, parts: Parts, prepared: Prepared, start: Start, key: Key
) -> tuple[Sampler, Start, dict[str, Any]]:
    """The sampler with every open number filled in, where it starts, and what was found on the way."""
    model, table = problem.model, problem.table
    if not isinstance(model, Model):
        scales: Any = count_scales(model, table, prepared.position, parts.estimator, key)
        return parts.sampler.resolve(scales, prepared.position), start, {}
    if parts.sampler.needs_tuning:
        tuning, near_mode = tune_prepared([Arena(model, parts, table, start, {})], prepared, key)
        # settings were tried near the mode, and need not be stable on a long way to it
        begin = start if prepared.near_mode else near_mode
        return tuning.sampler, begin, {"tuning": tuning.record()}
    scales = pilot.measure(model, parts, table, prepared, key)
    found = {"largest_curvature": scales.largest_curvature}
    return parts.sampler.resolve(scales, prepared.position), start, found


def count_scales(
    model: Posterior, table: Table, position: Params, estimator: Estimator, key: Key
) -> Reference:
    """The shapes α + Σz and the variance of an estimate of them, where the chain starts (one pass)."""
    if isinstance(inner := getattr(estimator, "inner", estimator), (Weighted, Stratified)):
        raise InvalidValueError(
            f"a step size is chosen from the noise of plain batches, which says nothing about {type(inner).__name__}: "
            "give one, e.g. sc.SCIR(step_size=0.1)."
        )
    total, variance = measure_counts(model, table, position, estimator.batching(table.num_rows), key)
    many = estimator.rows_in_pass(table.num_rows)
    batch = estimator.batching(table.num_rows).size
    renewed = None if many == table.num_rows else batch / many * (1 - many / table.num_rows)
    return Reference(model.combine(position, total), variance, renewed)


def place(model: Posterior, table: Table, params: Params, key: Key) -> Params:
    """Where the sampler starts; count models need to know about how large the counts are."""
    position = model.unconstrain(params)
    if isinstance(model, BlockModel):
        return sweeps.place(model, table, position, key, _ROWS)
    if model.drive != "counts":
        return position
    count = min(table.num_rows, _ROWS)
    return _about_as_large(model, table.num_rows / count, position, table.spread_rows(count), key)


@partial(jax.jit, static_argnums=0)
def _about_as_large(model: Posterior, factor: float, position: Params, rows: PyTree, key: Key) -> Params:
    own = key_for(key, Purpose.START) if model.takes_key else None
    return model.spread(position, _tree.scale(factor, model.summand.total(position, rows, None, own)))
