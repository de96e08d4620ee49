"""After a run: leave-one-out on all of covertype, and predictions with intervals for a million rows.

    python benchmarks/after.py                  # both, some two minutes
    python benchmarks/after.py --only loo       # or predict
    python benchmarks/after.py --quick          # does it run? (the numbers mean nothing)

loo      `sc.analysis.loo` of a logistic regression (class 2 against the rest, N = 581,012, 1,000 draws):
         seconds, memory above the data, and its elpd beside PSIS of 20,000 rows (exact for those), with
         ArviZ's time for some.
predict  `run.predict` for 10⁶ rows × 1,000 draws with 90 % intervals: seconds and memory above data and results; beside
         np.quantile of the same chunks, extrapolated.

Bars (two cores): 20 s and 200 MB for the first, elpd within two standard errors; 60 s for the second. A timing is never
a test: the exit status is 0 whatever comes out.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import scirocco as sc
from scirocco.analysis.loo import difference
from scirocco.datasets import covertype

DRAWS = 1_000
Measured = tuple[Any, dict[str, float]]


def resident() -> float:
    """The memory that the process holds now, MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def measured(call: Callable[[], Any]) -> Measured:
    """The result, seconds by the clock and of the CPU, and the most memory above that before, looked at every 10 ms."""
    gc.collect()
    before, most, done = resident(), [resident()], threading.Event()

    def look() -> None:
        while not done.wait(0.01):
            most[0] = max(most[0], resident())

    watcher = threading.Thread(target=look)
    watcher.start()
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        result = call()
    finally:
        spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        done.set()
        watcher.join()
    spent["MB"] = most[0] - before
    return result, {name: round(value, 2) for name, value in spent.items()}


def compare_loo(quick: bool) -> dict[str, Any]:
    """Leave-one-out by a sample of the rows, and of 20,000 rows exactly."""
    found = covertype()
    count = 30_000 if quick else len(found.y)
    # rare soil types have posteriors that are far from the Gaussian whose draws are used here
    x = np.asarray(found.X[:count][:, np.mean(found.X != 0, axis=0) >= 0.01], np.float32)
    data = {"x": x, "y": np.asarray(found.y[:count], np.float32)}
    draws = _near_posterior(data)
    model = sc.Model(_log_likelihood)
    del found, x
    subsampled, cost = measured(lambda: sc.analysis.loo(draws, data, model=model))
    print(f"subsampled: {subsampled.words}\n  {cost}", flush=True)
    rng = np.random.default_rng(1)
    rows = np.sort(rng.choice(count, 20_000, replace=False))
    part = {name: column[rows] for name, column in data.items()}
    exact, exact_cost = measured(lambda: sc.analysis.loo(draws, part, model=model))
    scaled = exact.elpd * count / len(rows)
    error = exact.standard_error * count / len(rows) * math.sqrt(1 - len(rows) / count)
    error = math.hypot(error, subsampled.sampling_error)
    apart = (subsampled.elpd - scaled) / error
    print(f"20,000 rows exactly: {exact.words}\n  {exact_cost}; scaled to all rows {scaled:,.0f} ± {error:,.0f}")
    # the same 20,000 rows, by many samples of 4,000 of them: a sharper comparison
    z = []
    for _ in range(500):
        some = rng.choice(len(rows), 4_000, replace=False)
        guess = difference(exact.approximate, some, exact.each[some])
        z.append((guess.total - exact.elpd) / math.sqrt(guess.sampling_variance))
    near = float(np.mean(np.abs(z) < 2))
    print(
        f"  apart by {apart:.2f} standard errors; samples of 4,000 of the 20,000 rows: within 2 in {100 * near:.0f} %",
        flush=True,
    )
    costs = {"subsampled": cost, "exact": exact_cost, "apart": apart, "within_two": near}
    return costs | _arviz(draws, part)


def _near_posterior(data: dict[str, np.ndarray]) -> np.ndarray:
    """Draws (1, draw, column) of the Gaussian approximation at the mode, with the prior N(0, 10²): Newton's method."""
    x, y = data["x"], data["y"]
    beta = np.zeros(x.shape[1])
    for _ in range(12):
        p = 1.0 / (1.0 + np.exp(-(x @ beta.astype(np.float32)).astype(np.float64)))
        precision = (x * (p * (1 - p)).astype(np.float32)[:, None]).T @ x + 0.01 * np.eye(len(beta))
        beta = beta + np.linalg.solve(precision, x.T @ (y - p) - 0.01 * beta)
    root = np.linalg.inv(np.linalg.cholesky(precision.astype(np.float64)))
    normals = np.random.default_rng(0).standard_normal((DRAWS, len(beta)))
    return (beta + normals @ root).astype(np.float32)[None]


def _log_likelihood(beta: jax.Array, row: dict[str, jax.Array]) -> jax.Array:
    eta = row["x"] @ beta
    return row["y"] * eta - jax.numpy.logaddexp(0.0, eta)


def _arviz(draws: np.ndarray, part: dict[str, np.ndarray]) -> dict[str, float]:
    try:
        import arviz
    except ImportError:
        return {}
    if not hasattr(arviz, "psislw"):
        return {}
    eta = part["x"][:500].astype(float) @ draws[0].T.astype(float)
    logs = part["y"][:500, None] * eta - np.logaddexp(0.0, eta)
    _, cost = measured(lambda: arviz.psislw(-logs))
    print(f"  ArviZ's psislw of 500 rows: {cost['cpu']} CPU s, {cost['cpu'] * 40:.0f} for 20,000", flush=True)
    return {"arviz_cpu_per_20000": cost["cpu"] * 40}


def compare_predictions(quick: bool) -> dict[str, Any]:
    """A million rows of 50 columns."""
    count, columns = (20_000 if quick else 1_000_000), 50
    rng = np.random.default_rng(0)
    x = rng.standard_normal((count, columns), np.float32)
    draws = 0.1 * rng.standard_normal((4, 1_000, columns), np.float32)
    run = _run_of(draws)
    rows = {"x": x}
    found, cost = measured(lambda: run.predict(_probability, rows))
    print(f"{found}\n  {cost}", flush=True)
    flat = draws[:, 3::4].reshape(-1, columns)
    _, one = measured(lambda: _by_numpy(x[:4_000], flat))
    whole = one["cpu"] * count / 4_000
    print(f"  np.quantile in chunks: {whole:.0f} CPU s for all rows, extrapolated", flush=True)
    return {"predict": cost, "numpy_cpu": whole}


def _probability(beta: jax.Array, row: dict[str, jax.Array]) -> jax.Array:
    return jax.nn.sigmoid(row["x"] @ beta)


def _run_of(draws: np.ndarray) -> sc.Run:
    known = {"dimension": draws.shape[2], "num_rows": 0, "sampler": "given draws"}
    return sc.Run(draws, None, {}, known, {}, {}, "complete", [])


def _by_numpy(x: np.ndarray, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    p = 1.0 / (1.0 + np.exp(-(x @ flat.T)))
    return p.mean(axis=1), np.quantile(p, (0.05, 0.95), axis=1)


def main() -> None:
    """Run what was asked for."""
    lines = {"loo": compare_loo, "predict": compare_predictions}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=lines, default=list(lines))
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    print(json.dumps({name: lines[name](given.quick) for name in given.only}))


if __name__ == "__main__":
    main()
