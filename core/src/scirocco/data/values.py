"""Arrays, columns, tables and sparse matrices as users have them: the one place where they become NumPy arrays.

NumPy drops the mask of a masked array silently, and compiled code reads a sparse matrix without a look at its
bounds: both are checked here, before anything else touches the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from scirocco._extras import require
from scirocco.errors import InvalidTypeError, InvalidValueError

EXACT = 2**53
"""Whole numbers up to here are exact in double precision."""


@runtime_checkable
class Series(Protocol):
    """A column of pandas, polars or Arrow."""

    def to_numpy(self) -> np.ndarray:
        """The values as an array."""


@runtime_checkable
class Frame(Series, Protocol):
    """A table of pandas or polars."""

    @property
    def columns(self) -> Sequence[Any]:
        """Column names, of any type."""

    def __getitem__(self, name: Any, /) -> Series:
        """A column."""

    def __len__(self) -> int:
        """Number of rows."""


@runtime_checkable
class NamedColumns(Protocol):
    """A table of Arrow, or another with `column_names`."""

    @property
    def column_names(self) -> Sequence[str]:
        """Column names."""

    def __getitem__(self, name: str, /) -> Any:
        """A column."""


@runtime_checkable
class AsArray(Protocol):
    """What NumPy can make an array of by itself."""

    def __array__(self) -> np.ndarray:
        """The array."""


@runtime_checkable
class Sparse(Protocol):
    """A sparse matrix of SciPy; by its methods, because reading `nnz` of a damaged one fails."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""

    def toarray(self) -> np.ndarray:
        """Convert to a dense array."""

    def tocsr(self) -> Any:
        """Convert to CSR format."""


# -- dense -------------------------------------------------------------------------------------------------------------


def as_numpy(values: Any, name: str) -> np.ndarray:
    """Any array, column or nested list as a NumPy array of native byte order; masked values raise an error.

    Missing values of pandas, polars and Arrow become NaN in numbers, and None or NA in objects: texts, and whole
    numbers that double precision does not hold.
    """
    if hasattr(values, "tocsr"):  # NumPy would make an object of it, and SciPy crash on a damaged one
        raise InvalidTypeError(f"{name} is a sparse matrix; pass an array: `matrix.toarray()`.")
    parts = values if isinstance(values, (list, tuple)) else [values]
    if any(isinstance(part, np.ma.MaskedArray) and part.dtype.names is None for part in parts):
        _refuse_masked(parts, name)
    try:
        plain = isinstance(values, AsArray) or not isinstance(values, Series)
        array = np.asarray(values if plain else values.to_numpy())
    except Exception as error:
        if isinstance(values, (list, tuple)):
            raise InvalidValueError(
                f"{name} is not a table: its rows differ in length. All rows must have the same columns."
            ) from error
        raise InvalidTypeError(f"{name} cannot be read as an array: {error}") from error
    if array.dtype.kind == "f" and array.ndim == 1 and np.any(np.abs(array) >= EXACT):
        array = _exact(values, array)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _exact(values: Any, array: np.ndarray) -> np.ndarray:
    """Whole numbers of polars or Arrow that became decimal because some are missing, as objects."""
    listed: list[Any] = getattr(values, "to_pylist", getattr(values, "to_list", list))()
    if not any(isinstance(value, int) for value in listed):
        return array
    found = np.empty(len(listed), object)
    found[:] = listed
    return found


def _refuse_masked(parts: Sequence[Any], name: str) -> None:
    count = sum(int(np.ma.count_masked(part)) for part in parts)
    if count:
        inside = np.ma.getmaskarray(parts[0]) if len(parts) == 1 else [np.ma.is_masked(p) for p in parts]
        raise InvalidValueError(
            f"{name} is a masked array with {count} masked value{'s' * (count > 1)}, the first in row "
            f"{int(np.argwhere(np.atleast_1d(inside))[0][0])}: masks are not used. Drop these rows, or impute the "
            "values with `filled(...)`."
        )


def missing(value: object) -> bool:
    """Whether a value is None, NaN, or pandas' NA or NaT."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return type(value).__name__ in ("NAType", "NaTType")


def named_columns(table: Any) -> dict[str, Any] | None:
    """The columns of a table of pandas, polars or Arrow by name; None if it is something else or has no names."""
    names: Sequence[Any] | None = None
    if isinstance(table, NamedColumns):
        names = table.column_names
    elif isinstance(table, Frame):
        names = list(table.columns)
    if not names or not all(isinstance(name, str) for name in names):
        return None
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidValueError(f"several columns of the data have the name {twice!r}: rename all but one.")
    return {name: table[name] for name in names}


# -- sparse ------------------------------------------------------------------------------------------------------------


def as_csr(matrix: Any, name: str) -> Any:
    """A SciPy sparse matrix in canonical CSR format: bounds checked, columns of a row sorted, duplicates summed.

    The caller's matrix is not changed, and its arrays are shared where nothing had to be sorted.
    """
    sparse = require("scipy.sparse", "sparse matrices")
    if matrix.ndim != 2:
        raise InvalidValueError(f"{name} must have two axes, got the shape {matrix.shape}.")
    if matrix.dtype.kind not in "fiub":
        raise InvalidTypeError(f"{name} must hold real numbers, got dtype {matrix.dtype}.")
    if matrix.format in ("csr", "csc", "bsr"):
        _check_compressed(matrix, name)
    elif matrix.format == "coo":
        for axis, indices in enumerate(matrix.coords):
            _check_indices(np.asarray(indices), matrix.shape[axis], ("row", "column")[axis], name)
            if len(indices) != len(matrix.data):
                raise _damaged(name, f"{len(indices)} indices for {len(matrix.data)} values")
    given = matrix.dtype
    wide = np.float64 if given.kind == "f" else np.int64
    if matrix.format in ("coo", "csc", "bsr"):  # duplicates are summed on the way: 8 bits would overflow
        matrix = matrix.astype(wide, copy=False)
    rows = matrix.tocsr()
    _check_compressed(rows, name)
    # a new matrix: SciPy remembers «sorted» of a matrix whose arrays may have been changed since
    end = int(rows.indptr[-1])
    rows = sparse.csr_array((rows.data[:end], rows.indices[:end], rows.indptr), shape=rows.shape)
    if not rows.has_canonical_format:
        rows = rows.astype(wide, copy=True)
        rows.sum_duplicates()
    fits = given.kind == "f" or np.array_equal(rows.data, rows.data.astype(given))
    return rows.astype(given, copy=False) if fits else rows


def _check_compressed(matrix: Any, name: str) -> None:
    """Bounds of a CSR, CSC or BSR matrix."""
    block = matrix.blocksize if matrix.format == "bsr" else (1, 1)
    outer, inner = (size // step for size, step in zip(matrix.shape, block, strict=True))
    kinds = ("row", "column")
    if matrix.format == "csc":
        outer, inner, kinds = inner, outer, kinds[::-1]
    indptr, indices = np.asarray(matrix.indptr), np.asarray(matrix.indices)
    if indptr.ndim != 1 or indptr.dtype.kind not in "iu" or len(indptr) != outer + 1:
        raise _damaged(name, f"`indptr` must hold {outer + 1} integers, got {indptr.dtype} of shape {indptr.shape}")
    falls = np.flatnonzero(indptr[1:] < indptr[:-1])
    if indptr[0] != 0 or len(falls):
        where = f"decreases after {kinds[0]} {falls[0]}" if indptr[0] == 0 else f"starts at {indptr[0]}"
        raise _damaged(name, f"`indptr` {where}; it must start at 0 and never decrease")
    if np.ndim(matrix.data) != (3 if matrix.format == "bsr" else 1):
        raise _damaged(name, f"`data` has the shape {np.shape(matrix.data)}")
    held = min(len(indices), len(matrix.data))
    if indptr[-1] > held:
        raise _damaged(name, f"`indptr` ends at {indptr[-1]}, but there are {held} entries")
    _check_indices(indices[: indptr[-1]], inner, kinds[1], name, indptr)


def _check_indices(indices: np.ndarray, size: int, kind: str, name: str, indptr: np.ndarray | None = None) -> None:
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise _damaged(name, f"{kind} indices must be integers, got {indices.dtype} of shape {indices.shape}")
    if indices.size and not 0 <= indices.min() <= indices.max() < size:
        at = int(np.argmax((indices < 0) | (indices >= size)))
        who = "it"
        if indptr is not None:
            other = "row" if kind == "column" else "column"
            who = f"{other} {int(np.searchsorted(indptr, at, side='right')) - 1}"
        raise _damaged(name, f"{who} has the {kind} index {indices[at]}; with {size} {kind}s they are 0..{size - 1}")


def _damaged(name: str, why: str) -> InvalidValueError:
    return InvalidValueError(f"{name} is not a valid sparse matrix: {why}. Build it again.")
