"""What can be stored, and in which precision; errors name the place of invalid rows and the fix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scirocco.errors import InvalidTypeError, InvalidValueError

_FIXES = {
    "U": "text: encode it as numbers (0, 1, 2, ...)",
    "S": "text: encode it as numbers (0, 1, 2, ...)",
    "T": "text: encode it as numbers (0, 1, 2, ...)",
    "O": "Python objects (text, missing values or ragged lists): encode them as numbers",
    "M": "dates: convert them to numbers, e.g. days since the first one",
    "m": "time differences: convert them to numbers, e.g. seconds",
    "c": "complex numbers: store real and imaginary parts as two arrays",
    "V": "records or an unknown kind of number: store each field as a separate array",
}


def check_kind(dtype: np.dtype, name: str) -> None:
    """Raise an error for everything except real numbers and booleans."""
    if dtype.kind not in "fiub":
        fix = _FIXES.get(dtype.kind, "values that are not real numbers: encode it")
        raise InvalidTypeError(f"{name} has dtype {dtype}, which holds {fix} first, or omit it.")


def stored_dtype(dtype: np.dtype, precision: str) -> np.dtype:
    """The dtype on disk: 32-bit floats and integers, unless double precision was requested."""
    double = precision == "float64"
    if dtype.kind == "f":
        return np.dtype("<f8" if double else "<f4")
    if dtype.kind in "iu" and dtype.itemsize == 8:
        return np.dtype("<i8" if double else "<i4")
    return dtype.newbyteorder("<")


def check_precision(dtype: Any) -> str:
    """`float32` (also for None) or `float64`."""
    try:
        name = np.dtype(np.float32 if dtype is None else dtype).name
    except TypeError:
        name = ""
    if name not in ("float32", "float64"):
        raise InvalidValueError(
            f"`dtype` must be 'float32' (the default) or 'float64' (keeps 64 bits), got {dtype!r}."
        )
    return name


def to_stored(
    rows: np.ndarray, dtype: np.dtype, name: str, first_row: int, columns: Sequence[str] = ()
) -> np.ndarray:
    """Rows in the dtype on disk, after a check of every value.

    Messages name the array, count rows from `first_row`, and name the columns that were stacked into the array.
    """
    if rows.dtype.kind == "f":
        _check_finite(rows, name, first_row, columns)
    if dtype == rows.dtype:
        return rows
    if dtype.kind in "iu" and rows.dtype.kind in "iu" and rows.size:
        limits = np.iinfo(dtype)
        if rows.max() > limits.max or rows.min() < limits.min:
            wide = (rows > limits.max) | (rows < limits.min)
            raise InvalidValueError(
                f"{_place(wide, name, first_row, columns)} is {rows[wide].flat[0]}, beyond {8 * dtype.itemsize} bits. "
                "Recode it (identifiers as 0, 1, 2, ...), omit it, or keep 64 bits with dtype='float64'."
            )
    with np.errstate(over="ignore"):
        stored = rows.astype(dtype)
    if dtype.kind == "f" and not _all_finite(stored):
        wide = ~np.isfinite(stored)
        raise InvalidValueError(
            f"{_place(wide, name, first_row, columns)} is {rows[wide].flat[0]:.3g}, beyond the range of float32 "
            "(3.4e38). Rescale it, or keep 64 bits with dtype='float64'."
        )
    return stored


def _all_finite(rows: np.ndarray) -> bool:
    with np.errstate(all="ignore"):  # a finite sum proves finite entries in one fast pass
        return bool(np.isfinite(np.sum(rows))) or bool(np.all(np.isfinite(rows)))


def _check_finite(rows: np.ndarray, name: str, first_row: int, columns: Sequence[str]) -> None:
    if _all_finite(rows):
        return
    bad = ~np.isfinite(rows)
    count = int(bad.sum())
    raise InvalidValueError(
        f"{_place(bad, name, first_row, columns)} is NaN or infinite ({count} such value{'s' * (count > 1)} in the "
        f"first {first_row + len(rows):,} rows). Drop these rows or impute the values first."
    )


def _place(bad: np.ndarray, name: str, first_row: int, columns: Sequence[str]) -> str:
    """Describe where the first marked value is."""
    where = [int(i) for i in np.argwhere(bad)[0]]
    row, inside = first_row + where[0], where[1:]
    if len(inside) == 1 and len(columns) == bad.shape[1]:
        return f"{name}, column `{columns[inside[0]]}`, row {row} (counted from 0)"
    index = f", index {tuple(inside)}" if inside else ""
    return f"{name}, row {row} (counted from 0){index}"
