"""From what the user typed to what the loop runs: composition, checks, preparation."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from scirocco.data import ArraySource, Resident, Streamed, Table, as_source, to_device
from scirocco.errors import BadStartError, InvalidTypeError
from scirocco.estimators import Estimator
from scirocco.model import Model
from scirocco.run import pilot, probe
from scirocco.run.loop import Parts, Start
from scirocco.samplers import Sampler
from scirocco.types import Data, Key, Params


class Problem(NamedTuple):
    """Model, data and method, composed and arranged, before any parameter is known."""

    model: Model
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


def compose(model: Model, data: Data, sampler: Sampler, estimator: Estimator, seed: int) -> Problem:
    """Check that the parts fit together, and put the data in order on the device."""
    _check_kind(model, Model, "model", "sc.Model(log_likelihood, log_prior)")
    _check_kind(sampler, Sampler, "sampler", "sc.SGLD(step_size=1e-5)")
    _check_kind(estimator, Estimator, "estimator", "sc.Minibatch(batch_size=500)")
    source = as_source(data)
    batching = estimator.batching(source.num_rows)
    if isinstance(source, ArraySource):
        arranged = jax.tree.map(to_device, batching.arrange(source.arrays, seed))
        parts = Parts(sampler, estimator, batching, arranged)
        return Problem(model, source, parts, Resident(arranged, batching))
    automatic = getattr(estimator, "sampling", "auto") == "auto"
    table = Streamed(source, batching, automatic, estimator.needs_index)
    return Problem(model, source, Parts(sampler, estimator, table.batching, None), table)


def _check_kind(value: Any, kind: type, name: str, example: str) -> None:
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
    model, parts, table = problem.model, problem.parts, problem.table
    num_rows = problem.source.num_rows
    params = probe.check_params(params)
    model.check_domain(params)
    probe.check_shapes(model, params, problem.source, parts.batching)
    parts.estimator.check_memory(params, num_rows, num_chains)
    if not parts.sampler.needs_scales:
        parts.sampler.check_params(params, num_steps)
    position = model.unconstrain(params)
    try:
        prepared = parts.estimator.prepare(model, table, position, key)
        report = dict(prepared.report)
        if isinstance(table, Streamed):
            report["batches"] = table.reason
        if parts.sampler.needs_scales:
            scales = pilot.measure(model, parts, table, prepared, key)
            parts = parts._replace(sampler=parts.sampler.resolve(scales, prepared.position))
            parts.sampler.check_params(params, num_steps)
            report["largest_curvature"] = scales.largest_curvature
    except BadStartError:
        probe.explain_bad_start(model, position, table)
        raise
    return Ready(parts, table, Start(prepared.position, prepared.memory, prepared.gradient), report)
