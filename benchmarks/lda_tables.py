"""Tables of the topic-model comparison: a line for each side, a column for each mark, means over the seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Result = dict[str, Any]
FORMS = {"perplexity": "", "state": ", last state alone", "predictions": ", averaged predictions"}


def show(results: Sequence[Result], wikipedia: bool) -> None:
    """Perplexities at marks of time, ours over the best rival's; and for Wikipedia at numbers of documents."""
    seeds = ", ".join(str(result["seed"]) for result in results)
    where = f"{'Wikipedia' if wikipedia else 'synthetic corpus'}, seed{'s' * (len(results) > 1)} {seeds}"
    reference = {name: np.mean([result["reference"][name] for result in results]) for name in results[0]["reference"]}
    print(f"\n{where}: " + ", ".join(f"{name} {value:,.0f}" for name, value in reference.items()))
    lines, clock = _by_time(results)
    _print(f"perplexity at {clock} s", lines)
    if wikipedia:
        _print("perplexity by documents; ours: 30 s with these alone", _by_documents(results))


def _print(title: str, lines: dict[str, dict[float, float]]) -> None:
    marks = sorted({mark for line in lines.values() for mark in line})
    if not marks:
        return
    table = [[title, *(f"{mark:,g}" for mark in marks)]]
    table += [[name, *(_number(line.get(mark), 1) for mark in marks)] for name, line in lines.items()]
    rivals = [line for name, line in lines.items() if not name.startswith("ours")]
    for name, line in lines.items():
        if not name.startswith("ours") or not rivals:
            continue
        ratios = {}
        for mark in marks:
            best = min((rival[mark] for rival in rivals if mark in rival), default=None)
            if best is not None and mark in line:
                ratios[mark] = line[mark] / best
        if ratios:
            lower = all(ratio < 1 for ratio in ratios.values())
            verdict = "lower at every mark" if lower else "NOT lower at every mark"
            table.append([f"{name} / best rival ({verdict})", *(_number(ratios.get(mark), 3) for mark in marks)])
    widths = [max(len(row[place]) for row in table) for place in range(len(table[0]))]
    for row in table:
        print("  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]))
    print(flush=True)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _by_time(results: Sequence[Result]) -> tuple[dict[str, dict[float, float]], str]:
    """Name and mark to perplexity; other forms of our topics are lines of their own."""
    sides = [
        (name, rows)
        for result in results
        for name, rows in result["sides"].items()
        if rows and not name.rpartition("_")[2].isdigit()
    ]
    timed = [row for _, rows in sides for row in rows if row["kind"] != "documents"]
    clock = timed[0]["kind"] if timed else "cpu"
    found: dict[str, dict[float, list[float]]] = {}
    for name, rows in sides:
        for mark in {row["mark"] for row in timed}:
            row = _at(rows, mark, clock)
            for key, what in FORMS.items():
                if row is not None and key in row:
                    found.setdefault(name + what, {}).setdefault(mark, []).append(row[key])
    return _means(found), clock


def _at(rows: Sequence[Result], mark: float, clock: str) -> Result | None:
    """The row of a mark; of a side that ended before (one pass), its last one."""
    for row in rows:
        if row["kind"] == clock and row["mark"] == mark:
            return row
    before = [row for row in rows if row[f"{clock}_s"] <= mark]
    ended = bool(before) and len(before) == len(rows)
    return max(before, key=lambda row: row[f"{clock}_s"]) if ended else None


def _by_documents(results: Sequence[Result]) -> dict[str, dict[float, float]]:
    found: dict[str, dict[float, list[float]]] = {}
    for result in results:
        for name, rows in result["sides"].items():
            side, _, number = name.rpartition("_")
            for row in rows or ():
                if number.isdigit():
                    found.setdefault(side, {}).setdefault(float(number), []).append(row["perplexity"])
                elif row["kind"] == "documents":
                    found.setdefault(name, {}).setdefault(row["mark"], []).append(row["perplexity"])
    return _means(found)


def _means(found: dict[str, dict[float, list[float]]]) -> dict[str, dict[float, float]]:
    return {name: {mark: float(np.mean(values)) for mark, values in line.items()} for name, line in found.items()}
