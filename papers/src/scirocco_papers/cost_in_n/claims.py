"""What `cost-in-n` says about the thesis' sentences, and its figure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from scirocco_papers.base import Claim, in_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("sgld", "sgld_cv")
STEP, FIRST = math.log(2) / 2, 0.17
"""What chance has in the logarithm of a cost. The moments of 600 chains decide which of two neighbouring batch sizes
reaches the accuracy: a step of the grid, unless there is no smaller one. And when it is reached: their sds are known to
0.03, and the sd of a direction grows from 0.87 to 0.93 in a third of the time in which it grows to 0.9."""


def slope(table: list[dict[str, Any]], values: list[float]) -> float:
    """The slope of the logarithm of a value in the logarithm of N."""
    sizes = np.log([row["num_rows"] for row in table])
    return float(np.polyfit(sizes, np.log(values), 1)[0])


def chance(found: dict[str, Any]) -> float:
    """The standard error of the logarithm of a cost."""
    return math.hypot(FIRST, STEP if found["batch_size"] > 1 else 0.0)


def judge(table: list[dict[str, Any]], accuracy: float) -> list[Claim]:
    """The thesis' sentences."""
    costs = {method: [row[method]["rows"] for row in table] for method in METHODS}

    def shown(method: str) -> str:
        pairs = zip(costs[method], table, strict=True)
        return ", ".join(f"{cost:,.0f} at N = {row['num_rows']:,}" for cost, row in pairs)

    def room(method: str, low: float, high: float) -> tuple[float, float]:
        """How far the exponent is inside these limits, and its standard error."""
        if not all(map(math.isfinite, costs[method])):
            return -math.inf, 1.0
        sizes = np.log([row["num_rows"] for row in table])
        weights, found = sizes - sizes.mean(), slope(table, costs[method])
        error = np.linalg.norm(weights * [chance(row[method]) for row in table]) / (weights @ weights)
        return min(found - low, high - found), float(error)

    def grows(method: str, low: float, high: float) -> bool:
        return all(map(math.isfinite, costs[method])) and low <= slope(table, costs[method]) <= high

    plain, reduced = (slope(table, [row[key] for row in table]) for key in ("noise", "noise_cv"))
    return [
        Claim(
            "The computational cost of SGLD-CV will be bounded by a constant (conditions: Corollary 3.3.8).",
            f"rows for an error of {accuracy}: {shown('sgld_cv')}",
            "at every N at most 4 times that of the smallest N, and no trend of more than N^0.2",
            max(costs["sgld_cv"]) <= 4 * costs["sgld_cv"][0] and grows("sgld_cv", -1.0, 0.2),
            margin=in_errors(
                room("sgld_cv", -1.0, 0.2),
                (
                    math.log(4 * costs["sgld_cv"][0]) - math.log(max(costs["sgld_cv"])),
                    2**0.5 * max(chance(row["sgld_cv"]) for row in table),
                ),
            ),
        ),
        Claim(
            "There are empirical results that suggest a linear computational cost for SGLD.",
            f"rows for an error of {accuracy}: {shown('sgld')}",
            "grows like N^0.7 to N^1.3",
            grows("sgld", 0.7, 1.3),
            margin=in_errors(room("sgld", 0.7, 1.3)),
        ),
        Claim(
            "The variance of the simple estimator will be O(N²), that of SGLD-CV O(N): an O(N) reduction in variance.",
            f"E|ξ|² over the posterior, exact: N^{plain:.3f} and N^{reduced:.3f}",
            "exponents within 0.05 of 2 and 1",
            abs(plain - 2) <= 0.05 and abs(reduced - 1) <= 0.05,
        ),
    ]


def notes(table: list[dict[str, Any]], accuracy: float) -> list[str]:
    """What is nobody's claim."""
    last = table[-1]
    plain, centred = last["sgld"], last["sgld_cv"]
    return [
        f"At N = {last['num_rows']:,} SGLD-CV is within {accuracy} of the posterior after {centred['num_steps']} steps "
        f"with batches of {centred['batch_size']}, SGLD after {plain['num_steps']} with batches of "
        f"{plain['batch_size']:,}. The set-up of SGLD-CV, two passes over the data or more, is then nearly all that it "
        "costs; it is paid once, the rows of SGLD for every independent draw.",
        f"The theory's bound is sufficient, not sharp: {last['theory']['sgld_cv']:.2g} rows for SGLD-CV at every N.",
    ]


def draw(figure: Figure, table: list[dict[str, Any]], accuracy: float) -> None:
    """Costs on the left, gradient noise on the right."""
    figure.set_size_inches(10, 4)
    left, right = figure.subplots(1, 2)
    sizes = [row["num_rows"] for row in table]
    colours = {"sgld": "black", "sgld_cv": "#d55e00"}
    labels = {"sgld": "SGLD", "sgld_cv": "SGLD-CV"}
    for method in METHODS:
        how = {"color": colours[method]}
        left.plot(sizes, [row[method]["rows"] for row in table], "o-", label=labels[method], **how)
        left.plot(sizes, [row["theory"][method] for row in table], ":", label=f"{labels[method]}, theory", **how)
        key = "noise" if method == "sgld" else "noise_cv"
        right.plot(sizes, [row[key] for row in table], "o-", label=labels[method], **how)
    left.plot(sizes, 2 * np.array(sizes), "--", color="grey", linewidth=0.8, label="set-up of SGLD-CV, two passes")
    left.set(title=f"Rows visited for an error of {accuracy} sd", ylabel="K n")
    right.set(title="Gradient noise of one row, over the posterior", ylabel="E|ξ|²")
    for axes in (left, right):
        axes.set(xscale="log", yscale="log", xlabel="number of observations N")
        axes.set_ylim(top=axes.get_ylim()[1] * 30)  # room for the legend
        axes.legend(loc="upper left", ncols=2)
