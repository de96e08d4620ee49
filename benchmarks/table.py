"""The ratio table: with rich where it is installed, else in plain text."""

from __future__ import annotations

from typing import Any

from suite import Line, Value

HEADINGS = ("line", "ours", "rival", "ratio", "bar", "met?")


def _lookup(results: dict[str, dict[str, Any]], value: Value | None) -> float | None:
    if value is None:
        return None
    return results.get(value.child, {}).get(value.field)


def _number(value: float | None, unit: str = "") -> str:
    if value is None:
        return "-"
    if float(value).is_integer() and abs(value) < 1e4:
        text = f"{int(value)}"
    else:
        text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{text} {unit}".strip()


def rows(lines: list[Line], results: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Every line with its numbers; ``met`` is None without a bar, or where a child gave nothing."""
    table = []
    for line in lines:
        ours, rival = _lookup(results, line.ours), _lookup(results, line.rival)
        ratio = ours / rival if ours is not None and rival else None
        judged = ours if line.rival is None else ratio
        met = None if judged is None else _meets(judged, line)
        table.append({"line": line, "ours": ours, "rival": rival, "ratio": ratio, "met": met})
    return table


def _meets(value: float, line: Line) -> bool | None:
    if line.bar is None:
        return None
    return value >= line.bar if line.sense == ">=" else value <= line.bar


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    line: Line = row["line"]
    bar = "-" if line.bar is None else f"{line.sense} {line.bar:g}" + (" x" if line.rival is not None else "")
    ratio = "-" if row["ratio"] is None else f"{row['ratio']:.2f} x"
    met = "-" if line.bar is None else {None: "?", True: "yes", False: "NO"}[row["met"]]
    return line.title, _number(row["ours"], line.unit), _number(row["rival"]), ratio, bar, met


def show(table: list[dict[str, Any]]) -> None:
    """Print the table."""
    cells = [_cells(row) for row in table]
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        widths = [max(len(r[i]) for r in [HEADINGS, *cells]) for i in range(len(HEADINGS))]
        for r in [HEADINGS, *cells]:
            print("  ".join(text.ljust(width) for text, width in zip(r, widths, strict=True)).rstrip())
        return
    pretty = Table(*HEADINGS)
    for r in cells:
        pretty.add_row(*r, style="red" if r[-1] == "NO" else None)
    console = Console()
    Console(width=max(console.width, 120)).print(pretty)
