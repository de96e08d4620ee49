"""The table of a summary: a pandas data frame that is printed within 80 columns, with both ends of the interval."""

from __future__ import annotations

import math
from typing import Any

from scirocco._extras import require

_WIDTH, _LEAST_NAME = 80, 12
_MOST_ROWS, _ENDS = 60, 5
_LEFT_OUT_FIRST = ("mcse_mean", "ess_tail")
"""Columns that a narrow page can do without, in this order; never the ends of the interval."""


def summary_frame(frame: Any) -> Any:
    """The pandas data frame, to be printed within 80 columns; what is made of it is an ordinary one."""
    return _frame_class()(frame)


def _frame_class() -> Any:
    """`SummaryFrame`, made when it is first used: importing pandas is slow, and it is optional."""
    if "SummaryFrame" not in globals():
        pandas = require("pandas", "run.summary()")

        def show(frame: Any) -> str:
            return "\n".join(_lines(frame))

        members = {
            "__doc__": "A pandas data frame, printed within 80 columns.",
            "__module__": __name__,
            "__repr__": show,
        }
        globals()["SummaryFrame"] = type("SummaryFrame", (pandas.DataFrame,), members)
    return globals()["SummaryFrame"]


def __getattr__(name: str) -> Any:
    if name == "SummaryFrame":  # pickle asks for it
        return _frame_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _lines(frame: Any) -> list[str]:
    """The rows with the columns that fit; long names are shortened, rows in the middle of many left out."""
    count = len(frame)
    if count > _MOST_ROWS:
        places = [*range(_ENDS), *range(count - _ENDS, count)]
    else:
        places = list(range(count))
    names = ["", *(str(frame.index[place]) for place in places)]
    columns = [
        [str(name), *(_number(frame.iloc[place, k], str(name)) for place in places)]
        for k, name in enumerate(frame.columns)
    ]
    widths = [max(map(len, column)) for column in columns]
    kept, longest = list(range(len(columns))), max(map(len, names))
    for name, least in zip(_LEFT_OUT_FIRST, (2 * _LEAST_NAME, _LEAST_NAME), strict=True):
        if min(longest, least) + sum(widths[k] + 2 for k in kept) > _WIDTH:
            kept = [k for k in kept if frame.columns[k] != name]
    room = max(_LEAST_NAME, _WIDTH - sum(widths[k] + 2 for k in kept))
    names = [_shortened(name, room) for name in names]
    first = max(map(len, names))
    rows = [
        name.ljust(first) + "".join(f"  {columns[k][row].rjust(widths[k])}" for k in kept)
        for row, name in enumerate(names)
    ]
    if count > _MOST_ROWS:
        rows.insert(1 + _ENDS, "...")
        rows.append(f"[{count} rows]")
    if len(kept) < len(columns):
        hidden = [str(name) for k, name in enumerate(frame.columns) if k not in kept]
        rows.append(f"Not shown: {', '.join(hidden)}.")
    return rows


def _shortened(name: str, most: int) -> str:
    """With an ellipsis in the middle, since names often differ at their end."""
    return name if len(name) <= most else f"{name[: most // 2]}…{name[-(most - most // 2 - 1) :]}"


def _number(value: Any, column: str) -> str:
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return str(value)
    return f"{value:.0f}" if column.startswith("ess") else f"{value:.4g}"
