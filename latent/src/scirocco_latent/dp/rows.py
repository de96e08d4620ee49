"""Conversion of user tables to arrays for compiled code; nothing is rounded, clamped or dropped."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np

from scirocco.data.values import Frame, Sparse, as_csr, as_numpy
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models.inputs.tables import TableLike as Table
from scirocco.models.inputs.tables import numbers

Array = np.ndarray[Any, np.dtype[Any]]

_FITS = 2**31 - 1  # largest sum of counts in the kernels' integers
_HUGE = 1e150  # squares of larger numbers overflow


class CountRows(NamedTuple):
    """Whole counts of categories, a CSR matrix."""

    indptr: Array
    indices: Array
    counts: Array
    width: int

    @property
    def num_rows(self) -> int:
        """Number of rows, including empty ones."""
        return len(self.indptr) - 1

    @property
    def data(self) -> tuple[Array, Array, Array]:
        """Arrays for compiled code."""
        return self.indptr, self.indices, self.counts

    def take(self, rows: Array) -> CountRows:
        """Some rows."""
        lengths = np.diff(self.indptr)[rows]
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        entries = np.repeat(self.indptr[:-1][rows] - indptr[:-1], lengths) + np.arange(indptr[-1])
        return CountRows(indptr, self.indices[entries], self.counts[entries], self.width)

    def lengths(self) -> Array:
        """Σ_w x_w of each row."""
        total = np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)])
        return total[self.indptr[1:]] - total[self.indptr[:-1]]


class RealRows(NamedTuple):
    """Real numbers, a matrix."""

    values: Array

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.values)

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self.values.shape[1])

    def take(self, rows: Array) -> RealRows:
        """Some rows."""
        return RealRows(self.values[rows])


Rows = CountRows | RealRows
RowsT = TypeVar("RowsT", CountRows, RealRows)


def count_rows(X: Table, width: int | None = None) -> CountRows:
    """Counts of categories from a SciPy sparse matrix or a table of whole numbers.

    `width`: the number of categories that the model was fitted with; a different number raises an error.
    """
    if isinstance(X, Sparse):
        matrix = as_csr(X, "`X`")
        values = matrix.data
        indptr, indices, shape = matrix.indptr, matrix.indices, matrix.shape
        place = np.repeat(np.arange(shape[0]), np.diff(indptr))
    else:
        table = _table(X, "counts")
        place, indices = np.nonzero(table)
        values, shape = table[place, indices], table.shape
        indptr = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=shape[0]))])
    _check_shape(shape, width, "categories")
    values = _numbers(values)
    wrong = np.flatnonzero(~((values >= 0) & (values == np.floor(values)) & np.isfinite(values)))
    if wrong.size:
        at = wrong[0]
        raise InvalidValueError(
            f"counts must be whole numbers >= 0; row {place[at]}, column {indices[at]} holds {values[at]}. "
            + ("Impute or remove missing values." if np.isnan(values[at]) else 'For real numbers use base="gaussian".')
        )
    some = values > 0
    if not some.all():  # explicit zeros of a sparse matrix
        kept = np.bincount(place[some], minlength=shape[0])
        indptr = np.concatenate([[0], np.cumsum(kept)])
        indices, values = indices[some], values[some]
    check_sums(indices, values)
    return CountRows(
        np.ascontiguousarray(indptr, np.int64),
        np.ascontiguousarray(indices, np.int32),
        np.ascontiguousarray(values, np.int32),
        int(shape[1]),
    )


def check_sums(indices: Array, counts: Array) -> None:
    """Check that sums over all rows fit in the 32 bits of a cluster's table."""
    if not counts.size or counts.sum(dtype=np.float64) < _FITS:
        return
    sums = np.bincount(indices, counts)
    if sums.max() > _FITS:
        raise InvalidValueError(
            f"the counts of column {int(sums.argmax())} sum to {sums.max():g}, more than {_FITS:,}: scale them "
            "down, or remove rows."
        )


def real_rows(X: Table, width: int | None = None) -> RealRows:
    """Real numbers from a table."""
    if isinstance(X, Sparse):
        X = as_csr(X, "`X`").toarray()
    values = np.array(_numbers(_table(X, "numbers")), np.float64, order="C")
    _check_shape(values.shape, width, "columns")
    wrong = np.argwhere(~(np.abs(values) < _HUGE))
    if len(wrong):
        row, column = wrong[0]
        raise InvalidValueError(
            f"rows must hold finite numbers (below {_HUGE:g}); row {row}, column {column} holds {values[row, column]}. "
            "Impute or remove missing values."
        )
    return RealRows(values)


def _table(X: Table, what: str) -> Array:
    table = as_numpy(X, "`X`")
    if table.ndim != 2:
        raise InvalidValueError(f"`X` must be a table of {what} with one row per observation, got shape {table.shape}.")
    if table.dtype == object:  # such as pandas' nullable integers
        table = numbers(table, tuple(map(str, X.columns)) if isinstance(X, Frame) else None)
    return _numbers(table)


def _numbers(values: Array) -> Array:
    if values.dtype == bool:
        return values.astype(np.int32)
    if values.dtype.kind not in "iuf":
        raise InvalidTypeError(f"`X` must hold numbers, got dtype {values.dtype}.")
    return values


def _check_shape(shape: tuple[int, ...], width: int | None, what: str) -> None:
    if not shape[0] or not shape[1]:
        raise InvalidValueError(f"`X` is empty: {shape[0]} rows, {shape[1]} {what}.")
    if width is not None and shape[1] != width:
        raise InvalidValueError(
            f"`X` has {shape[1]} {what}, but the model was fitted with {width}. It has no probability for other "
            "categories: build both tables with the same columns."
            if shape[1] > width and what == "categories"
            else f"`X` has {shape[1]} {what}, but the model was fitted with {width}: build both with the same columns."
        )
