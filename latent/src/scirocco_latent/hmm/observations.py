"""Checks of observations: labels, real numbers, counts; each may be missing."""

from __future__ import annotations

from typing import Any

import numpy as np

from scirocco.data.values import missing
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco_latent.hmm.series import Array, SeriesData

_MOST_COUNT = 2**53


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
            values = np.array(
                [[np.nan if missing(v) else float(v) for v in np.atleast_1d(row)] for row in values]
            )
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
        raise InvalidValueError(
            f"{many} infinite, the first at {_where(given, bad[0])}. Use NaN for missing values."
        )
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
