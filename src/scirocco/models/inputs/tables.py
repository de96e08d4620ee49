"""Tables of features as users have them, checked before a model sees them.

Every complaint names the column by number and, where it has one, by name. Numbers become those of JAX's precision:
float32, or float64 where `jax_enable_x64` is on and the table has it; with `exact` they stay as precise as they are,
for a model that centres its columns before it rounds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from scirocco import _checks
from scirocco.errors import InvalidTypeError, InvalidValueError

CONSTANT = ("refuse", "keep")
WILD_SCALES = 1e3
"""Ratio of column deviations from which a table is worth a remark."""
_MOST_DENSE = 2_000_000_000
"""Numbers that a sparse table may have when it is made dense: 8 GB."""
_SHOWN = 5
_CHUNK = 16_384


@runtime_checkable
class Series(Protocol):
    """A column of pandas or polars."""

    def to_numpy(self) -> np.ndarray:
        """Its values."""


@runtime_checkable
class Frame(Series, Protocol):
    """A table of pandas or polars."""

    @property
    def columns(self) -> Sequence[Any]:
        """Names, words or not."""

    def __getitem__(self, name: Any, /) -> Series:
        """A column."""

    def __len__(self) -> int:
        """Rows."""


@runtime_checkable
class Sparse(Protocol):
    """A sparse matrix of SciPy."""

    nnz: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""

    def toarray(self) -> np.ndarray:
        """Made dense."""

    def tocsr(self) -> Any:
        """By rows."""


TableLike = ArrayLike | Frame | Sparse
"""What users call a table: NumPy, pandas, polars, SciPy sparse, nested lists."""
ColumnLike = ArrayLike | Series
"""One value a row."""


class Features(NamedTuple):
    """A table of numbers, and the names of its columns where it has them."""

    array: np.ndarray
    names: tuple[str, ...] | None


def features(
    X: TableLike,
    who: str,
    *,
    constant: str = "refuse",
    constant_hint: str = "it says nothing about the rows. Drop it",
    exact: bool = False,
    scale_bytes: bool = False,
    wild: bool = False,
    like: tuple[int, Sequence[str] | None] | None = None,
) -> Features:
    """A table (rows, columns) of finite floating-point numbers.

    Parameters
    ----------
    X
        NumPy array, pandas or polars data frame, SciPy sparse matrix (made dense), or nested lists.
    who
        The model, for messages.
    constant
        What to do with columns of a single value: "refuse" or "keep".
    constant_hint
        The end of the complaint of such a column: why it is refused, and what to do.
    exact
        Whether float64 and whole numbers that float32 may not hold come back as float64, whatever JAX computes in.
    scale_bytes
        Whether whole numbers of type uint8 are divided by 255, with a notice: pixels of images. Those of 0 and 1 are
        left alone.
    wild
        Whether to warn of columns whose standard deviations differ more than a thousandfold.
    like
        Number and names of the columns that the model was fitted with; other ones are refused.
    """
    _checks.choice(constant, "constant_columns", CONSTANT)
    array, names = _table(X, who)
    if like is not None:
        _check_like(array, names, like, who)
    if scale_bytes and array.dtype == np.uint8 and array.max() > 1:
        _checks.warn(f"{who} divides the bytes (uint8) of X by 255: features lie between 0 and 1.")
        array = array / np.float32(255)
    narrow = np.result_type(array.dtype, np.float32) == np.float32
    kind = (np.float32 if narrow else np.float64) if exact else float_type(array.dtype)
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is spoken of below
        array = np.ascontiguousarray(array.astype(kind, copy=False))
    _check_finite(array, names)
    if like is None and constant == "refuse":
        _refuse_constant(array, names, constant_hint)
    if like is None and wild:
        _remark_scales(array, names, who)
    return Features(array, names)


def float_type(dtype: DTypeLike) -> np.dtype[Any]:
    """float32, or float64 where it was given and JAX computes in it."""
    return jax.dtypes.canonicalize_dtype(np.float64 if dtype == np.float64 else np.float32)


def column_name(number: int, names: Sequence[str] | None) -> str:
    """`column 3`, or with its name: "column 3 (`age`)"."""
    return f"column {number}" + (f" (`{names[number]}`)" if names is not None else "")


def _table(X: TableLike, who: str) -> tuple[np.ndarray, tuple[str, ...] | None]:
    names = None
    if isinstance(X, Frame):
        _refuse_twins(list(X.columns), who)
        if all(isinstance(column, str) for column in X.columns):
            names = tuple(X.columns)
        array = _from_frame(X, names)
    elif isinstance(X, Sparse):
        if X.shape[0] * X.shape[-1] > _MOST_DENSE:
            raise InvalidTypeError(
                f"{who} works with dense tables, and this sparse one of shape {X.shape} would have "
                f"{X.shape[0] * X.shape[-1]:.1e} numbers: choose fewer columns."
            )
        array = X.toarray()
    else:
        try:
            array = np.asarray(X)
        except ValueError as error:
            raise InvalidValueError(
                f"X of {who} is not a table: its rows differ in length. Give every row the same columns."
            ) from error
        if array.dtype.kind in "US":  # numbers next to words have become words
            array = np.asarray(X, dtype=object)
    if array.dtype.kind == "c":
        raise InvalidValueError(f"Complex data not supported: X of {who} has the type {array.dtype}.")
    if array.ndim != 2:
        fix = "X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one row"
        raise InvalidValueError(
            f"X of {who} must be a table with the shape (rows, columns), got shape {array.shape}. "
            f"Reshape your data: {fix if array.ndim < 2 else 'X.reshape(len(X), -1)'}."
        )
    if array.shape[0] == 0:
        raise InvalidValueError(f"X of {who} has 0 rows (shape={array.shape}): there is nothing to work on.")
    if array.shape[1] == 0:
        raise InvalidValueError(
            f"X of {who} has 0 feature(s) (shape={array.shape}) while a minimum of 1 is required."
        )
    return (numbers(array, names) if array.dtype.kind not in "fiub" else array), names


def _refuse_twins(columns: list[object], who: str) -> None:
    seen = set()
    for number, column in enumerate(columns):
        if column in seen:
            raise InvalidValueError(
                f"columns {columns.index(column)} and {number} of X have one name, {column!r}: rename one for {who}."
            )
        seen.add(column)


def _from_frame(frame: Frame, names: tuple[str, ...] | None) -> np.ndarray:
    """A data frame column by column, so that one of words is named, and missing values become NaN."""
    parts = [_frame_column(frame[column], number, names) for number, column in enumerate(frame.columns)]
    if not parts:
        return np.empty((len(frame), 0), np.float32)
    kinds = {part.dtype for part in parts}
    return np.stack(parts, axis=1).astype(np.result_type(*kinds), copy=False)


def _frame_column(column: Series, number: int, names: tuple[str, ...] | None) -> np.ndarray:
    values = np.asarray(column.to_numpy())
    return values if values.dtype.kind in "fiub" else numbers(values[:, None], names, number)[:, 0]


def numbers(
    array: np.ndarray, names: tuple[str, ...] | None, first: int = 0, target: bool = False
) -> np.ndarray:
    """Python numbers in a table of objects; anything else is refused with its column, or as a value of y."""
    out = np.empty(array.shape, np.float64)
    for column in range(array.shape[1]):
        for row, value in enumerate(array[:, column]):
            if missing(value):
                out[row, column] = np.nan
            elif _checks.is_number(value) or isinstance(value, (bool, np.bool_)):
                out[row, column] = float(value)
            else:
                where = "y" if target else f"{column_name(first + column, names)} of X"
                fix = (
                    "For classes use sc.models.LogisticRegression."
                    if target
                    else "Encode categories first, e.g. with one column a category."
                )
                raise InvalidTypeError(
                    f"{where} holds {_plain(value)!r} in row {row}: {'targets' if target else 'features'} must be "
                    f"numbers, a float() argument must be a string or a number and not {type(value).__name__}. {fix}"
                )
    return out


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


def missing(value: object) -> bool:
    """None, NaN, and pandas' NA and NaT, which are not equal to themselves or refuse to say."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return type(value).__name__ in ("NAType", "NaTType")


def _check_like(
    array: np.ndarray,
    names: tuple[str, ...] | None,
    like: tuple[int, Sequence[str] | None],
    who: str,
) -> None:
    count, fitted = like
    if names is not None and fitted is not None and tuple(names) != tuple(fitted):
        unseen, missing = sorted(set(names) - set(fitted)), sorted(set(fitted) - set(names))
        lines = ["The feature names should match those that were passed during fit."]
        for title, which in (("unseen at fit time", unseen), ("seen at fit time, yet now missing", missing)):
            if which:
                dots = ["- ..."] if len(which) > _SHOWN else []
                lines += [f"Feature names {title}:", *(f"- {name}" for name in which[:_SHOWN]), *dots]
        if not unseen and not missing:
            lines.append("Feature names must be in the same order as they were in fit.")
        raise InvalidValueError("\n".join(lines) + "\n")
    if names is None and fitted is not None:
        _checks.warn(f"X does not have valid feature names, but {who} was fitted with feature names")
    elif names is not None and fitted is None:
        _checks.warn(f"X has feature names, but {who} was fitted without feature names")
    if array.shape[1] != count:
        raise InvalidValueError(
            f"X has {array.shape[1]} features, but {who} is expecting {count} features as input, as in its fit."
        )


def _check_finite(array: np.ndarray, names: tuple[str, ...] | None) -> None:
    kind = float_type(array.dtype)  # that of the computations, which may be narrower than the table's
    limit = np.finfo(kind).max
    if -limit <= array.min() and array.max() <= limit:  # no copy of a large table in the good case
        return
    bad = ~(np.abs(array) <= limit)
    rows, columns = np.nonzero(bad)
    whole = np.flatnonzero(np.isnan(array).all(axis=0))
    if len(whole):
        raise InvalidValueError(
            f"{column_name(int(whole[0]), names)} of X is missing (NaN) in every row: drop it."
        )
    value = array[rows[0], columns[0]]
    what = "NaN" if np.isnan(value) else "inf"
    raise InvalidValueError(
        f"X contains {what}: first in row {rows[0]}, {column_name(int(columns[0]), names)}; {len(rows)} of its "
        f"{array.size} numbers are NaN or infinity in {np.dtype(kind)}. Fill or drop them first."
    )


def _refuse_constant(array: np.ndarray, names: tuple[str, ...] | None, hint: str) -> None:
    if len(array) < 2:
        return
    constant = np.flatnonzero(array.max(axis=0) == array.min(axis=0))
    if len(constant):
        first = int(constant[0])
        more = f" ({len(constant)} columns are like that)" if len(constant) > 1 else ""
        raise InvalidValueError(
            f"{column_name(first, names)} of X has the one value {array[0, first] + 0.0:g}{more}: {hint}."
        )


def _remark_scales(array: np.ndarray, names: tuple[str, ...] | None, who: str) -> None:
    deviations = array.std(axis=0, dtype=np.float64)
    moving = np.flatnonzero(array.max(axis=0) > array.min(axis=0))
    if len(moving) < 2:
        return
    low, high = (int(moving[pick(deviations[moving])]) for pick in (np.argmin, np.argmax))
    if deviations[high] > WILD_SCALES * deviations[low]:
        _checks.warn(
            f"the standard deviations of X's columns differ by a factor of {deviations[high] / deviations[low]:.0e}: "
            f"{deviations[low]:.1e} in {column_name(low, names)}, {deviations[high]:.1e} in "
            f"{column_name(high, names)}. One prior for all coefficients then means very different things; "
            f"{who}(standardise=True) puts it on standardised columns."
        )


# -- the columns as chains see them ------------------------------------------------------------------------------------


class Units(NamedTuple):
    """Columns as a chain sees them: (x - mean) / deviation.

    Rounding to float32 comes last: what matters of a column far from 0 are its last digits.
    """

    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, standardise: bool, centre: bool) -> Units:
        """Of a table with an intercept or without; the user's own where nothing is to be changed.

        With an intercept columns are always centred. Its prior then speaks of a row in the middle of the table; at
        x = 0, which may be far away (a year), it would pull slopes to 0.
        """
        mean, deviation = np.zeros(x.shape[1]), np.ones(x.shape[1])
        moving = x.max(axis=0) > x.min(axis=0)  # rounding gives a constant column a deviation
        if centre:
            # a constant column that is kept shares what it says with the intercept; centred it would say nothing
            mean = np.where(moving, x.mean(axis=0, dtype=np.float64), 0.0)
        if standardise:
            deviation = np.where(moving, x.std(axis=0, dtype=np.float64), 1.0)
        return cls(mean, deviation)

    @property
    def plain(self) -> bool:
        """Whether they are the user's own."""
        return not self.mean.any() and bool(np.all(self.deviation == 1.0))

    def written(self) -> dict[str, list[float]]:
        """For a file."""
        return {"mean": self.mean.tolist(), "deviation": self.deviation.tolist()}

    def apply(self, x: np.ndarray) -> np.ndarray:
        """The table in these units, in JAX's precision; differences are those of the table's own precision."""
        dtype = float_type(x.dtype)
        if self.plain:
            return x.astype(dtype, copy=False)
        out = np.empty(x.shape, dtype)
        for first in range(0, len(x), _CHUNK):
            out[first : first + _CHUNK] = (x[first : first + _CHUNK] - self.mean) / self.deviation
        return out
