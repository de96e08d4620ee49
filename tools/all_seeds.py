"""Run the tests of distributions for every seed, one process per seed, and list what failed.

usage: python tools/all_seeds.py [--seeds 0:100] [--processes N] [--limit SECONDS] [arguments for pytest]

A random test must pass for any seed from 0 to 99; the suite runs it with the one that the commit picks. Without
arguments for pytest, the part `law` of both libraries is run, all its cases over three seeds. The first seed is run by
all processes together, which fills the cache of compiled programs. After `limit` seconds no more seeds are begun.
Prints a line for each seed and a table of the failed tests; ends with status 1 if there is one, or if no test was run.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAWS = ("-m", "law", "core/tests", "latent/tests", "tests")
_WIDTH = "400"
"""Columns of pytest's summary, which cuts the reason of a failure where the line is full."""
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?(?:\[.*?\])?)(?: - (.*))?$", re.MULTILINE)
COUNTED = re.compile(r"^.*\b\d+ (?:passed|failed|error).* in .*$", re.MULTILINE)


def ran(seed: int, arguments: list[str], workers: int = 0) -> tuple[int, str]:
    """The seed, and what pytest printed; alone on one core unless there are workers."""
    several = ["-n", str(workers), "--dist", "worksteal"] if workers else ["-p", "no:xdist"]
    env = os.environ | {"SCIROCCO_TEST_SEED": str(seed), "SCIROCCO_TEST_PAIRS": str(seed % 3), "COLUMNS": _WIDTH}
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    alone = [] if workers or not cores else ["taskset", "-c", str(cores[seed % len(cores)])]
    told = ["-q", "-rfE", "--tb=line", "-p", "no:cacheprovider"]
    command = [*alone, sys.executable, "-m", "pytest", *told, *several, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    return seed, done.stdout + done.stderr


def main() -> int:
    """Run the seeds and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0:100", help="FIRST:END")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which no seed is begun")
    options, rest = parser.parse_known_args()
    first, end = map(int, options.seeds.split(":"))
    began, arguments = time.monotonic(), rest or list(LAWS)
    failures: dict[str, list[str]] = collections.defaultdict(list)
    tests, done = 0, []

    def told(seed: int, printed: str) -> None:
        nonlocal tests
        counted = COUNTED.findall(printed)
        tests += sum(int(n) for n in re.findall(r"(\d+) (?:passed|failed|error)", (counted or [""])[-1]))
        for test, why in FAILED.findall(printed):
            failures[test].append(f"seed {seed}: {why[:160]}")
        done.append(seed)
        last = counted[-1] if counted else " ".join(printed.split())[-300:]
        print(f"{time.monotonic() - began:5.0f} s  seed {seed:2}: {last}", flush=True)

    def one(seed: int) -> tuple[int, str] | None:
        return ran(seed, arguments) if time.monotonic() - began < options.limit else None

    told(*ran(first, arguments, options.processes))
    with concurrent.futures.ThreadPoolExecutor(options.processes) as pool:
        for future in concurrent.futures.as_completed([pool.submit(one, s) for s in range(first + 1, end)]):
            if (result := future.result()) is not None:
                told(*result)
    print(f"\n{tests} tests, {len(done)} of {end - first} seeds, {len(failures)} tests failed for some seed")
    for test, why in sorted(failures.items(), key=lambda pair: -len(pair[1])):
        print(f"  {len(why):3} {test}")
        print("\n".join(f"        {line}" for line in why[:5]))
    return 1 if failures or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
