"""The table of a summary: a pandas data frame printed within 80 columns with both ends of the interval; and HTML."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np

from scirocco._extras import require
from scirocco.diagnostics.columns import Columns, Leaf
from scirocco.diagnostics.measures import summarise
from scirocco.drawing.markup import Html, join, shorten, tag

_UNKNOWN = 4  # digits where the error is not known
_MOST_DECIMALS, _LARGE = 6, 1e15  # beyond these, powers of ten
_WIDTH, _LEAST_NAME, _ROOM_FOR_NAMES = 80, 12, 24  # characters
_MOST_ROWS, _ENDS = 60, 5  # rows printed; rows at each end of more
_MOST_IN_HTML = 12  # parameters in the short table
_LEFT_OUT_FIRST = ("mcse_mean", "ess_tail")
"""Columns that a narrow page can do without, in this order; never the ends of the interval."""


def summary_frame(frame: Any, note: str = "") -> Any:
    """The pandas data frame, to be printed within 80 columns; what is made of it is an ordinary one.

    `note` is printed below the table, and is in `frame.attrs["note"]`.
    """
    made = _frame_class()(frame)
    if note:
        made.attrs["note"] = note
    return made


def html_summary(leaves: Mapping[str, Leaf], group_size: int = 1) -> Html:
    """The main numbers of a summary of draws (chain, draw, ...) as a table for notebooks: the first parameters."""
    columns = Columns(leaves)
    some = columns.select(np.arange(min(columns.total, _MOST_IN_HTML)))
    found = summarise(some.values, (0.05, 0.95), group_size)
    low, high = found["quantiles"]
    shown = {"mean": found["mean"], "sd": found["sd"], "5%": low, "95%": high}
    shown |= {"ess_bulk": found["ess_bulk"], "r_hat": found["r_hat"]}
    right, left = "text-align:right;padding:2px 8px", "text-align:left"
    head = tag("tr", tag("th"), *(tag("th", name, style=right) for name in shown))
    body = [
        tag(
            "tr",
            tag("th", label, style=left),
            *(
                tag("td", _number(float(v[k]), name, float(found["mcse_mean"][k])), style=right)
                for name, v in shown.items()
            ),
        )
        for k, label in enumerate(some.names)
    ]
    more = columns.total - len(some.names)
    note = [tag("p", f"and {more:,} more parameters: summary() has all")] if more else []
    return join([tag("table", tag("thead", head), tag("tbody", *body)), *note])


def _frame_class() -> Any:
    """`SummaryFrame`, made when it is first used: importing pandas is slow, and it is optional."""
    if "SummaryFrame" not in globals():
        pandas = require("pandas", "run.summary()")

        def show(frame: Any) -> str:
            return "\n".join([*_lines(frame), *textwrap.wrap(frame.attrs.get("note", ""), _WIDTH)])

        members = {
            "__doc__": "A pandas data frame, printed within 80 columns.",
            "__module__": __name__,
            "__repr__": show,
            "_repr_html_": _html,
        }
        globals()["SummaryFrame"] = type("SummaryFrame", (pandas.DataFrame,), members)
    return globals()["SummaryFrame"]


def _html(frame: Any) -> Html:
    """For notebooks: the digits of the printed table, and the note below it."""
    errors, words = _errors(frame), frame.astype(object)
    half = _MOST_ROWS // 2
    for place in {*range(min(half, len(frame))), *range(max(0, len(frame) - half), len(frame))}:
        for k, name in enumerate(frame.columns):
            words.iloc[place, k] = _number(frame.iloc[place, k], str(name), errors[place])
    table = words.to_html(max_rows=_MOST_ROWS, border=0, notebook=True)
    note = frame.attrs.get("note", "")
    return join([Html(table), *([tag("p", note)] if note else [])])


def __getattr__(name: str) -> Any:
    if name == "SummaryFrame":  # pickle asks for it
        return _frame_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _errors(frame: Any) -> list[float]:
    """The Monte Carlo error of each row; NaN if the table has none."""
    return list(frame["mcse_mean"]) if "mcse_mean" in frame.columns else [math.nan] * len(frame)


def _lines(frame: Any) -> list[str]:
    """The rows with the columns that fit; long names are shortened, rows in the middle of many left out."""
    count = len(frame)
    if count > _MOST_ROWS:
        places = [*range(_ENDS), *range(count - _ENDS, count)]
    else:
        places = list(range(count))
    names, errors = ["", *(str(frame.index[place]) for place in places)], _errors(frame)
    columns = [
        [str(name), *(_number(frame.iloc[place, k], str(name), errors[place]) for place in places)]
        for k, name in enumerate(frame.columns)
    ]
    widths = [max(map(len, column)) for column in columns]
    kept, longest = list(range(len(columns))), max(map(len, names))
    for name in _LEFT_OUT_FIRST:
        if min(longest, _ROOM_FOR_NAMES) + sum(widths[k] + 2 for k in kept) > _WIDTH:
            kept = [k for k in kept if frame.columns[k] != name]
    room = max(_LEAST_NAME, _WIDTH - sum(widths[k] + 2 for k in kept))
    names = [shorten(name, room) for name in names]
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


def rounded(frame: Any, digits: int) -> Any:
    """A summary rounded to significant digits, but never coarser than the first digit of the Monte Carlo errors."""
    error = frame["mcse_mean"].to_numpy()
    finest = np.where((error > 0) & np.isfinite(error), error, np.inf)
    out = frame.copy()
    for name in frame.columns:
        values = frame[name].to_numpy()
        if name.startswith("ess"):
            out[name] = [float(f"{value:.{digits}g}") for value in values.round()]
            continue
        least = np.full(len(values), np.inf) if name in ("mcse_mean", "r_hat") else finest
        out[name] = [_nearest(*pair, digits) for pair in zip(values, least, strict=True)]
    return out


def _nearest(value: float, error: float, digits: int) -> float:
    if not math.isfinite(value) or value == 0:
        return float(value)
    place = min(math.floor(math.log10(abs(value))) - digits + 1, _place_of(error))
    return float(f"{value:.{-place}f}") if place < 0 else float(round(value, -place))


def _place_of(error: float) -> int:
    """The power of ten of the first digit of an error."""
    return math.floor(math.log10(error)) if math.isfinite(error) else 400


def supported(value: float, error: float) -> str:
    """A number with the digits that its Monte Carlo error supports: down to the first digit of the error.

    Examples
    --------
    >>> supported(1.23456, 0.0312), supported(1e9 + 0.25, 0.01), supported(23456.7, 1234.0)
    ('1.23', '1000000000.25', '23000')
    """
    value = float(value)
    if not math.isfinite(value) or not (error > 0 and math.isfinite(error)):
        return f"{value:.{_UNKNOWN}g}"
    place = _place_of(error)
    if place < -_MOST_DECIMALS or abs(value) >= _LARGE:
        figures = max(0, math.floor(math.log10(max(abs(value), error))) - place)
        return f"{value:.{figures}e}"
    return f"{round(value, -place) + 0.0:.{max(0, -place)}f}"  # no -0


def _number(value: Any, column: str, error: float = math.nan) -> str:
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return str(value)
    if column.startswith("ess"):
        return f"{value:.0f}"
    if column == "r_hat":
        return f"{value:.3f}"
    return f"{value:.2g}" if column == "mcse_mean" else supported(value, error)
