"""Is the plain call right? `sc.sample(model, data, start, num_chains=4, seed=s)` on posteriors with known answers.

    python benchmarks/posteriors.py --jobs 16 --json results.json --docs docs/battery.md
    python benchmarks/posteriors.py --only funnel banana --seeds 1 --first-seed 100    # to try things out

A run is **right** when every posterior mean is within 0.1 sd of the reference (`posteriors.json`) and every sd within
10 %; otherwise **warned** when it issued a `SciroccoWarning`, its certificate does not call it trustworthy, or it
stopped with an error of the library; otherwise **WRONG IN SILENCE**. Anything else (a crash, `--limit`) has
**failed**. Seeds 0-4 are for scores alone: settings are chosen with seeds from 100 on.

With `--jobs` every posterior has a process of its own, pinned to its share of the cores, on the CPU unless
JAX_PLATFORMS says otherwise. The status is 1 if a run was wrong in silence or failed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

REFERENCES = Path(__file__).with_suffix(".json")
MEAN_WITHIN, SD_WITHIN = 0.1, math.log(1.1)
RIGHT, WARNED, SILENT, FAILED = "right", "warned", "WRONG IN SILENCE", "failed"
BEGIN, END = "<!-- table -->", "<!-- /table -->"


# -- one run ----------------------------------------------------------------------------------------------------------


def measure(name: str, problem: Any, reference: dict[str, Any], seed: int) -> dict[str, Any]:
    """The plain call once, and how its answer compares."""
    import scirocco as sc
    from scirocco.errors import SciroccoError, SciroccoWarning

    found: dict[str, Any] = {"posterior": name, "seed": seed, "error": None}
    started, cpu = time.perf_counter(), time.process_time()
    run = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            run = sc.sample(problem.model, problem.data, problem.start, num_chains=4, seed=seed, progress=False)
        except Exception as error:  # a crash is a result
            found |= {"error": f"{type(error).__name__}: {error}", "named": isinstance(error, SciroccoError)}
    found |= {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu}
    found["warnings"] = [str(each.message) for each in caught if issubclass(each.category, SciroccoWarning)]
    if run is not None:
        certificate = getattr(run, "certificate", None)
        found["trustworthy"] = None if certificate is None else getattr(certificate, "trustworthy", None)
        found["sampling_seconds"] = run.timing["sampling"]["wall"] if "sampling" in run.timing else None
        found["chosen"] = run.preparation.get("chosen")
        found |= compare(run.draws, reference)
    found["verdict"] = verdict(found)
    return found


def compare(draws: Any, reference: dict[str, Any]) -> dict[str, Any]:
    """Errors of means and sds, effective draws and R-hat: the worst parameter of each."""
    import jax
    import numpy as np

    import scirocco as sc

    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(draws)]
    values = np.concatenate([leaf.reshape(*leaf.shape[:2], -1) for leaf in leaves], axis=2)
    mean, sd = np.array(reference["mean"]), np.array(reference["sd"])
    off = np.abs(values.mean(axis=(0, 1)) - mean) / sd
    spread = np.log(np.maximum(values.std(axis=(0, 1)), 1e-300) / sd)
    off, spread = (np.where(np.isfinite(each), each, np.inf) for each in (off, spread))
    worst = int(np.argmax(np.abs(spread)))
    return {
        "mean_error": float(off.max()),
        "mean_worst": reference["parameters"][int(np.argmax(off))],
        "log_sd_ratio": float(spread[worst]),
        "sd_worst": reference["parameters"][worst],
        "ess": float(np.min(sc.diagnostics.ess(values))),
        "rhat": float(np.max(sc.diagnostics.rhat(values))),
        "draws": values.shape[0] * values.shape[1],
    }


def verdict(found: dict[str, Any]) -> str:
    """Of one run."""
    if found["error"] is not None:
        return WARNED if found.get("named") else FAILED
    if found["mean_error"] <= MEAN_WITHIN and abs(found["log_sd_ratio"]) <= SD_WITHIN:
        return RIGHT
    return WARNED if found["warnings"] or found["trustworthy"] is False else SILENT


def run_here(names: list[str], seeds: list[int], file: Path | None) -> list[dict[str, Any]]:
    """All runs in this process; the file is written after each."""
    from posteriors_problems import POSTERIORS

    references, results = json.loads(REFERENCES.read_text(encoding="utf-8")), []
    for name in names:
        problem = POSTERIORS[name].build()
        for seed in seeds:
            results.append(measure(name, problem, references[name], seed) | {"cold": seed == seeds[0]})
            print(line(results[-1]), flush=True)
            _write(file, results)
    return results


def line(found: dict[str, Any]) -> str:
    """One run in one line."""
    head = f"{found['posterior']} {found['seed']}: {found['verdict']}, {found['seconds']:.1f} s"
    if found["error"] is not None:
        return f"{head}; {found['error']}"
    numbers = f"mean {found['mean_error']:.3f} sd ({found['mean_worst']}), "
    numbers += f"sd ratio {math.exp(found['log_sd_ratio']):.3f} ({found['sd_worst']}), "
    numbers += f"ESS {found['ess']:.0f} of {found['draws']}, R-hat {found['rhat']:.3f}"
    return "; ".join([head, numbers, *(f"warning: {text}" for text in found["warnings"])])


# -- many processes ---------------------------------------------------------------------------------------------------


def run_apart(names: list[str], seeds: list[int], file: Path | None, jobs: int, limit: float) -> list[dict[str, Any]]:
    """Every posterior in a process of its own."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    slots: queue.Queue[list[int]] = queue.Queue()
    for number in range(jobs):
        slots.put(cores[number::jobs] or cores[number % len(cores) :][:1] if cores else [])
    results: list[dict[str, Any]] = []

    def one(name: str) -> None:
        slot = slots.get()
        with tempfile.TemporaryDirectory() as folder:
            part = Path(folder) / "part.json"
            command = [sys.executable, __file__, "--only", name, "--json", str(part)]
            command += ["--seeds", str(len(seeds)), "--first-seed", str(seeds[0]), "--cores", *map(str, slot)]
            environment = {"JAX_PLATFORMS": "cpu"} | os.environ
            started = time.perf_counter()
            try:
                process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)
                trouble = process.stderr[-500:]
            except subprocess.TimeoutExpired:
                trouble = f"not finished after {limit:.0f} s"
            done = json.loads(part.read_text(encoding="utf-8"))["runs"] if part.exists() else []
            for seed in seeds[len(done) :]:
                missing = {"posterior": name, "seed": seed, "error": trouble, "warnings": [], "cold": not done}
                done.append(missing | {"verdict": FAILED, "seconds": time.perf_counter() - started})
        slots.put(slot)
        results.extend(done)
        print("\n".join(line(each) for each in done), flush=True)
        _write(file, results)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, names))
    order = {name: place for place, name in enumerate(names)}
    results.sort(key=lambda each: (order[each["posterior"]], each["seed"]))
    _write(file, results)
    return results


def _write(file: Path | None, results: list[dict[str, Any]]) -> None:
    if file is not None:
        file.write_text(json.dumps({"runs": results}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


# -- tables -----------------------------------------------------------------------------------------------------------


def table(results: list[dict[str, Any]]) -> str:
    """In Markdown: one row per posterior, the worst of its seeds; then the sums, then the warnings."""
    from posteriors_problems import POSTERIORS

    lines = [
        "| posterior | right | mean off by (sd) | sd ratio | ESS | R-hat | seconds: first, others | chosen |",
        "|---|---|---|---|---|---|---|---|",
    ]
    said = []
    for name in dict.fromkeys(each["posterior"] for each in results):
        runs = [each for each in results if each["posterior"] == name]
        hard = POSTERIORS[name].hard
        about = f"`{name}`: {POSTERIORS[name].about}" + (f" (hard: {hard})" if hard else "")
        counts = [f"{_count(runs, RIGHT)} of {len(runs)}"]
        counts += [f"{_count(runs, kind)} {kind}" for kind in (WARNED, SILENT, FAILED) if _count(runs, kind)]
        lines.append(f"| {about} | {'; '.join(counts)} | {' | '.join(_worst(runs))} |")
        texts = {text for each in runs for text in [*each["warnings"], each["error"]] if text}
        said += [f"- `{name}`: {' '.join(text.split())}" for text in sorted(texts)]
    lines += ["", sums(results)]
    return "\n".join([*lines, "", "Warnings and errors:", "", *said] if said else lines)


def _count(runs: list[dict[str, Any]], kind: str) -> int:
    return sum(each["verdict"] == kind for each in runs)


def _worst(runs: list[dict[str, Any]]) -> list[str]:
    ended = [each for each in runs if each["error"] is None]
    first = [f"{each['seconds']:.1f}" for each in runs if each["cold"]]
    others = [each["seconds"] for each in runs if not each["cold"]]
    seconds = ", ".join([*first, *([f"{sum(others) / len(others):.1f}"] if others else [])])
    if not ended:
        return ["", "", "", "", seconds, ""]
    ratio = math.exp(max((each["log_sd_ratio"] for each in ended), key=abs))
    chosen = sorted({str(each["chosen"]) for each in ended if each["chosen"]})
    return [
        f"{max(each['mean_error'] for each in ended):.3f}",
        f"{ratio:.3f}" if ratio < 1e4 else f"{ratio:.1e}",
        f"{min(each['ess'] for each in ended):.0f}",
        f"{max(each['rhat'] for each in ended):.3f}",
        seconds,
        "; ".join(dict.fromkeys(", ".join(text.split(", ")[:2]) for text in chosen)).replace("|", "\\|"),
    ]


def sums(results: list[dict[str, Any]]) -> str:
    """All runs in one sentence."""
    parts = [f"{_count(results, RIGHT)} right ({_count(results, RIGHT) / len(results):.1%})"]
    parts += [f"{_count(results, kind)} {kind}" for kind in (WARNED, SILENT, FAILED)]
    doubted = sum(each["verdict"] == RIGHT and bool(each["warnings"]) for each in results)
    seeds = sorted({each["seed"] for each in results})
    posteriors = len({each["posterior"] for each in results})
    head = f"{len(results)} runs of {posteriors} posteriors (seeds {seeds[0]} to {seeds[-1]})"
    return f"{head}: {', '.join(parts)}. {doubted} of the right ones came with a warning."


def fill(page: Path, text: str) -> None:
    """Replace what is between the two marks of the page."""
    old = page.read_text(encoding="utf-8")
    before, rest = old.split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these posteriors; by default all")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    parser.add_argument("--first-seed", type=int, default=0, help="100 or more to try things out")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once; 1: all in this process")
    parser.add_argument("--limit", type=float, default=1_800, help="seconds for a posterior, with --jobs")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    parser.add_argument("--docs", type=Path, help="write the table into this page")
    parser.add_argument("--from", type=Path, dest="from_file", help="no runs: the numbers of an earlier --json")
    parser.add_argument("--cores", nargs="*", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, options.cores)
    names = options.only or list(json.loads(REFERENCES.read_text(encoding="utf-8")))
    seeds = list(range(options.first_seed, options.first_seed + options.seeds))
    if options.from_file:
        results = json.loads(options.from_file.read_text(encoding="utf-8"))["runs"]
    elif options.jobs > 1:
        results = run_apart(names, seeds, options.json, options.jobs, options.limit)
    else:
        results = run_here(names, seeds, options.json)
    text = table(results)
    print(f"\n{text}")
    if options.docs:
        fill(options.docs, text)
    return 1 if _count(results, SILENT) + _count(results, FAILED) else 0


if __name__ == "__main__":
    sys.exit(main())
