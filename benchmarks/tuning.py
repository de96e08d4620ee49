"""Tuning on covertype: seconds of `tune`, what its choice is worth beside a grid, seconds of `ksd` and `diagnose`.

    python benchmarks/tuning.py                           # everything: about five minutes
    python benchmarks/tuning.py --only tune ksd           # some: tune grid plain ksd diagnose
    python benchmarks/tuning.py --quick                   # does it run? (the numbers mean nothing)

tune      `sc.analysis.tune` of SGLD with control variates, batches of 500: the first call of the process, then another
grid      Stein discrepancy of a run with its choice over that of the best of twelve step sizes, in the same coordinates
plain     the same for SGLD in the user's units
ksd       of 10,000 draws × 50
diagnose  of the run with the choice

Logistic regression of class 2 against the rest, N = 581,012, d = 54, prior N(0, 10). Runs are four chains of 5,000
draws from the mode, of which 2,000 are judged, by exact gradients over all rows (`tuning_data.py`). By the clock, with
CPU seconds beside it. A timing is never a test: the exit status is 0 whatever the numbers are.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tuning_data

import scirocco as sc
from scirocco.errors import DivergenceError

LINES = ("tune", "grid", "plain", "ksd", "diagnose")
BATCH = 500
MULTIPLES = np.geomspace(1 / 25, 12, 12)
"""Step sizes of a grid, in units of the first guess: the range that `tune` tries."""
TUNE, NEAR, KSD, DIAGNOSE = 60.0, 1.2, 2.0, 10.0  # the bars


def timed(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """The result, seconds by the clock and of the CPU."""
    wall, cpu = time.perf_counter(), time.process_time()
    out = work()
    return out, {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def verdict(name: str, value: float, bar: float, more: str = "") -> None:
    """One line with its bar."""
    met = "met" if value <= bar else "NOT met"
    print(f"  {name:58}{value:9.3f}   (bar <= {bar:g}: {met}){more}", flush=True)


def tuned(problem: tuning_data.Problem, quick: bool, **options: Any) -> Any:
    """What the library chooses."""
    return sc.analysis.tune(
        problem.model,
        problem.rows,
        problem.start,
        sampler=sc.SGLD(),
        estimator=sc.ControlVariates(BATCH),
        num_steps=200 if quick else 4_000,
        **options,
    )


def seconds_of_tune(problem: tuning_data.Problem, quick: bool) -> tuple[Any, dict[str, Any]]:
    """The first call of this process, and another."""
    tuning, first = timed(lambda: tuned(problem, quick))
    _, again = timed(lambda: tuned(problem, quick))
    print(f"\n{tuning}\n\n`tune`, {len(tuning.trials)} step sizes, by the clock")
    verdict("first call, s", first["wall"], TUNE, f", CPU {first['cpu']:.1f} s")
    print(f"  another call {again['wall']:.1f} s, CPU {again['cpu']:.1f} s", flush=True)
    return tuning, {"first": first, "again": again, "chosen": tuning.best.settings}


def sampled(problem: tuning_data.Problem, sampler: Any, quick: bool) -> Any:
    """Four chains; None where one diverged."""
    try:
        return sc.sample(
            problem.model,
            problem.rows,
            problem.start,
            sampler=sampler,
            estimator=sc.ControlVariates(BATCH),
            num_samples=500 if quick else 5_000,
            num_chains=4,
            keep_gradients=True,
            progress=False,
        )
    except DivergenceError:
        return None


def with_step(sampler: Any, step_size: float) -> Any:
    """Another step size, in the same coordinates."""
    inner = sc.SGLD(step_size)
    return sc.Preconditioned(inner, sampler.metric, sampler.factor) if hasattr(sampler, "inner") else inner


def beside_grid(problem: tuning_data.Problem, tuning: Any, quick: bool, name: str) -> dict[str, Any]:
    """Discrepancies of the choice and of the grid."""
    guess = next(trial.settings["step_size"] for trial in tuning.trials if trial.first_guess)
    chosen = tuning.best.settings["step_size"]
    sizes = [chosen, *(guess * (MULTIPLES[::4] if quick else MULTIPLES)).tolist()]
    found = []
    print(f"\n{name}: step size, Stein discrepancy")
    for step_size in sizes:
        run = sampled(problem, with_step(tuning.sampler, step_size), quick)
        found.append(math.nan if run is None else problem.discrepancy(run.draws))
        print(f"  {step_size:10.3g} {found[-1]:8.4f}{'   chosen' * (len(found) == 1)}", flush=True)
    verdict("chosen / best of the grid", found[0] / np.nanmin(found[1:]), NEAR)
    return {"step_sizes": sizes, "discrepancies": found}


def seconds_of_ksd() -> dict[str, float]:
    """Of 10,000 × 50 standard normal draws; best of three."""
    x = np.random.default_rng(0).normal(size=(10_000, 50))
    found = [timed(lambda: sc.analysis.ksd(x, -x))[1] for _ in range(3)]
    best = min(found, key=lambda seconds: seconds["wall"])
    print("\n`ksd` of 10,000 × 50, best of three")
    verdict("s", best["wall"], KSD, f", CPU {best['cpu']:.2f} s")
    return best


def seconds_of_diagnose(problem: tuning_data.Problem, tuning: Any, quick: bool) -> dict[str, float] | None:
    """Of the run with the choice; the first call."""
    if not hasattr(sc.analysis, "diagnose"):
        print("\nthis version has no `diagnose`.")
        return None
    run = sampled(problem, tuning.sampler, quick)
    if run is None:
        print("\nthe run to be diagnosed diverged.")
        return None
    found, seconds = timed(lambda: sc.analysis.diagnose(run))
    print(f"\n`diagnose`, first call\n{found}")
    verdict("s", seconds["wall"], DIAGNOSE, f", CPU {seconds['cpu']:.1f} s")
    return seconds


def main() -> None:
    """Print the lines that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=LINES, default=LINES, metavar="LINE")
    parser.add_argument("--data", type=Path, help="folder with the data sets")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all numbers to this file")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    if set(options.only) - {"ksd"}:
        problem, quick = tuning_data.covertype(options.data), options.quick
        if quick:
            problem = problem.thinned(20)
        tuning, results["tune"] = seconds_of_tune(problem, quick)  # first: nothing is compiled yet
        if "diagnose" in options.only:
            results["diagnose"] = seconds_of_diagnose(problem, tuning, quick)
        if "grid" in options.only:
            results["grid"] = beside_grid(problem, tuning, quick, "in the coordinates that `tune` chose")
        if "plain" in options.only:
            plain = tuned(problem, quick, preconditioner=None)
            results["plain"] = beside_grid(problem, plain, quick, "in the user's units")
    if "ksd" in options.only:
        results["ksd"] = seconds_of_ksd()
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
