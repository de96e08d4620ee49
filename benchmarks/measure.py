"""How a child process times one side and says what it found: one JSON object on the last line of its output.

CPU time of the whole process (all threads), best of the repeats after a first call that compiles, because the
machines that run this are seldom idle. Every repeat has another seed; draws of all repeats are judged together.
"""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import problem


@dataclass(frozen=True)
class Effort:
    """How long to run: the full suite, or ``--quick`` to see that it works."""

    num_steps: int
    repeats: int


@dataclass(frozen=True)
class Outcome:
    """What one timed call gave: draws (chain, draw, dim), and CPU seconds of a set-up that is no step."""

    draws: np.ndarray
    setup_cpu_s: float = 0.0


Run = Callable[[int], Outcome]
Build = Callable[[np.ndarray, np.ndarray, problem.Reference], Run]


def is_quick() -> bool:
    """Whether the parent asked for the short form."""
    return os.environ.get("BENCHMARK_QUICK") == "1"


def effort() -> Effort:
    """The number of steps and repeats of this run."""
    num_steps, repeats = (1_000, 1) if is_quick() else (problem.NUM_STEPS, 3)
    return Effort(num_steps, int(os.environ.get("BENCHMARK_REPEATS", repeats)))


def count_user_lines(path: str | Path, name: str) -> int:
    """Lines a user types: what stands between ``# [user NAME]`` and ``# [/user]``, less blanks and comments.

    A name may have several such blocks in its file (the timed call stands apart from what is built once).
    """
    blocks = re.findall(rf"# \[user {re.escape(name)}\]\n(.*?)# \[/user\]", Path(path).read_text(), flags=re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    return sum(1 for line in lines if line and not line.startswith("#"))


def versions() -> dict[str, str]:
    """Version of Python and of each package that is installed and matters here."""
    found = {"python": platform.python_version()}
    for package in ("jax", "jaxlib", "numpy", "blackjax", "scirocco"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def judge(outcomes: list[Outcome], reference: problem.Reference) -> dict[str, float]:
    """Median effective draws of one whole call, and the variance ratios, from the second half of each chain."""
    halves = [outcome.draws[:, outcome.draws.shape[1] // 2 :] for outcome in outcomes]
    stacked = np.concatenate(halves, axis=0)
    if not np.isfinite(stacked).all():
        return dict.fromkeys(("ess", "variance_about_mean", "variance_about_mode"), float("nan"))
    per_chain = [np.median(problem.effective_sample_size(chain)) for chain in stacked]
    about_mean, about_mode = problem.variance_ratios(stacked, reference)
    num_chains = halves[0].shape[0]
    return {
        "ess": 2.0 * num_chains * float(np.mean(per_chain)),
        "variance_about_mean": about_mean,
        "variance_about_mode": about_mode,
    }


def time_calls(build: Callable[[], Run], repeats: int) -> tuple[list[Outcome], list[float], float]:
    """Build, call once (this compiles), then time ``repeats`` calls; return outcomes, CPU seconds, the first's."""
    start = time.process_time()
    run = build()
    run(0)
    first = time.process_time() - start
    outcomes, seconds = [], []
    for seed in range(1, repeats + 1):
        start = time.process_time()
        outcome = run(seed)
        seconds.append(time.process_time() - start)
        outcomes.append(outcome)
    return outcomes, seconds, first


def measure(
    build: Build, x: np.ndarray, y: np.ndarray, reference: problem.Reference, num_chains: int = 1
) -> dict[str, Any]:
    """Time one side. ``build`` is what is typed once; the function it returns draws one whole run per seed.

    ``steps_per_cpu_s`` counts the whole call, the set-up included; ``sampling_steps_per_cpu_s`` leaves out the
    set-up that the side reported (finding a mode); the effective draws per second come in both forms too.
    """
    plan = effort()
    outcomes, seconds, first = time_calls(lambda: build(x, y, reference), plan.repeats)
    best = min(seconds)
    sampling = min(s - o.setup_cpu_s for s, o in zip(seconds, outcomes, strict=True))
    verdict = judge(outcomes, reference)
    chain_steps = plan.num_steps * num_chains
    return {
        "steps_per_cpu_s": chain_steps / best,
        "sampling_steps_per_cpu_s": chain_steps / sampling,
        "setup_cpu_s": min(o.setup_cpu_s for o in outcomes),
        "compile_cpu_s": max(first - best, 0.0),
        "ess_per_cpu_s": verdict["ess"] / best,
        "sampling_ess_per_cpu_s": verdict["ess"] / sampling,
        "cpu_s": seconds,
        **verdict,
    }


def emit(result: dict[str, Any]) -> None:
    """Print the result as the last line of the child's output, for the parent to read."""
    print(json.dumps(result), flush=True)


def main(file: str, name: str, build: Build, num_chains: int = 1) -> None:
    """The whole of a child process: make the data, time ``build``, count its user's lines, report."""
    x, y = problem.make_data()
    result = measure(build, x, y, problem.laplace(x, y), num_chains)
    emit({"name": name, "lines": count_user_lines(file, name), **result, "versions": versions()})
