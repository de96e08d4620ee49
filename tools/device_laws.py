"""Run the tests of distributions on an accelerator.

usage: python tools/device_laws.py [tests ...] [--processes 8] [--limit 250] [other arguments for pytest]

The suite runs on CPUs; this runs tests/law, and the tests of loops and topics for accelerators, on the GPU or TPU that
JAX finds: the draws there come from another loop (`run/accelerator_loop.py`), and products of matrices are rounded.
Tests of kernels that only exist for CPUs are left out. Most of the time is compiling, so several processes share the
device (pytest-xdist); each takes the longest test that is left. Prints each file when its tests have ended, and after
`limit` seconds what has not; then whether resumed runs had the same bits, and what a run that was begun on a CPU
said. Kernels of matrix products are not tried out (`--xla_gpu_autotune_level=0`, unless XLA_FLAGS is set): it takes
most of the time.
"""

from __future__ import annotations

import argparse
import collections
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = [
    *("core/tests/law", "core/tests/run/test_accelerator.py", "latent/tests/lda/test_arrays.py"),
    "latent/tests/dp/test_geweke.py::test_joint_law_of_the_slice_sampler_by_arrays",
]
ONLY_CPU = ["core/tests/law/test_host_kernels.py"]
LONGEST = (
    *("device_laws", "default_laws", "event_laws", "exact_laws", "test_arrays", "recipe_laws"),
    *("simplex_laws", "gaussian_laws", "test_posteriors", "grouped_laws"),
)
"""Parts of names of files, the longest tests first; others follow."""
LINES = {
    "resumed on this device: the same bit for bit": "bit_for_bit",
    "begun on a CPU, resumed on this device: a warning says that the bits differ": "begun_on_a_cpu",
}
"""What is said at the end, by a part of the names of the tests that show it."""


# -- a plugin for pytest: the order of the tests, and the table -----------------------------------------------


class Table:
    """Prints a file when all its tests have ended."""

    def __init__(self) -> None:
        self.waiting: dict[str, set[str]] = {}
        self.ended: dict[str, tuple[str, float]] = {}
        self.begin = time.perf_counter()
        self.finished = False

    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """What there is to run; every process collects the same."""
        if not self.waiting:
            for name in ids:
                self.waiting.setdefault(name.split("::")[0], set()).add(name)
            print(f"{len(ids)} tests, collected after {time.perf_counter() - self.begin:.0f} s", flush=True)

    def pytest_runtest_logreport(self, report: object) -> None:
        """Note a test that has ended."""
        name, when, outcome = report.nodeid, report.when, report.outcome  # type: ignore[attr-defined]
        known, seconds = self.ended.get(name, ("passed", 0.0))
        worst = outcome if known == "passed" else known
        self.ended[name] = (worst, seconds + report.duration)  # type: ignore[attr-defined]
        if outcome == "failed":
            text = str(report.longrepr).strip().splitlines()  # type: ignore[attr-defined]
            print(f"FAILED {name}: {text[-1][:200] if text else ''}", flush=True)
        file = name.split("::")[0]
        if when == "teardown" and file in self.waiting:
            self.waiting[file].discard(name)
            if not self.waiting[file]:
                self.row(file)

    def pytest_report_teststatus(self, report: object) -> tuple[str, str, str]:
        """No letter for each test."""
        return report.outcome, "", ""  # type: ignore[attr-defined]

    def all_ended(self) -> dict[str, tuple[str, float]]:
        """Tests that have ended, not only begun."""
        waiting = set().union(*self.waiting.values())
        return {name: end for name, end in self.ended.items() if name not in waiting}

    def row(self, file: str) -> None:
        """One file: how its tests ended, their seconds, and the longest."""
        found = {name: end for name, end in self.all_ended().items() if name.startswith(file + "::")}
        counts = collections.Counter(outcome for outcome, _ in found.values())
        longest = max(found, key=lambda name: found[name][1], default="")
        ends = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        left = len(self.waiting.get(file, ()))
        print(
            f"{time.perf_counter() - self.begin:>5.0f} s  {file}: {ends}{f', {left} NOT ENDED' if left else ''}; "
            f"{sum(seconds for _, seconds in found.values()):.0f} s of work"
            + (f", longest {found[longest][1]:.0f} s ({longest.split('::')[1]})" if longest else ""),
            flush=True,
        )

    def pytest_sessionfinish(self) -> None:
        """What has not ended, the total, and the lines about resumed runs."""
        if self.finished:
            return
        self.finished = True
        for file, left in self.waiting.items():
            if left:
                self.row(file)
        counts = collections.Counter(outcome for outcome, _ in self.all_ended().values())
        left = sum(len(left) for left in self.waiting.values())
        print(
            f"all: {', '.join(f'{count} {outcome}' for outcome, count in counts.items())}, {left} not ended, "
            f"{time.perf_counter() - self.begin:.0f} s"
        )
        for line, part in LINES.items():
            ends = {name: outcome for name, (outcome, _) in self.all_ended().items() if part in name}
            wrong = [name for name, outcome in ends.items() if outcome != "passed"]
            print(f"{line}: {f'NOT SHOWN {wrong}' if wrong or not ends else f'{len(ends)} tests passed'}")
        sys.stdout.flush()


def pytest_configure(config: object) -> None:
    """In the process that hands out tests, print the table, and stop when the time is over."""
    if hasattr(config, "workerinput"):
        return
    table = Table()
    config.pluginmanager.register(table)  # type: ignore[attr-defined]
    limit = float(os.environ.get("SCIROCCO_LAWS_SECONDS", "inf"))
    if limit < float("inf"):
        timer = threading.Timer(limit, _stop, (table,))
        timer.daemon = True
        timer.start()


def _stop(table: Table) -> None:
    """Print what is known, and stop; pytest still waits for the tests that run."""
    table.pytest_sessionfinish()
    os.kill(os.getpid(), signal.SIGINT)


def pytest_collection_modifyitems(items: list) -> None:
    """The longest first."""

    def place(item: object) -> int:
        name = item.nodeid  # type: ignore[attr-defined]
        return next((number for number, part in enumerate(LONGEST) if part in name), len(LONGEST))

    items.sort(key=place)


# -- the command ----------------------------------------------------------------------------------------------


def main() -> int:
    """Print the device, and run the tests."""
    import jax

    if jax.default_backend() == "cpu" and "SCIROCCO_LAWS_ANYWHERE" not in os.environ:
        print("JAX finds no accelerator here: nothing to run (set JAX_PLATFORMS, or install JAX for your device).")
        return 2
    print(f"device: {jax.devices()[0].device_kind}, jax {jax.__version__}", flush=True)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=cores, help="that share the device")
    parser.add_argument("--limit", type=float, help="seconds after which it ends")
    arguments, given = parser.parse_known_args()
    paths = [
        os.environ.get("PYTHONPATH", ""),
        *(str(ROOT / part) for part in ("core/src", "latent/src", "papers/src", "tools")),
    ]
    # the suite's flags for the compiler are for CPUs
    environment = {"XLA_FLAGS": "--xla_gpu_autotune_level=0"} | os.environ
    environment |= {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "SCIROCCO_TEST_ALL": "1",
    }
    if arguments.limit is not None:
        environment["SCIROCCO_LAWS_SECONDS"] = str(arguments.limit)
    chosen = [] if any("tests" in argument for argument in given) else TESTS
    left_out = ["-m", "not process", *(f"--ignore={test}" for test in ONLY_CPU)]
    shared = ["-n", str(arguments.processes), "--maxschedchunk", "1", "-p", "device_laws"]
    command = [sys.executable, "-m", "pytest", "-qq", "--no-summary", "-p", "no:cacheprovider", "-W", "ignore"]
    return subprocess.run([*command, *shared, *left_out, *chosen, *given], cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
