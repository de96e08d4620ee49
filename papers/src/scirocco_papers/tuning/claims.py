"""What `tuning` says about the library's promises."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from scirocco_papers.base import Claim, error_of, in_errors

MEAN_BAR, SD_BAR, KSD_BAR, TIME_BAR = 0.15, 0.15, 1.2, 0.5
"""Error of a mean in sds; of an sd, relative; discrepancy over the best of a grid; time of a setting over a run's."""


def good(found: dict[str, Any]) -> bool:
    """Whether means and standard deviations are near enough to NUTS'."""
    return not found["diverged"] and found["mean_error"] <= MEAN_BAR and abs(found["sd_ratio"] - 1.0) <= SD_BAR


def ksd_ratio(row: dict[str, Any]) -> float:
    """Discrepancy of `auto` over that of the best point of the grid; of a quick run, the means of runs made again."""
    if "again" in row and not row["auto"]["diverged"]:
        ratio = np.mean(_again(row, "auto", "ksd")) / np.mean(_again(row, "grid", "ksd"))
    else:
        ratio = row["auto"]["ksd"] / row["grid"]["ksd"]
    return math.inf if math.isnan(ratio) else float(ratio)


def _again(row: dict[str, Any], method: str, what: str) -> list[float]:
    return [found[what] for found in row["again"][method]]


def _ksd_room(row: dict[str, Any]) -> tuple[float, float]:
    """How far the logarithm of the ratio is below its limit, and its standard error over the runs made again."""
    errors = (error_of(np.log(_again(row, method, "ksd"))) for method in ("auto", "grid"))
    return math.log(KSD_BAR / ksd_ratio(row)), math.hypot(*errors)


def _moment_room(row: dict[str, Any]) -> list[tuple[float, float]]:
    """How far the errors of a run of `auto` are below their limits, and their sds over the runs made again."""
    auto = row["auto"]
    room = {"mean_error": MEAN_BAR - auto["mean_error"], "sd_ratio": SD_BAR - abs(auto["sd_ratio"] - 1.0)}
    return [(gap, float(np.std(_again(row, "auto", what), ddof=1))) for what, gap in room.items()]


def seconds_each(rows: list[dict[str, Any]], kind: str) -> float:
    """CPU seconds for one step size, of the search or of the grid."""
    return float(np.mean([row[kind]["seconds"]["cpu"] / row[kind]["num_settings"] for row in rows]))


def judge(rows: list[dict[str, Any]]) -> list[Claim]:
    """The library's promises."""
    autos = [row["auto"] for row in rows]
    wanted = len(rows) - len(rows) // 10
    near, plain_near = (sum(good(row[method]) for row in rows) for method in ("auto", "plain"))
    diverged = [row["name"] for row in rows if row["auto"]["diverged"]]
    worst = max(rows, key=ksd_ratio)
    search, grid = (seconds_each(rows, kind) for kind in ("search", "grid"))
    errors = [auto["mean_error"] for auto in autos]
    ratios = [auto["sd_ratio"] for auto in autos]
    known = [row for row in rows if "again" in row and not row["auto"]["diverged"]]
    claims = [
        Claim(
            '`step_size="auto"` does not diverge, whatever the units of the parameters.',
            f"{len(rows) - len(diverged)} of {len(rows)} posteriors" + "".join(f"; not {n}" for n in diverged),
            "no chain of any leaves the finite numbers",
            not diverged,
        ),
        Claim(
            "With control variates its posterior means and standard deviations are those of NUTS.",
            f"{near} of {len(rows)}; worst error of a mean {max(errors):.3f} sd, sds {min(ratios):.3f} to "
            f"{max(ratios):.3f} of NUTS'",
            f"means within {MEAN_BAR} sd and sds within {SD_BAR:.0%} on {wanted} at least",
            near >= wanted,
            margin=in_errors(*(part for row in known for part in _moment_room(row))) if known else None,
        ),
        Claim(
            "The step size it chooses is as good as the best of a grid.",
            "Stein discrepancy over that of the best grid point: "
            + ", ".join(f"{ksd_ratio(row):.2f}" for row in rows)
            + f" (worst: {worst['name']})",
            f"at most {KSD_BAR} on every posterior",
            ksd_ratio(worst) <= KSD_BAR,
            margin=in_errors(*map(_ksd_room, known)) if known else None,
        ),
        Claim(
            "Settings that run side by side and drop out early cost a fraction of runs one by one.",
            f"CPU s a step size: {search:.3f} in the search, {grid:.2f} as a run of its own (mean over the posteriors)",
            f"at most {TIME_BAR:g} of a run",
            search <= TIME_BAR * grid,
        ),
        Claim(
            "No single step size suits badly scaled posteriors: the coordinates have to be changed.",
            f"the best step size of plain SGLD is near enough on {plain_near} of {len(rows)}, `auto` on {near}",
            "near enough (as above) on fewer than half, and fewer than `auto`",
            plain_near < min(len(rows) / 2, near),
        ),
    ]
    return [dataclasses.replace(claim, ours=True) for claim in claims]


def notes(rows: list[dict[str, Any]]) -> list[str]:
    """What is nobody's promise."""
    over_nuts = [row["auto"]["ksd"] / row["nuts_ksd"] for row in rows]
    first = [row["auto"]["seconds"]["wall"] for row in rows]
    again = [row["search"]["seconds"]["wall"] for row in rows]
    chosen = [row["auto"]["step_size"] for row in rows if row["search"]["preconditioned"]]
    spread = f", {min(chosen):.2g} to {max(chosen):.2g} in round coordinates" if chosen else ""
    return [
        f"Step sizes chosen{spread}; condition numbers go from {min(r['condition'] for r in rows):.2g} to "
        f"{max(r['condition'] for r in rows):.2g}.",
        f"The discrepancy of `auto` is {min(over_nuts):.2f} to {max(over_nuts):.2f} times that of as many NUTS draws.",
        f"A whole search over {rows[0]['search']['num_settings']} step sizes takes "
        f"{min(again):.1f} to {max(again):.1f} s when it is compiled.",
        f"A first call of `auto` takes {np.median(first):.0f} s (median; {max(first):.0f} s at most), nearly all of it "
        "compiling: the search compiles more programs than a plain run, so for one short run on small data a grid of a "
        "few points is done sooner.",
    ]
