"""Series as users have them: one array, a list of arrays of unequal lengths, or a table with the id of each series."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scirocco import _checks
from scirocco.data.values import Frame, Sparse, as_numpy, missing, named_columns
from scirocco.data.values import Series as Column
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models.inputs.files import read_table

_MOST_COUNT = 2**53  # whole numbers up to here are exact in double precision


def labels(values: Array) -> tuple[Array, Array]:
    """Labels, and which of them are missing (None or NaN)."""
    if values.ndim != 1:
        raise InvalidValueError(
            f"categorical emissions need series of one label per time, got {values.shape[1]} columns. Join the columns "
            "to one label, or fit one model per column."
        )
    if values.dtype.kind == "f":
        absent = np.isnan(values)
        if not np.array_equal(values[~absent], np.floor(values[~absent])) or np.isinf(values).any():
            raise InvalidValueError(
                'categories must be labels or whole numbers. For real numbers use emissions="gaussian".'
            )
        return np.where(absent, 0, values).astype(np.int64), absent
    if values.dtype.kind == "O":
        absent = np.array([missing(value) for value in values])
        seen = values[~absent]
        kinds = {type(value) for value in seen}
        if all(isinstance(value, (int, np.integer)) for value in seen):
            return np.where(absent, 0, values).astype(np.int64), absent
        if kinds and not all(issubclass(kind, str) for kind in kinds):
            raise InvalidTypeError(
                f"categories must be all strings or all integers, got {some(sorted(k.__name__ for k in kinds))}."
            )
        return np.where(absent, "", values).astype(str), absent
    return values, np.zeros(len(values), bool)


def real(given: SeriesData, width: int | None) -> Array:
    """Numbers (N, d); a row is complete or missing."""
    values = given.values
    if values.dtype.kind in "US" or values.dtype.kind == "O":
        try:
            values = np.array([[np.nan if missing(v) else float(v) for v in np.atleast_1d(row)] for row in values])
        except (TypeError, ValueError):
            raise InvalidTypeError(
                'the series contain labels, not numbers. For labels use emissions="categorical".'
            ) from None
    values = np.asarray(values, np.float64)
    values = values[:, None] if values.ndim == 1 else values
    if width is not None and values.shape[1] != width:
        raise InvalidValueError(f"the model was fitted to {width} columns, got {values.shape[1]}.")
    absent = np.isnan(values)
    some = np.flatnonzero(absent.any(axis=1) & ~absent.all(axis=1))
    if some.size:
        many = _count(some.size, "has", "have")
        raise InvalidValueError(
            f"{many} a value in some columns only, the first at {_where(given, some[0])}. An "
            "observation may be missing (NaN) in all columns: impute the values, or set the whole row to NaN."
        )
    bad = np.flatnonzero(np.isinf(values).any(axis=1))
    if bad.size:
        many = _count(bad.size, "is", "are")
        raise InvalidValueError(f"{many} infinite, the first at {_where(given, bad[0])}. Use NaN for missing values.")
    return values


def counts(values: Array) -> Array:
    """Check counts (N, d)."""
    seen = values[~np.isnan(values[:, 0])]
    bad = seen[(seen < 0) | (seen != np.floor(seen)) | (seen > _MOST_COUNT)]
    if bad.size:
        raise InvalidValueError(
            f'counts must be whole numbers >= 0, got {bad[0]:g}. For other numbers use emissions="gaussian".'
        )
    return values


def _count(number: int, one: str, many: str) -> str:
    return f"1 observation {one}" if number == 1 else f"{number:,} observations {many}"


def _where(given: SeriesData, place: int) -> str:
    if given.rows is not None:
        return f"row {given.rows[place]}"
    number = int(np.searchsorted(given.bounds, place, side="right")) - 1
    time = f"time {place - given.bounds[number]}"
    return f"{time} of series {number}" if given.is_list else time


def some(things: Any) -> str:
    """The first of some things, as text."""
    return ", ".join(str(thing) for thing in things[:8]) + (", ..." if len(things) > 8 else "")


Array = np.ndarray[Any, np.dtype[Any]]
SeriesLike = ArrayLike | Frame | list[Any] | tuple[Any, ...] | str | os.PathLike[str]
"""One series (time,) or (time, columns), a list of them, a data frame, or a file with a table."""
_DATE = re.compile(r"\d{4}-\d\d(-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?)?$")


class SeriesData(NamedTuple):
    """All observations, one series after the other."""

    values: Array
    """(N,), or (N, columns)."""
    bounds: Array
    """(series + 1,): series s is bounds[s] to bounds[s + 1]."""
    rows: Array | None
    """The row of each observation, for a table with ids."""
    is_list: bool
    names: tuple[str, ...] | None
    """Names of the columns of a table."""

    @property
    def num_series(self) -> int:
        """Number of series."""
        return len(self.bounds) - 1

    def shaped(self, found: Array) -> Any:
        """One value per observation, in the form of the input: an array, or a list of arrays."""
        if self.rows is not None:
            out = np.empty_like(found)
            out[self.rows] = found
            return out
        return np.split(found, self.bounds[1:-1]) if self.is_list else found


def read(series: SeriesLike, by: Any = None) -> SeriesData:
    """Read one or more series.

    `by`: the name of the column with the id of the series of each row, or one id per row. The rows of a series are in
    the order of time, but need not be next to each other.
    """
    if isinstance(series, (str, os.PathLike)):
        series = read_table(series)
    if isinstance(series, Sparse):
        raise InvalidTypeError("a series cannot be a sparse matrix: pass `matrix.toarray()`.")
    named = named_columns(series)
    if named is None and isinstance(series, Frame):
        named = {name: series[name] for name in series.columns}
    if named is not None:
        return _table(named, by)
    if by is not None:
        values = _one(series, "the series")
        return _grouped(values, _ids(by, len(values)), None)
    if isinstance(series, (list, tuple)) and any(_is_series(part) for part in series):
        return _several(list(series))
    values = _one(series, "the series")
    return SeriesData(values, np.array([0, len(values)]), None, False, None)


def _is_series(part: object) -> bool:
    return not isinstance(part, (str, bytes)) and (
        isinstance(part, (list, tuple, Column, Frame)) or np.ndim(part) > 0  # type: ignore[arg-type]
    )


def _several(parts: list[Any]) -> SeriesData:
    arrays = [_one(part, f"series {number}") for number, part in enumerate(parts)]
    widths = {array.shape[1:] for array in arrays}
    if len(widths) > 1:
        raise InvalidValueError(
            f"all series must have the same columns, got the shapes {some([a.shape for a in arrays])}."
        )
    kinds = {"number" if array.dtype.kind in "biuf" else "label" for array in arrays}
    if len(kinds) > 1:
        raise InvalidTypeError("some series contain numbers and others labels: pass one type.")
    bounds = np.cumsum([0, *(len(array) for array in arrays)])
    return SeriesData(np.concatenate(arrays), bounds, None, True, None)


def _one(values: Any, name: str) -> Array:
    array = as_numpy(values, name)
    if array.ndim not in (1, 2):
        if array.ndim == 0:
            raise InvalidTypeError(
                f"{name} must be an array (time,) or (time, columns), a list of them, a table or a file, got "
                f"{'None' if values is None else f'a {type(values).__name__}'}."
            )
        raise InvalidValueError(
            f"{name} must have the shape (time,) or (time, columns), got {array.shape}. Pass several series as a list."
        )
    if not array.size:
        raise InvalidValueError(f"{name} is empty: it has the shape {array.shape}.")
    if array.dtype.kind not in "biufOUS":
        dates = array.dtype.kind in "mM"
        raise InvalidTypeError(
            f"{name} must contain numbers or labels, got {'dates or times' if dates else f'dtype {array.dtype}'}."
            f"{' Observations are in the order of time: leave the times out.' if dates else ''}"
        )
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def _table(table: Mapping[Any, Any], by: Any) -> SeriesData:
    names, length = list(table), len(next(iter(table.values()), ()))
    ids = None
    if isinstance(by, str) and by not in names:
        raise InvalidValueError(f"`by`={by!r} is not a column of the table. It has {some(names)}.")
    if isinstance(by, str):
        ids = _ids(table[by], length)
        names.remove(by)
    elif by is not None:
        ids = _ids(by, length)
    if not names:
        raise InvalidValueError("the table has no column of observations.")
    columns = [as_numpy(table[name], f"column {name!r}") for name in names]
    if len(columns) > 1 and (times := _times(columns[0])) is not None:
        _check_order(times, ids, names[0])
        _checks.warn(f"column {names[0]!r} has times, and is left out: rows are in the order of time.")
        names, columns = names[1:], columns[1:]
    if len(columns) > 1:
        for name, column in zip(names, columns, strict=True):
            _check_number(column, name, names)
    values = _one(columns[0] if len(columns) == 1 else np.stack(columns, axis=1), "the table")
    told = tuple(str(name) for name in names)
    if ids is None:
        return SeriesData(values, np.array([0, len(values)]), None, False, told)
    return _grouped(values, ids, told)


def _times(column: Array) -> Array | None:
    """A column of times: dates of NumPy, or texts such as 2021-03-04; None if it is not one."""
    if column.dtype.kind in "mM":
        return column
    if column.dtype.kind not in "OU" or not all(isinstance(value, str) and _DATE.match(value) for value in column):
        return None
    try:
        return column.astype("U").astype("datetime64[s]")
    except ValueError:  # 2021-13-01
        return None


def _check_order(times: Array, ids: Array | None, name: Any) -> None:
    """Times of a series must not decrease."""
    rows = np.arange(len(times)) if ids is None else np.argsort(np.unique(ids, return_inverse=True)[1], kind="stable")
    same = np.ones(len(rows) - 1, bool) if ids is None else ids[rows[1:]] == ids[rows[:-1]]
    bad = np.flatnonzero(same & (times[rows[1:]] < times[rows[:-1]]))
    if bad.size:
        raise InvalidValueError(
            f"the rows must be in the order of time, but {name!r} decreases in row {rows[bad[0] + 1]}. Sort the table."
        )


def _check_number(column: Array, name: Any, names: list[Any]) -> None:
    """Several columns of observations are numbers; one that is not is often a time or an id."""
    if column.dtype.kind in "biuf":
        return
    for value in column if column.dtype.kind in "OUS" else column[:1]:
        try:
            fine = missing(value) or np.isfinite(float(value))
        except (TypeError, ValueError):
            fine = False
        if not fine:
            others = [other for other in names if other != name]
            raise InvalidTypeError(
                f"column {name!r} of the table contains {str(value)!r}, not a number. Leave out times and ids: "
                f"table[{others[:3]!r}], on the command line --columns {','.join(map(str, others[:3]))}. Pass an id "
                "of series as `by`."
            )


def _ids(by: Any, length: int) -> Array:
    ids = as_numpy(by, "`by`")
    if ids.ndim != 1 or len(ids) != length:
        raise InvalidValueError(f"`by` must have one id per observation ({length:,}), got the shape {ids.shape}.")
    bad = [n for n, value in enumerate(ids) if missing(value)] if ids.dtype.kind in "fO" else []
    if bad:
        raise InvalidValueError(f"`by` is missing in {len(bad):,} rows, the first is row {bad[0]}.")
    return ids


def _grouped(values: Array, ids: Array, names: tuple[str, ...] | None) -> SeriesData:
    """Series in the order of their first rows."""
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    number = rank[inverse.reshape(-1)]
    rows = np.argsort(number, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(number, minlength=len(first)))])
    return SeriesData(values[rows], bounds, rows, False, names)
