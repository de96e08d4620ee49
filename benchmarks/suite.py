"""What is measured and what must come out: the children to run, and the lines of the table with their bars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OURS = "ours.py"


@dataclass(frozen=True)
class Child:
    """A script that prints one JSON object; ``where`` says in whose interpreter it runs."""

    name: str
    script: str
    where: Literal["ours", "rivals"]
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Value:
    """A field of a child's JSON."""

    child: str
    field: str


@dataclass(frozen=True)
class Line:
    """One line of the table. With a rival, the ratio ours / rival meets the bar; without, our value does.

    A line without a bar is only reported.
    """

    benchmark: str
    title: str
    ours: Value
    rival: Value | None
    sense: Literal[">=", "<="]
    bar: float | None
    unit: str = ""


# Sides that are compared stand next to each other, so that a machine's slow minute falls on both.
CHILDREN: tuple[Child, ...] = (
    Child("ours_sgld", OURS, "ours", ("sgld",)),
    Child("scan_by_hand", "rivals/scan_by_hand.py", "ours"),
    Child("blackjax_sgld_scan", "rivals/blackjax_sgld_scan.py", "rivals"),
    Child("blackjax_sgld_loop", "rivals/blackjax_sgld_loop.py", "rivals"),
    Child("ours_sgld_cv", OURS, "ours", ("sgld_cv",)),
    Child("blackjax_sgld_cv", "rivals/blackjax_sgld_cv.py", "rivals"),
    Child("ours_ess", "ours_ess.py", "ours"),
    Child("ours_four_chains", OURS, "ours", ("four_chains",)),
    Child("blackjax_four_chains", "rivals/blackjax_four_chains.py", "rivals"),
    Child("ours_recompile", "ours_recompile.py", "ours"),
    Child("ours_scaling", "ours_scaling.py", "ours"),
)


WHOLE, SAMPLING = "steps_per_cpu_s", "sampling_steps_per_cpu_s"


def _speed(name: str, title: str, ours: str, rival: str, bar: float, field: str = WHOLE) -> Line:
    return Line(name, title, Value(ours, field), Value(rival, field), ">=", bar, "steps per CPU s")


def _at_most(name: str, title: str, child: str, field: str, bar: float | None, unit: str = "") -> Line:
    return Line(name, title, Value(child, field), None, "<=", bar, unit)


LINES: tuple[Line, ...] = (
    _speed("sgld", "SGLD / BlackJAX in a scan", "ours_sgld", "blackjax_sgld_scan", 2.5),
    _speed("sgld", "SGLD / BlackJAX's documented loop", "ours_sgld", "blackjax_sgld_loop", 8.0),
    _speed("sgld", "SGLD / scan by hand, the whole call", "ours_sgld", "scan_by_hand", 0.9),
    _speed("sgld", "SGLD / scan by hand, set-up apart", "ours_sgld", "scan_by_hand", 0.9, SAMPLING),
    _speed(
        "sgld_cv", "SGLD-CV / BlackJAX's in a scan, set-up apart", "ours_sgld_cv", "blackjax_sgld_cv", 2.5, SAMPLING
    ),
    _speed("four_chains", "four chains / vmapped BlackJAX", "ours_four_chains", "blackjax_four_chains", 3.5),
    Line(
        "ess",
        "SGLD-CV effective draws, bias <= 3 % / BlackJAX's",
        Value("ours_ess", "best_ess_per_cpu_s"),
        Value("blackjax_sgld_cv", "ess_per_cpu_s"),
        ">=",
        4.0,
        "per CPU s",
    ),
    _at_most("lines", "lines the user writes, SGLD", "ours_sgld", "lines", 6),
    _at_most("lines", "lines the user writes, SGLD-CV", "ours_sgld_cv", "lines", 6),
    _at_most("compile", "compile, SGLD", "ours_sgld", "compile_cpu_s", 2.5, "CPU s"),
    _at_most("compile", "compile, SGLD-CV", "ours_sgld_cv", "compile_cpu_s", 2.5, "CPU s"),
    _at_most("recompile", "compilations for another step size", "ours_recompile", "step_size", 0),
    _at_most("recompile", "compilations for another seed", "ours_recompile", "seed", 0),
    _at_most("recompile", "compilations for another number of draws", "ours_recompile", "num_samples", 0),
    _at_most("scaling", "SGLD-CV step time, N = 1e4..1e7, max / min", "ours_scaling", "step_time_ratio", 1.3),
    _at_most("scaling", "SGLD-CV set-up, N = 1e7, in passes", "ours_scaling", "setup_in_passes_10000000", 3.0),
    _at_most("scaling", "  passes that the run reports", "ours_scaling", "passes_reported_10000000", None),
)

BENCHMARKS: tuple[str, ...] = tuple(dict.fromkeys(line.benchmark for line in LINES))


def select(only: list[str] | None) -> tuple[list[Child], list[Line]]:
    """The lines of the named benchmarks (all when None) and the children that they need, in suite order."""
    lines = [line for line in LINES if only is None or line.benchmark in only]
    needed = {value.child for line in lines for value in (line.ours, line.rival) if value is not None}
    return [child for child in CHILDREN if child.name in needed], lines
