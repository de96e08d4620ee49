"""`scirocco bench`: the steps per second of this machine, and what limits them."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np

from scirocco.cli._common import JSON, print_json, print_wrapped, typer
from scirocco.cli._exit import ending_at_once

if TYPE_CHECKING:
    from scirocco.estimators import Estimator
    from scirocco.types import Array

_COLUMNS = 50
_ROWS, _QUICK_ROWS = 200_000, 20_000
_BATCHES = (50, 500, 5_000)
_REPEATS = 3


class Line(NamedTuple):
    """One method: its speed, and the shares of a step that the machine's measured speeds explain."""

    method: str
    batch_size: int
    steps_per_second: float
    rows_per_second: float
    overhead: float
    """Share of a step that a step on one row also takes: random numbers, bookkeeping of the loop."""
    memory: float
    """Share that reading the batch takes at the speed of a long sum."""
    arithmetic: float
    """Share that its multiplications take at the speed of a large matrix product."""

    @property
    def limit(self) -> str:
        """The largest share; the rest are exp and log of each row, and moving rows."""
        shares = {
            "overhead": self.overhead,
            "memory": self.memory,
            "arithmetic": self.arithmetic,
        }
        worst = max(shares, key=lambda name: shares[name])
        return worst if shares[worst] >= 0.3 else "the rest"


class Machine(NamedTuple):
    """Speeds of this machine, measured by JAX on the default device."""

    backend: str
    cores: int
    bytes_per_second: float
    flops_per_second: float


def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rows and steps, in a few seconds.")] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Measure SGLD's steps per second by batch size, with and without control variates, and what limits them.

    Logistic regression on simulated rows with 50 columns, one chain, float32; wall time, best of three. Comparisons
    with other libraries are in the folder `benchmarks` of the source code.

    Example: scirocco bench --quick
    """
    with ending_at_once("interrupted; nothing was measured."):
        if sys.stderr.isatty():
            print("measuring ...", file=sys.stderr)
        machine = measure_machine()
        lines = measure(_QUICK_ROWS if quick else _ROWS, 2_000 if quick else 10_000, machine)
    if as_json:
        print_json({"machine": machine._asdict(), "lines": [x._asdict() | {"limit": x.limit} for x in lines]})
        return
    _show(machine, lines)


def measure_machine() -> Machine:
    """Measure the speed of long sums and of large matrix products."""
    import jax
    import jax.numpy as jnp

    numbers = jnp.ones(1 << 24, jnp.float32)
    matrix = jnp.ones((1024, 1024), jnp.float32)
    add, multiply = jax.jit(jnp.sum), jax.jit(lambda m: m @ m)
    seconds = [_best(lambda: add(numbers)), _best(lambda: multiply(matrix))]
    return Machine(
        jax.default_backend(), os.cpu_count() or 1, numbers.nbytes / seconds[0], 2 * 1024**3 / seconds[1]
    )


def _best(function: Callable[[], Array]) -> float:
    from scirocco.run.progress import Clock

    function().block_until_ready()
    walls = []
    for _ in range(2 * _REPEATS):
        clock = Clock()
        function().block_until_ready()
        walls.append(clock.read()["wall"])
    return min(walls)


def measure(num_rows: int, num_steps: int, machine: Machine) -> list[Line]:
    """SGLD with each batch size, then with control variates."""
    from scirocco.estimators import ControlVariates, Minibatch

    rng = np.random.default_rng(0)
    x = rng.standard_normal((num_rows, _COLUMNS)).astype(np.float32)
    y = (rng.random(num_rows) < 1 / (1 + np.exp(-x[:, 0]))).astype(np.float32)
    data = {"x": x, "y": y}
    floor = 1.0 / _speed(data, Minibatch(1), num_steps)
    lines = []
    for name, kind, passes in (("SGLD", Minibatch, 1), ("SGLD-CV", ControlVariates, 2)):
        for size in _BATCHES:
            # about the same number of rows for every size
            steps = max(num_steps // 20, min(num_steps, num_steps * 500 // size))
            second = 1.0 / _speed(data, kind(batch_size=size), steps)
            read, count = 4.0 * size * (_COLUMNS + 1), 4.0 * size * _COLUMNS * passes  # forward and backward
            lines.append(
                Line(
                    name,
                    size,
                    1.0 / second,
                    size / second,
                    min(1.0, floor / second),
                    read / machine.bytes_per_second / second,
                    count / machine.flops_per_second / second,
                )
            )
    return lines


def _speed(data: dict[str, np.ndarray], estimator: Estimator, num_steps: int) -> float:
    """Steps per second, excluding the set-up and the first chunk, which compiles."""
    import jax.numpy as jnp

    from scirocco.model import Model
    from scirocco.run import sample
    from scirocco.samplers import SGLD

    def log_likelihood(beta: Array, row: dict[str, Array]) -> Array:
        logit = row["x"] @ beta
        return row["y"] * logit - jnp.logaddexp(0.0, logit)

    model = Model(log_likelihood, lambda beta: -0.05 * beta @ beta)
    speeds = []
    for seed in range(_REPEATS):
        run = sample(
            model,
            data,
            np.zeros(_COLUMNS, np.float32),
            sampler=SGLD(1e-7),
            estimator=estimator,
            num_samples=num_steps // 10,
            thin=10,
            seed=seed,
            progress=False,
        )
        part = run.timing["sampling"]
        speeds.append(part["steps"] / part["wall"])
    return max(speeds)


def _show(machine: Machine, lines: list[Line]) -> None:
    from scirocco._console import print_table

    print(
        f"{platform.machine()}, {machine.cores} cores, JAX on {machine.backend}: long sums "
        f"{machine.bytes_per_second / 1e9:,.1f} GB/s, matrix products {machine.flops_per_second / 1e9:,.0f} GFlop/s"
    )
    rows = [
        [
            f"{line.method}  ",
            f"{line.batch_size:,}",
            f"  {line.steps_per_second:,.0f}",
            f"  {line.rows_per_second / 1e6:,.1f}",
            f"  {100 * line.overhead:.0f}",
            f"  {100 * line.memory:.0f}",
            f"  {100 * line.arithmetic:.0f}",
            f"  {line.limit}",
        ]
        for line in lines
    ]
    shares = [f"  {name}\n  %" for name in ("overhead", "memory", "arithmetic")]
    columns = ["method", "batch", "  steps/s", "  million\n  rows/s", *shares, "  limited by"]
    print_table("One chain, 50 columns", columns, rows, right=range(1, 7))
    print_wrapped(
        "Shares of a step that a step on one row (overhead), reading the batch and its products would each take on "
        "their own; the rest are exp and log of each row, and moving rows. CV: control variates."
    )
