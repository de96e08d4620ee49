"""From what the user typed to what the loop runs: composition, checks, preparation."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.data import ArraySource, as_source
from scirocco.errors import BadStartError, InvalidTypeError
from scirocco.estimators import Estimator
from scirocco.model import Model
from scirocco.run import pilot, probe
from scirocco.run.loop import Parts, Start
from scirocco.samplers import Sampler
from scirocco.types import Data, Key, Params

_WORTH_SHARING = 1 << 20


class Problem(NamedTuple):
    """Model, data and method, composed and arranged, before any parameter is known."""

    model: Model
    source: ArraySource
    parts: Parts


class Ready(NamedTuple):
    """Everything a chain starts from."""

    parts: Parts
    start: Start
    report: dict[str, Any]


def compose(model: Model, data: Data, sampler: Sampler, estimator: Estimator, seed: int) -> Problem:
    """Check that the parts fit together, and put the data in order on the device."""
    _check_kind(model, Model, "model", "sc.Model(log_likelihood, log_prior)")
    _check_kind(sampler, Sampler, "sampler", "sc.SGLD(step_size=1e-5)")
    _check_kind(estimator, Estimator, "estimator", "sc.Minibatch(batch_size=500)")
    source = as_source(data)
    batching = estimator.batching(source.num_rows)
    arranged = jax.tree.map(_to_device, batching.arrange(source.arrays, seed))
    return Problem(model, source, Parts(sampler, estimator, batching, arranged))


def _to_device(array: np.ndarray) -> jax.Array:
    """The array as JAX's, without a copy where memory is shared and its start is aligned.

    Large data are then used where they lie; the caller's own arrays must not change during the run.
    """
    shared = jax.default_backend() == "cpu" and array.nbytes >= _WORTH_SHARING
    if shared and array.ctypes.data % 64 == 0 and array.flags.c_contiguous and array.dtype.kind in "fiu":
        return jnp.from_dlpack(array)
    return jnp.asarray(array)


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
    model, parts = problem.model, problem.parts
    num_rows = problem.source.num_rows
    params = probe.check_params(params)
    model.check_domain(params)
    probe.check_shapes(model, params, problem.source, parts.batching)
    parts.estimator.check_memory(params, num_rows, num_chains)
    if not parts.sampler.needs_scales:
        parts.sampler.check_params(params, num_steps)
    position = model.unconstrain(params)
    try:
        prepared = parts.estimator.prepare(model, parts.data, position, num_rows, key)
        report = dict(prepared.report)
        if parts.sampler.needs_scales:
            scales = pilot.measure(model, parts, prepared, key)
            parts = parts._replace(sampler=parts.sampler.resolve(scales, prepared.position))
            parts.sampler.check_params(params, num_steps)
            report["largest_curvature"] = scales.largest_curvature
    except BadStartError:
        probe.explain_bad_start(model, position, parts.data, num_rows)
        raise
    return Ready(parts, Start(prepared.position, prepared.memory, prepared.gradient), report)
