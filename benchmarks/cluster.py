"""Subposteriors on Dask workers of this machine: what a second worker brings, and what a task costs.

    python benchmarks/cluster.py                      # about four minutes on two cores
    python benchmarks/cluster.py --workers 1 2 4      # other numbers of workers
    python benchmarks/cluster.py --seconds 10         # shorter tasks (default: 30 s each on one core)
    python benchmarks/cluster.py --quick              # does it run? (the numbers mean nothing)

throughput  Four shards of a logistic regression (N = 100,000, D = 50, control variates with batches of 500, float32),
            one chain each, drawn with `sc.combine.subposteriors`: steps of all shards a second of the clock, from the
            call to the last draw, compiling and writing included, the start of the cluster not. Beside it, steps a
            second of the workers' processor time: what the clock would say if nobody else used the cores, and what a
            second worker takes from the first (caches, memory) even then. Bar: 1.6 times the throughput with 2 workers.
task        Seconds for a task that does nothing, and what a shard's run takes beside its steps: reading the rows,
            finding the mode, compiling (first task of a worker; the next ones find it compiled), the store.

Runs are interleaved, and the best of each counts. The exit status is 0 whatever the numbers are.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import scirocco as sc
from scirocco import cluster
from scirocco.diffusions.host._threads import available_cores

NUM_SHARDS, NUM_ROWS, DIMENSION, BATCH = 4, 100_000, 50, 500
BAR = 1.6


class Measured(NamedTuple):
    """One call of `subposteriors`."""

    wall: float
    steps: int
    steps_per_second: float
    """Of the clock, all shards."""
    steps_per_cpu: float
    """Of a worker's processor time, mean over the shards."""
    besides: float
    """Seconds of a task that are not steps, mean over the shards."""


def log_likelihood(beta: Any, row: Any) -> Any:
    logit = row["x"] @ beta
    return row["y"] * logit - jnp.logaddexp(0.0, logit)


def log_prior(beta: Any) -> Any:
    return -0.5 * jnp.sum(beta**2)


def make_data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(NUM_ROWS, DIMENSION)).astype(np.float32)
    beta = rng.normal(size=DIMENSION) / np.sqrt(DIMENSION)
    y = rng.random(NUM_ROWS) < 1 / (1 + np.exp(-x @ beta))
    return {"x": x, "y": y.astype(np.float32)}


def draw(data: Any, num_samples: int, client: Any, store: str | None) -> Any:
    return sc.combine.subposteriors(
        sc.Model(log_likelihood, log_prior),
        data,
        NUM_SHARDS,
        jnp.zeros(DIMENSION),
        sampler=sc.SGLD(1e-5),
        estimator=sc.ControlVariates(BATCH),
        num_samples=max(1, num_samples // 100),
        thin=100,  # the benchmark is of the samplers, not of the disk
        store=store,
        client=client,
        progress=False,
    )


def measure(data: Any, num_samples: int, client: Any, num_workers: int) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        parts = draw(data, num_samples, client, os.path.join(folder, "store"))
        wall = time.perf_counter() - begin
        timings = [run.timing for run in parts.runs]
    steps = sum(t["sampling"]["steps"] + t["first_chunk"]["steps"] for t in timings)
    per_cpu = statistics.mean(t["sampling"]["steps"] / t["sampling"]["cpu"] for t in timings)
    busy = wall * min(num_workers, NUM_SHARDS)
    besides = (busy - sum(t["sampling"]["wall"] for t in timings)) / NUM_SHARDS
    return Measured(wall, steps, steps / wall, per_cpu, besides)


def nothing(job: int, tell: Any) -> int:
    return job


def cost_of_a_task(client: Any, count: int = 200) -> float:
    cluster.run_tasks(nothing, range(2), client=client)
    begin = time.perf_counter()
    cluster.run_tasks(nothing, range(count), client=client)
    return (time.perf_counter() - begin) / count


def num_samples_for(data: Any, seconds: float) -> int:
    """Steps that one shard makes in so many seconds on one core."""
    part = {name: array[: NUM_ROWS // NUM_SHARDS] for name, array in data.items()}
    run = sc.sample(
        sc.Model(log_likelihood, log_prior),
        part,
        jnp.zeros(DIMENSION),
        sampler=sc.SGLD(1e-5),
        estimator=sc.ControlVariates(BATCH),
        num_samples=600,
        thin=100,
        progress=False,
    )
    sampling = run.timing["sampling"]
    return max(200, int(seconds * sampling["steps"] / sampling["cpu"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    data = make_data()
    num_samples = num_samples_for(data, 1.0 if options.quick else options.seconds)
    print(f"{available_cores()} cores, {NUM_SHARDS} shards of {num_samples:,} steps", flush=True)
    found: dict[int, list[Measured]] = {count: [] for count in options.workers}
    for _ in range(options.repeats):
        for count in options.workers:
            with cluster.local(count) as client:
                overhead = cost_of_a_task(client)
                found[count].append(measured := measure(data, num_samples, client, count))
            print(
                f"{count} workers: {measured.wall:6.1f} s, {measured.steps_per_second:9,.0f} steps/s, "
                f"{measured.steps_per_cpu:9,.0f} steps a second of processor time; a task that does nothing "
                f"{1e3 * overhead:.1f} ms; a shard's task beside its steps {measured.besides:.1f} s",
                flush=True,
            )
    best = {count: max(runs, key=lambda run: run.steps_per_second) for count, runs in found.items()}
    first = best[options.workers[0]]
    for count, run in best.items():
        if run is not first:
            ratio = run.steps_per_second / first.steps_per_second
            kept = run.steps_per_cpu / first.steps_per_cpu
            print(
                f"{count} workers to {options.workers[0]}: {ratio:.2f} times the throughput (bar for 2 to 1: {BAR}); "
                f"each worker keeps {100 * kept:.0f} % of its speed by processor time"
            )


if __name__ == "__main__":
    main()
