"""Sampling from disk beside sampling from memory, and what storing draws costs.

    python benchmarks/disk.py [--rows N] [--dir DIR] [--quick]

Every line is a process of its own; wall time after a first call that compiles, median of three; peak resident memory
against a process that does the same on 10,000 rows. The data (10 M × 50 float32, 2 GB) are made once in DIR.
A timing is never a test: the exit status is 0 whatever the ratios are.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

NUM_FEATURES, BATCH = 50, 500


def main() -> int:
    """Make the data, run the children, print ratios."""
    options = parse()
    if options.child:
        print(json.dumps(CHILDREN[options.child](options)))
        return 0
    folder = Path(options.dir)
    make_data(folder, options.rows)
    found = {name: run_child(name, options) for name in CHILDREN}
    show(found, options)
    return 0


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--dir", default=str(Path(tempfile.gettempdir()) / "scirocco-benchmark"))
    parser.add_argument("--quick", action="store_true", help="200,000 rows, fewer steps")
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.rows = min(options.rows, 200_000)
    options.dir = str(Path(options.dir).resolve())
    return options


def rows_path(options: argparse.Namespace) -> Path:
    """The data folder of this size."""
    return Path(options.dir) / f"rows-{options.rows}"


def make_data(folder: Path, num_rows: int) -> None:
    """Logistic regression rows, written in random order as they come (they are independent)."""
    import scirocco as sc

    path = folder / f"rows-{num_rows}"
    if path.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    beta = rng.standard_normal(NUM_FEATURES, np.float32) / 7
    start = time.perf_counter()
    with sc.data.FolderWriter(path, shuffle=True, seed=0) as writer:
        for begin in range(0, num_rows, 250_000):
            x = rng.standard_normal((min(250_000, num_rows - begin), NUM_FEATURES), np.float32)
            y = (rng.random(len(x)) < 1 / (1 + np.exp(-x @ beta))).astype(np.float32)
            writer.append({"x": x, "y": y})
    print(f"made and shuffled {num_rows:,} rows in {time.perf_counter() - start:.0f} s in {path}")


def run_child(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """One process, to its end."""
    command = [sys.executable, __file__, "--child", name, "--rows", str(options.rows), "--dir", options.dir]
    done = subprocess.run(command + ["--quick"] * options.quick, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name} crashed:\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


# -- the children ------------------------------------------------------------------------------------------------------


def log_likelihood(beta: Any, row: dict[str, Any]) -> Any:
    """Of one row."""
    import jax.numpy as jnp

    z = row["x"] @ beta
    return row["y"] * z - jnp.logaddexp(0.0, z)


def steps_per_second(data: Any, estimator: Any, num_rows: int, num_steps: int, **more: Any) -> dict[str, Any]:
    """Wall time of the sampling part (set-up and the first chunk, which compiles, are apart), and peak memory."""
    import jax.numpy as jnp

    import scirocco as sc

    model = sc.Model(log_likelihood, lambda beta: -0.5 * jnp.sum(beta**2))
    rates, setup = [], []
    for seed in range(3):
        run = sc.sample(
            model,
            data,
            jnp.zeros(NUM_FEATURES),
            sampler=sc.SGLD(0.1 / num_rows),
            estimator=estimator,
            num_samples=num_steps,
            seed=seed,
            progress=False,
            **more,
        )
        rates.append(run.timing["sampling"]["steps"] / run.timing["sampling"]["wall"])
        setup.append(run.timing["setup"]["wall"])
    return {"steps_per_second": statistics.median(rates), "setup_s": min(setup), "peak_mb": peak_mb()}


def peak_mb() -> float:
    """The most memory that was ever resident (not `getrusage`: that begins with what the parent had)."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def num_steps(options: argparse.Namespace) -> int:
    """Long enough for several epochs of superbatches."""
    return 2_000 if options.quick else 60_000


def _estimator(sampling: str = "auto", control_variates: bool = False) -> Any:
    import scirocco as sc

    return (sc.ControlVariates if control_variates else sc.Minibatch)(BATCH, sampling=sampling)


def baseline(options: argparse.Namespace) -> dict[str, Any]:
    """The process without the data."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((10_000, NUM_FEATURES), np.float32)
    data = {"x": x, "y": (rng.random(len(x)) < 0.5).astype(np.float32)}
    return steps_per_second(data, _estimator(), 10_000, num_steps(options), keep_draws=False)


def memory(options: argparse.Namespace, control_variates: bool = False) -> dict[str, Any]:
    """All rows in memory."""
    path = rows_path(options)
    data = {"x": np.load(path / "x.npy"), "y": np.load(path / "y.npy")}
    estimator = _estimator(control_variates=control_variates)
    return steps_per_second(data, estimator, options.rows, num_steps(options), keep_draws=False)


def disk(options: argparse.Namespace, sampling: str = "auto", control_variates: bool = False) -> dict[str, Any]:
    """Rows that stay on disk."""
    estimator = _estimator(sampling, control_variates)
    slow = 10 if sampling != "auto" else 1
    steps = num_steps(options) // slow
    return steps_per_second(rows_path(options), estimator, options.rows, steps, keep_draws=False)


def draws(options: argparse.Namespace, store: bool) -> dict[str, Any]:
    """A million draws of a 100-parameter model, kept nowhere or on disk; memory is looked at along the way."""
    import jax.numpy as jnp

    import scirocco as sc

    rng = np.random.default_rng(0)
    x = rng.standard_normal((20_000, 100), np.float32)
    data = {"x": x, "y": (rng.random(len(x)) < 0.5).astype(np.float32)}
    model = sc.Model(log_likelihood, lambda beta: -0.5 * jnp.sum(beta**2))
    count = 20_000 if options.quick else 1_000_000
    path = Path(options.dir) / "draws"
    if path.exists():
        shutil.rmtree(path)
    seen: list[float] = []
    watch = Watch(seen)
    run = sc.sample(
        model,
        data,
        jnp.zeros(100),
        sampler=sc.SGLD(1e-6),
        estimator=sc.Minibatch(100),
        num_samples=count,
        progress=False,
        **({"store": path} if store else {"keep_draws": False}),
    )
    watch.stop()
    half = seen[len(seen) // 4 :]
    timing = run.timing["sampling"]
    if store:
        shutil.rmtree(path)
    return {
        "steps_per_second": timing["steps"] / timing["wall"],
        "wall_s": timing["wall"] + run.timing["first_chunk"]["wall"],
        "growth_mb": max(half) - min(half) if half else 0.0,
        "peak_mb": max(seen, default=0.0),
    }


class Watch:
    """Resident memory, ten times a second."""

    def __init__(self, seen: list[float]):
        self._seen, self._end = seen, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        while not self._end.wait(0.1):
            self._seen.append(int(Path("/proc/self/statm").read_text().split()[1]) * page / 2**20)

    def stop(self) -> None:
        self._end.set()
        self._thread.join()


CHILDREN = {
    "baseline": baseline,
    "memory": memory,
    "blocks": disk,
    "rows": lambda options: disk(options, "without_replacement"),
    "memory-cv": lambda options: memory(options, True),
    "blocks-cv": lambda options: disk(options, control_variates=True),
    "draws": lambda options: draws(options, False),
    "draws-stored": lambda options: draws(options, True),
}


def show(found: dict[str, dict[str, Any]], options: argparse.Namespace) -> None:
    """Ratios beside their bars."""
    rate = {name: child["steps_per_second"] for name, child in found.items()}
    over = {name: child["peak_mb"] - found["baseline"]["peak_mb"] for name, child in found.items()}
    print(f"\n{options.rows:,} rows × {NUM_FEATURES} float32, logistic regression, batch {BATCH}, wall time")
    for name in ("memory", "blocks", "rows", "memory-cv", "blocks-cv"):
        base = rate["memory-cv" if name.endswith("cv") else "memory"]
        print(
            f"  {name:10} {rate[name]:9,.0f} steps/s  × {rate[name] / base:5.2f} of memory   "
            f"set-up {found[name]['setup_s']:6.1f} s   peak {over[name]:7,.0f} MB over a process without the data"
        )
    print("  bars: blocks ≥ 0.5 × memory, peak ≤ 1,024 MB over")
    plain, stored = found["draws"], found["draws-stored"]
    print("\n1,000,000 draws of a 100-parameter model" + (" (--quick: 20,000)" if options.quick else ""))
    print(f"  kept nowhere {plain['wall_s']:6.1f} s   stored {stored['wall_s']:6.1f} s", end="   ")
    print(f"writing costs {100 * (stored['wall_s'] / plain['wall_s'] - 1):.0f} % (bar ≤ 15 %)", end="   ")
    print(f"memory moved by {stored['growth_mb']:.0f} MB (bar ± 100 MB)")


if __name__ == "__main__":
    sys.exit(main())
