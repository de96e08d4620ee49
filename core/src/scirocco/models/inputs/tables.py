"""Validation of tables of features.

Each error names the column by number and, if it has one, by name. Numbers are converted to JAX's precision: float32, or
float64 if `jax_enable_x64` is on and the table has it; with `exact` they keep their precision, for a model that centres
its columns before it rounds them.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from scirocco import _checks
from scirocco.data.values import Frame, NamedColumns, Series, Sparse, as_csr, as_numpy, missing
from scirocco.errors import InvalidTypeError, InvalidValueError

CONSTANT = ("refuse", "keep")
WILD_SCALES = 1e3
"""Ratio of the standard deviations of columns above which a warning is given."""
_MOST_DENSE = 2_000_000_000
"""Largest number of values of a sparse table that is made dense: 8 GB."""
_SHOWN = 5  # names in a message
_CHUNK = 16_384  # rows that are converted at once


TableLike = ArrayLike | Frame | Sparse
"""A table: NumPy, pandas, polars, SciPy sparse, nested lists."""
ColumnLike = ArrayLike | Series
"""One value per row."""


Levels = Mapping[str, Sequence[object]]
"""The levels of each column of categories; each but the first has a column `name[level]` of 0 and 1."""


class Features(NamedTuple):
    """A table of numbers, the names of its columns, if any, and the levels of categories."""

    array: np.ndarray
    names: tuple[str, ...] | None
    levels: dict[str, list[object]]


def features(
    X: TableLike,
    who: str,
    *,
    constant: str = "refuse",
    constant_hint: str = "it has no information. Drop it",
    exact: bool = False,
    wild: bool = False,
    like: tuple[int, Sequence[str] | None] | None = None,
    levels: Levels | None = None,
) -> Features:
    """A table (rows, columns) of finite floating-point numbers.

    Parameters
    ----------
    X
        NumPy array, pandas or polars data frame, SciPy sparse matrix (made dense), or nested lists.
    who
        Name of the model for messages.
    constant
        How to treat constant columns: "refuse" (raise an error) or "keep".
    constant_hint
        The end of the error message for such a column: the reason and the remedy.
    exact
        Whether float64, and integers that float32 may not represent, are returned as float64 in any JAX precision.
    wild
        Whether to warn if the standard deviations of columns differ by more than a factor of 1000.
    like
        Number and names of the columns that the model was fitted with; others raise an error.
    levels
        Of categories in the fit; in a fit, {}: they are found. None: the model does not take categories.
    """
    _checks.choice(constant, "constant_columns", CONSTANT)
    found: dict[str, list[object]] = {}
    if levels is not None and isinstance(X, Frame) and all(isinstance(column, str) for column in X.columns):
        _refuse_twins(list(X.columns), who)
        found = _levels_of(X, constant) if like is None else {n: list(levels[n]) for n in X.columns if n in levels}
    array, names = _table(X, who, found)
    if like is not None:
        _check_like(array, names, like, who)
    narrow = np.result_type(array.dtype, np.float32) == np.float32
    kind = (np.float32 if narrow else np.float64) if exact else float_type(array.dtype)
    with np.errstate(over="ignore"):  # values that are too large become infinite and raise an error below
        array = np.ascontiguousarray(array.astype(kind, copy=False))
    _check_finite(array, names)
    if like is None and constant == "refuse":
        _refuse_constant(array, names, constant_hint)
    if like is None and wild:
        _remark_scales(array, names, who)
    return Features(array, names, found)


def float_type(dtype: DTypeLike) -> np.dtype[Any]:
    """float32, or float64 if it was given and JAX uses it."""
    return jax.dtypes.canonicalize_dtype(np.float64 if dtype == np.float64 else np.float32)


def column_name(number: int, names: Sequence[str] | None) -> str:
    """`column 3`, or with its name: "column 3 (`age`)"."""
    return f"column {number}" + (f" (`{names[number]}`)" if names is not None else "")


def _table(X: TableLike, who: str, levels: Mapping[str, list[object]]) -> tuple[np.ndarray, tuple[str, ...] | None]:
    names = None
    if isinstance(X, Frame):
        _refuse_twins(list(X.columns), who)
        if all(isinstance(column, str) for column in X.columns):
            names = tuple(X.columns)
        array = _by_column(X, X.columns, names, levels)
        if levels and names is not None:
            indicators = {name: [f"{name}[{level}]" for level in some[1:]] for name, some in levels.items()}
            names = tuple(new for name in names for new in indicators.get(name, [name]))
    elif isinstance(X, NamedColumns):
        names = tuple(X.column_names)
        _refuse_twins(list(names), who)
        array = _by_column(X, names, names, {})
    elif isinstance(X, Sparse):
        if X.shape[0] * X.shape[-1] > _MOST_DENSE:
            raise InvalidTypeError(
                f"{who} requires dense tables, and this sparse one of shape {X.shape} would have "
                f"{X.shape[0] * X.shape[-1]:.1e} numbers: use fewer columns."
            )
        array = as_csr(X, f"X of {who}").toarray()
    else:
        array = as_numpy(X, f"X of {who}")
        if array.dtype.kind in "US":  # numbers mixed with strings have become strings
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
        raise InvalidValueError(f"X of {who} has 0 rows (shape={array.shape}): at least 1 is required.")
    if array.shape[1] == 0:
        raise InvalidValueError(f"X of {who} has 0 feature(s) (shape={array.shape}) while a minimum of 1 is required.")
    return (numbers(array, names) if array.dtype.kind not in "fiub" else array), names


def _refuse_twins(columns: list[object], who: str) -> None:
    seen = set()
    for number, column in enumerate(columns):
        if column in seen:
            raise InvalidValueError(
                f"columns {columns.index(column)} and {number} of X have one name, {column!r}: rename one for {who}."
            )
        seen.add(column)


def _by_column(
    frame: Any, columns: Sequence[Any], names: tuple[str, ...] | None, levels: Mapping[str, list[object]]
) -> np.ndarray:
    """Convert a data frame by column, so that a column of strings is named, and missing values become NaN."""
    parts: list[np.ndarray] = []
    for number, column in enumerate(columns):
        if column in levels:
            parts += _indicators(frame[column], levels[column], column_name(number, names))
        else:
            values = as_numpy(frame[column], f"{column_name(number, names)} of X")
            is_number = values.dtype.kind in "fiub"
            parts.append(values if is_number else numbers(values[:, None], names, number)[:, 0])
    if not parts:
        return np.empty((len(frame), 0), np.float32)
    kinds = {part.dtype for part in parts}
    return np.stack(parts, axis=1).astype(np.result_type(*kinds), copy=False)


def _levels_of(frame: Frame, constant: str) -> dict[str, list[object]]:
    """The levels that occur in each column of categories (pandas: category; polars: Categorical, Enum), in order."""
    found = {}
    for number, name in enumerate(frame.columns):
        column: Any = frame[name]
        if not str(column.dtype).lower().startswith(("category", "categorical", "enum")):
            continue
        where = f"{column_name(number, tuple(frame.columns))} of X"
        values = as_numpy(column, where).tolist()
        gap = next((row for row, value in enumerate(values) if missing(value)), None)
        if gap is not None:
            raise InvalidValueError(f"{where} is missing (NaN) in row {gap}: fill or drop it first.")
        occur = dict.fromkeys(values)
        found[name] = list(occur)  # of polars' Categorical, which has no order, that of the rows
        if not str(column.dtype).lower().startswith("categorical"):
            known = as_numpy(column.dtype.categories, where).tolist()
            found[name] = [level for level in known if level in occur]
        if not all(isinstance(level, (str, int, float)) for level in found[name]):
            raise InvalidTypeError(f"the levels of {where} must be strings or numbers: convert them to strings.")
        if len(found[name]) < 2 and constant == "refuse" and len(values) > 1:
            raise InvalidValueError(f"{where} has the single level {found[name][0]!r}: drop it.")
    return found


def _indicators(column: Series, levels: list[object], where: str) -> list[np.ndarray]:
    values = as_numpy(column, f"{where} of X").tolist()
    codes = {level: code for code, level in enumerate(levels)}
    unknown = [value for value in dict.fromkeys(values) if value not in codes]
    if unknown:
        shown = ", ".join(map(repr, unknown[:_SHOWN]))
        raise InvalidValueError(
            f"{where} of X has {shown} in row {values.index(unknown[0])}, which the fit did not have: its levels are "
            f"{', '.join(map(repr, levels))}."
        )
    numbers = np.array([codes[value] for value in values])
    return [(numbers == code).astype(np.float32) for code in range(1, len(levels))]


def numbers(array: np.ndarray, names: tuple[str, ...] | None, first: int = 0, target: str = "") -> np.ndarray:
    """Python numbers in a table of objects; anything else raises an error that names its column, or the target."""
    out = np.empty(array.shape, np.float64)
    for column in range(array.shape[1]):
        for row, value in enumerate(array[:, column]):
            if missing(value):
                out[row, column] = np.nan
            elif _checks.is_number(value) or isinstance(value, (bool, np.bool_)):
                out[row, column] = float(value)
            else:
                where = target or f"{column_name(first + column, names)} of X"
                kind = f"numbers, got {type(value).__name__}"  # the next words are scikit-learn's
                kind = "numbers" if isinstance(value, str) else kind + "; the argument must be a string or a number"
                raise InvalidTypeError(
                    f"{where} contains {_plain(value)!r} in row {row}: {'targets' if target else 'features'} must be "
                    f"{kind}. {_how_to_encode(names[first + column] if names else '', target, value)}"
                )
    return out


def _how_to_encode(name: str, target: str, value: object) -> str:
    if target:
        return "For classes use sc.models.LogisticRegression."
    if _is_numeric_text(value):
        return f"The texts are numbers: convert them with X.astype({{{name!r}: float}})." if name else "Convert them."
    if isinstance(value, (datetime.date, np.datetime64)):
        since = f", e.g. (X[{name!r}] - X[{name!r}].min()).dt.days" if name else ""
        return f"Convert dates to numbers, such as days since the first one{since}."
    frame = f": X.astype({{{name!r}: 'category'}}), in polars X.cast({{{name!r}: pl.Categorical}})" if name else ""
    return (
        "Encode categories with one column per category; a regression does so for the columns of a data frame that "
        f"are categories{frame}."
    )


def _is_numeric_text(value: object) -> bool:
    try:
        return isinstance(value, str) and math.isfinite(float(value))
    except ValueError:
        return False


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


def _check_like(
    array: np.ndarray, names: tuple[str, ...] | None, like: tuple[int, Sequence[str] | None], who: str
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
    kind = float_type(array.dtype)  # the type of the computations, which may be narrower than the table's
    limit = np.finfo(kind).max
    if -limit <= array.min() and array.max() <= limit:  # avoids a copy of a large table
        return
    bad = ~(np.abs(array) <= limit)
    rows, columns = np.nonzero(bad)
    whole = np.flatnonzero(np.isnan(array).all(axis=0))
    if len(whole):
        raise InvalidValueError(f"{column_name(int(whole[0]), names)} of X is missing (NaN) in every row: drop it.")
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
        more = f" ({len(constant)} columns are constant)" if len(constant) > 1 else ""
        raise InvalidValueError(
            f"{column_name(first, names)} of X has the single value {array[0, first] + 0.0:g}{more}: {hint}."
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
            f"{column_name(high, names)}. The same prior for all coefficients is then inappropriate; "
            f"{who}(standardise=True) applies it to standardised columns."
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

        With an intercept columns are always centred. Its prior then refers to a row in the middle of the table; at
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
        """JSON representation for a file."""
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
