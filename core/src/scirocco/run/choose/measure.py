"""What is measured of a problem before its method is decided: plain numbers."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.data import ArraySource, Devices, Resident
from scirocco.data.arrays import RowSource
from scirocco.estimators.mode import some_rows
from scirocco.estimators.newton import OnRows, ValueAndGradient
from scirocco.model import Posterior
from scirocco.run import setup
from scirocco.run.choose import limits
from scirocco.run.setup import Problem, Ready
from scirocco.types import Key, Params, Rows

_REPEATS, _LONG = 3, 0.3
"""Calls of which the fastest counts, and the seconds from which one is enough."""


@dataclass(frozen=True)
class Measured:
    """Numbers by which `decide` chooses. The first are known from the data, the others after a set-up."""

    drive: str
    """What drives a sampler of this model: "gradient", "counts", or "" for what is no model."""
    is_random: bool
    """Whether the log likelihood takes a key: no two sums are the same."""
    in_memory: bool
    """Whether all rows are arrays in memory."""
    on_mesh: bool
    num_rows: int
    numbers: float
    """Numbers in the data, or as many as cost the same; infinity for rows that are not in memory."""
    dimension: int
    can_travel: bool = True
    """Whether the package that makes trajectories is installed."""
    methods: tuple[str, ...] = ()
    """Those for which the set-up was made, the last one last."""
    roundness: float | None = None
    """See `scores.roundness`."""
    rounding: float = 0.0
    """Rounding error of the log density at the mode."""
    rounding_by_row: float | None = None
    """The same where differences to the mode are summed row by row; measured where `rounding` is too large."""
    pass_seconds: float | None = None
    """Seconds of a gradient of all rows: of one core if a CPU computes it, else of the device."""
    some_seconds: float | None = None
    """The same of `some_rows` rows."""
    some_rows: int = 0
    at_once: float = 1.0
    """Such passes that run at the same time: cores, or 1 on other devices."""

    @property
    def least_rounding(self) -> float:
        """The rounding error of trajectories."""
        return self.rounding if self.rounding_by_row is None else self.rounding_by_row

    @property
    def method(self) -> str:
        """The method of the last set-up; "" before the first."""
        return self.methods[-1] if self.methods else ""

    def report(self) -> dict[str, Any]:
        """What a reader of `run.preparation` wants to see: the numbers that are known."""
        values = {
            "num_rows": self.num_rows,
            "numbers": self.numbers if math.isfinite(self.numbers) else None,
            "dimension": self.dimension,
            "roundness": self.roundness,
            "rounding": self.rounding or None,
            "rounding_by_row": self.rounding_by_row,
            "pass_seconds": self.pass_seconds,
            "some_seconds": self.some_seconds,
        }
        return {name: value for name, value in values.items() if value is not None}


def drive_of(model: Any) -> str:
    """What drives a sampler of this model; "" for what is no model."""
    return model.facts.drive if isinstance(model, Posterior) else ""


def dimension_of(params: Params) -> int:
    """Numbers in the parameters of a user, which may be plain numbers."""
    return sum(int(np.size(leaf)) for leaf in setup.flattened(params)[0])


def measure(model: Any, source: RowSource, params: Params, devices: Devices | None) -> Measured:
    """What is known before anything is computed."""
    drive, in_memory = drive_of(model), isinstance(source, ArraySource)
    return Measured(
        drive=drive,
        is_random=drive == "gradient" and model.facts.takes_key,
        in_memory=in_memory,
        on_mesh=devices is not None,
        num_rows=source.num_rows,
        numbers=_numbers(model, source) if drive and isinstance(source, ArraySource) else math.inf,
        dimension=dimension_of(params),
        can_travel=importlib.util.find_spec("blackjax") is not None,
    )


def _numbers(model: Any, source: ArraySource) -> float:
    """Numbers in the data, or as many as cost the same."""
    cost, numbers = (model.facts.row_cost(source.row_spec), sum(leaf.size for leaf in jax.tree.leaves(source.arrays)))
    return float(numbers if cost == 1 else max(numbers, limits.LIMITS.plain_row * source.num_rows * cost))


def after(measured: Measured, method: str, problem: Problem, ready: Ready, key: Key) -> Measured:
    """What is known after a set-up for this method."""
    report, position = ready.report, ready.start.position
    eps = max(float(jnp.finfo(leaf.dtype).eps) for leaf in jax.tree.leaves(position))
    measured = dataclasses.replace(
        measured,
        methods=(*measured.methods, method),
        roundness=report.get("roundness"),
        rounding=abs(report.get("log_density", 0.0)) * eps,
    )
    if problem.parts.sampler.needs.trajectory and measured.rounding > limits.LIMITS.coarse:
        squares = problem.table.sum(_Squares(problem.model), position)
        measured = dataclasses.replace(measured, rounding_by_row=eps * math.sqrt(float(squares)))
    timed = measured.roundness is not None and measured.in_memory and not measured.on_mesh
    timed = timed and not measured.is_random and measured.dimension <= limits.LIMITS.trajectory_parameters
    return _timed(measured, problem, position, key) if timed else measured


@dataclass(frozen=True)
class _Squares:
    """(log p(x_i | θ))²: of rounding errors in proportion to the values of rows, and independent."""

    model: Any

    def total(self, position: Params, rows: Rows, weights: Any = None, key: Key | None = None) -> Any:
        """The sum over the rows."""
        squares = self.model.log_likelihoods(position, rows, key) ** 2
        return jnp.sum(squares if weights is None else weights * squares)


def _timed(measured: Measured, problem: Problem, position: Params, key: Key) -> Measured:
    """With the seconds of a pass and of a batch: the search for the mode has compiled both."""
    model, table = problem.model, problem.table
    assert isinstance(table, Resident)  # others are not timed
    whole, (summand, num_rows, *inputs) = table.program(ValueAndGradient(model), position)
    one_pass = whole.of(summand, num_rows)
    given = OnRows(model, table.num_rows, position, some_rows(model, table, key))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return dataclasses.replace(
        measured,
        pass_seconds=_seconds(lambda: jax.block_until_ready(one_pass(*inputs))),
        some_seconds=_seconds(lambda: given.log_density(position)),
        some_rows=int(jax.tree.leaves(given.rows)[0].shape[0]),
        at_once=float(cores) if jax.default_backend() == "cpu" else 1.0,
    )


def _seconds(call: Callable[[], object]) -> float:
    """Seconds of the fastest of some calls: of a processor where that computes, so that other work does not count."""
    clock = time.process_time if jax.default_backend() == "cpu" else time.perf_counter
    call()
    best = math.inf
    for _ in range(_REPEATS):
        began = clock()
        call()
        best = min(best, clock() - began)
        if best > _LONG:
            break
    return best
