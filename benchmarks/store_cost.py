"""What checksums, fingerprints and the comparison of models cost: this checkout beside an earlier commit.

    python benchmarks/store_cost.py [--before COMMIT] [--pairs N]

Two processes, one with the library of COMMIT (taken out of git), one with this checkout's, do the same work in turn, in
an order that changes from pair to pair. Reported: the median CPU time of each, the median of the ratios of pairs, and
the interval that holds the true median with 95 % probability (order statistics). The first line is of processes that
have compiled nothing yet, the others repeat a call: what is left is the library's own work, and every byte of the data
is read once for the fingerprint. «storing alone» is a stored run less the same run that is not stored. Files go to
memory where there is a disk in memory. A timing is never a test: the exit status is 0 whatever the ratios are.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
BEFORE = "73132ce"  # the last commit without checksums of draws
BAR = 1.03


def main() -> int:
    """Time all tasks in pairs, print a table."""
    options = parse()
    if options.child:
        return serve()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        sources = [checkout(options.before, Path(folder) / "before"), ROOT / "core" / "src"]
        sides = [start(source, Path(folder) / f"files-{k}") for k, source in enumerate(sources)]
        print(f"{'CPU ms, medians':58} {options.before:>9}  {'now':>7}  {'ratio':>6}  95 % interval")
        report(FIRST, np.array([first_calls(sources, Path(folder), k) for k in range(options.first)]))
        for task in TASKS:
            report(task, pairs_of(sides, task, options.pairs))
        for side in sides:
            side.stdin.close()
            side.wait()
    print(f"bar: {BAR}")
    return 0


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", default=BEFORE, help="a commit of this repository")
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--first", type=int, default=8, help="pairs of new processes")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def checkout(commit: str, folder: Path) -> Path:
    """Write the package as it was at a commit, and return its ``src``."""
    packed = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def start(source: Path, files: Path) -> subprocess.Popen:
    """Start the process that works with the library in ``source``."""
    files.mkdir()
    environment = os.environ | {
        "PYTHONPATH": str(source),
        "JAX_PLATFORMS": "cpu",
        "SCIROCCO_CACHE": "off",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    }
    command = [sys.executable, __file__, "--child"]
    return subprocess.Popen(
        command, cwd=files, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def first_calls(sources: list[Path], folder: Path, number: int) -> list[float]:
    """CPU seconds of the first stored run in a new process, imports apart, of both sides."""
    times = {}
    for k in [0, 1] if number % 2 else [1, 0]:
        side = start(sources[k], folder / f"first-{number}-{k}")
        times[k] = ask(side, STORED, number)
        side.stdin.close()
        side.wait()
    return [times[0], times[1]]


def ask(side: subprocess.Popen, task: str, number: int) -> float:
    """Let a process do one task, and return its CPU seconds."""
    print(json.dumps([task, number]), file=side.stdin, flush=True)
    answer = side.stdout.readline()
    if not answer:
        sys.exit(f"the process for {task!r} has ended")
    return json.loads(answer)


def pairs_of(sides: list[subprocess.Popen], task: str, count: int) -> np.ndarray:
    """CPU seconds of both sides, shape (pairs, 2); two pairs before them compile."""
    found = []
    for number in range(count + 2):
        order = [0, 1] if number % 2 else [1, 0]
        times = {k: ask(sides[k], task, number) for k in order}
        found.append([times[0], times[1]])
    return np.array(found[2:])


def report(task: str, times: np.ndarray) -> None:
    """Print one line."""
    ratios = np.sort(times[:, 1] / times[:, 0])
    half = 0.98 * np.sqrt(len(ratios))  # 1.96 standard deviations of a binomial count with probability 1/2
    low, high = (int(np.clip(round(len(ratios) / 2 + s * half), 0, len(ratios) - 1)) for s in (-1, 1))
    before, now = 1_000 * np.median(times, axis=0)
    print(
        f"{task:58} {before:9.1f}  {now:7.1f}  {np.median(ratios):6.3f}  {ratios[low]:.3f}-{ratios[high]:.3f}",
        flush=True,
    )


def serve() -> int:
    """Do tasks named on standard input until it ends."""
    made: dict[str, Callable[[int], float | None]] = {}
    for line in sys.stdin:
        task, number = json.loads(line)
        if task not in made:
            made = {task: TASKS[task]()}  # the data of one task at a time
        began = time.process_time()
        alone = made[task](number)
        print(time.process_time() - began if alone is None else alone, flush=True)
        for left in Path().glob("run-*"):
            shutil.rmtree(left)
    return 0


def regression(num_rows: int, num_columns: int, stored: bool) -> Callable[[int], float | None]:
    """Set-up of a short run: 50 draws of a logistic regression."""
    import jax.numpy as jnp

    import scirocco as sc

    random = np.random.default_rng(0)
    rows = {
        "x": random.normal(size=(num_rows, num_columns)).astype(np.float32),
        "y": random.integers(0, 2, num_rows).astype(np.float32),
    }
    model = sc.Model(
        log_prior=lambda theta: -0.5 * jnp.sum(theta**2),
        log_likelihood=lambda theta, row: row["y"] * (row["x"] @ theta) - jnp.logaddexp(0.0, row["x"] @ theta),
    )

    def task(number: int) -> None:
        sc.sample(
            model, rows, jnp.zeros(num_columns), sampler=sc.SGLD(1e-6),
            estimator=sc.Minibatch(500), num_samples=50, num_burnin=0, num_chains=2, seed=number, progress=False,
            **({"store": f"run-{number}"} if stored else {}),
        )  # fmt: skip

    return task


def many_draws() -> Callable[[int], float | None]:
    """20,000 draws of two chains of 100 numbers: what storing them costs."""
    import jax.numpy as jnp

    import scirocco as sc

    rows = np.random.default_rng(0).normal(size=(1_000, 100)).astype(np.float32)
    model = sc.Model(
        log_prior=lambda theta: -0.5 * jnp.sum(theta**2),
        log_likelihood=lambda theta, row: -0.5 * jnp.sum((row - theta) ** 2),
    )

    def seconds(number: int, **store: str) -> float:
        began = time.process_time()
        sc.sample(
            model, rows, jnp.zeros(100), sampler=sc.SGLD(1e-5), estimator=sc.Minibatch(100),
            num_samples=20_000, num_burnin=0, num_chains=2, seed=number, progress=False, **store,
        )  # fmt: skip
        return time.process_time() - began

    def task(number: int) -> float:
        return seconds(number, store=f"run-{number}") - seconds(number)

    return task


FIRST = "first call in a process, 200,000 x 20, stored"
STORED = "set-up, 200,000 x 20 in memory, stored"
TASKS: dict[str, Callable[[], Callable[[int], float | None]]] = {
    "set-up, 200,000 x 20 in memory, not stored": lambda: regression(200_000, 20, stored=False),
    STORED: lambda: regression(200_000, 20, stored=True),
    "set-up, 2,000,000 x 20 in memory, stored": lambda: regression(2_000_000, 20, stored=True),
    "20,000 draws x 2 chains x 100 numbers, storing alone": many_draws,
}


if __name__ == "__main__":
    sys.exit(main())
