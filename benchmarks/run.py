"""Time scirocco beside its rivals and print a ratio table.

    python benchmarks/run.py [--only NAME ...] [--quick] [--repeats N] [--json OUT]

One process after another, one thread, CPU time. A timing is never a test: the exit status is 0 whatever the
ratios are, and 1 only when a child crashed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import environments
import suite
import table

HERE = Path(__file__).resolve().parent


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Time scirocco beside its rivals.")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=suite.BENCHMARKS, help=" ".join(suite.BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="a tenth of the steps, one repeat, fewer rows")
    parser.add_argument("--repeats", type=int, metavar="N", help="timed repeats, the best counts (default 3)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write every child's numbers to this file")
    return parser.parse_args(arguments)


def run_child(child: suite.Child, variables: dict[str, str]) -> dict[str, Any] | None:
    """Run one child to its end; return its JSON, or None (and its errors on stderr) when it crashed."""
    python = environments.rivals_python() if child.where == "rivals" else sys.executable
    start = time.perf_counter()
    done = subprocess.run(
        [python, str(HERE / child.script), *child.arguments], env=variables, capture_output=True, text=True
    )
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        print(f"{child.name}: crashed with status {done.returncode}\n{done.stderr}", file=sys.stderr, flush=True)
        return None
    print(f"{child.name}: {seconds:.0f} s", flush=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> int:
    """Run what was asked for, print the table, write the numbers."""
    options = parse()
    environments.pin_to_one_core()
    variables = environments.child_variables(options.quick, options.repeats)
    children, lines = suite.select(options.only)
    results: dict[str, dict[str, Any]] = {}
    for child in children:
        result = run_child(child, variables)
        if result is not None:
            results[child.name] = result
    rows = table.rows(lines, results)
    table.show(rows)
    if options.quick:
        print("--quick: the numbers say only that everything runs.")
    if options.json is not None:
        summary = [{**row, "line": row["line"].title, "bar": row["line"].bar} for row in rows]
        options.json.write_text(json.dumps({"table": summary, "children": results}, indent=1) + "\n")
    return 0 if len(results) == len(children) else 1


if __name__ == "__main__":
    sys.exit(main())
