"""How to choose: samplers and estimators on seven posteriors with known answers, at an equal number of row gradients.

    python benchmarks/choosing.py --out docs/results     # everything, about eight minutes
    python benchmarks/choosing.py --quick                # does it run? under a minute, the numbers mean little
    python benchmarks/choosing.py --only plain raw       # some problems

Every chain may use 5 million gradients of single rows (two a row with control variates), a fifth of them for burn-in;
what the set-up costs is told apart. Two seeds of four chains; the first run compiles, the second is timed. One process
on one core; CPU seconds. A timing is never a test: the exit status is 0 whatever the numbers are.

Writes choosing.json and choosing.png (choosing-quick.* with --quick), from which docs/choosing.md is made.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import choosing_runs as runs
import environments
import jax
from choosing_cells import cells
from choosing_figure import draw
from choosing_problems import MAKERS, Problem, problem

from scirocco._console import make_folder, to_json
from scirocco._version import versions
from scirocco.demo import save_figure
from scirocco.run.progress import Clock


def table(at: Problem, quick: bool) -> dict[str, Any]:
    """All lines of one problem, printed as they come."""
    print(f"\n{at.name}: {at.title}, N = {at.num_rows:,}", flush=True)
    lines = []
    for cell in cells(at, quick):
        start = time.perf_counter()
        found = runs.measured(cell)
        lines.append({"sampler": cell.names[0], "estimator": cell.names[1]} | found)
        _show(lines[-1], time.perf_counter() - start)
    return {
        "title": at.title,
        "num_rows": at.num_rows,
        "num_parameters": len(at.truth.mean),
        "batch_size": at.batch_size,
        "budget": at.budget,
        "condition": at.truth.condition,
        "truth": at.truth.how,
        "lines": lines,
    }


def _show(line: dict[str, Any], seconds: float) -> None:
    name = f"  {line['sampler']:32}{line['estimator']:16}"
    if "diverged" in line:
        print(f"{name} diverged", flush=True)
        return
    print(
        f"{name} mean {line['mean_error']:.3f}±{line['mean_error_se']:.3f} sd {line['sd_ratio']:.3f}±"
        f"{line['sd_ratio_se']:.3f} ({line['sd_low']:.2f}–{line['sd_high']:.2f}) ESS/s {line['ess_per_cpu_s']:8.1f} "
        f"steps/s {line['steps_per_cpu_s']:8.0f}  [{seconds:.0f} s]",
        flush=True,
    )


def everything(names: list[str], quick: bool, keep: Callable[[dict[str, Any]], None]) -> None:
    """The tables, and with `plain` the sweeps; a full run with all three has the diagnoses too. Kept part by part."""
    problems = {name: problem(name, quick) for name in names}
    out: dict[str, Any] = {"problems": {}}
    for name, at in problems.items():
        out["problems"][name] = table(at, quick)
        keep(out)
    if "plain" in problems:
        out["step_sizes"] = runs.step_sizes(problems["plain"], quick)
        keep(out)
        if not quick:
            out["batch_sizes"] = runs.batch_sizes(problems["plain"])
            keep(out)
    if not quick and {"plain", "raw", "bimodal"} <= set(problems):
        out["diagnoses"] = runs.diagnoses(*(problems[name] for name in ("plain", "raw", "bimodal")))
        keep(out)


def record(
    numbers: dict[str, Any], options: argparse.Namespace, seconds: dict[str, float], load: float | None
) -> dict[str, Any]:
    """What is written."""
    extra = f" --only {' '.join(options.only)}" if set(options.only) != set(MAKERS) else ""
    return {
        "benchmark": "choosing",
        "title": "Samplers and estimators on posteriors with known answers",
        "command": f"python benchmarks/choosing.py{' --quick' * options.quick}{extra}",
        "quick": options.quick,
        "seconds": seconds,
        "numbers": numbers,
        "versions": versions(),
        "machine": {
            "cores": os.cpu_count(),
            "used": 1,
            "load_at_start": load,
            "backend": jax.default_backend(),
            "architecture": platform.machine(),
        },
    }


def main() -> None:
    """Run what was asked for and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=tuple(MAKERS), default=list(MAKERS), metavar="PROBLEM")
    parser.add_argument("--quick", action="store_true", help="fewer rows, fewer lines, a tenth of the budget")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for the two files")
    options = parser.parse_args()
    make_folder(options.out)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    environments.pin_to_one_core()
    clock = Clock()
    stem = options.out / ("choosing-quick" if options.quick else "choosing")

    def keep(numbers: dict[str, Any]) -> None:
        out = to_json(record(numbers, options, clock.read(), load))
        text = json.dumps(out, indent=1, ensure_ascii=False, allow_nan=False)
        stem.with_suffix(".json").write_text(text + "\n", "utf-8")
        if "step_sizes" in numbers:
            save_figure(lambda figure: draw(figure, out["numbers"]), stem.with_suffix(".png"))

    everything(options.only, options.quick, keep)
    print(f"\n{stem}.json, {clock.read()['wall']:.0f} s")


if __name__ == "__main__":
    main()
