"""Validation of class labels, numeric targets and the numbers of a prior."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

import jax
import numpy as np

from scirocco import _checks
from scirocco.data.values import as_numpy, missing
from scirocco.errors import InvalidTypeError, InvalidValueError, SciroccoWarning
from scirocco.models.inputs.tables import ColumnLike, numbers


def labels(
    y: ColumnLike | None,
    classes: Sequence[object] | np.ndarray | None = None,
    *,
    num_rows: int | None = None,
    who: str = "the model",
    sort: bool = False,
    name: str = "y",
) -> tuple[np.ndarray, np.ndarray]:
    """Convert class labels to codes 0, 1, ... (int32); also return the classes, sorted.

    With `classes`, the declared set: other labels raise an error, and a class may have no rows. The classes keep their
    declared order, unless `sort`. `name` is that of the response in messages.
    """
    values = _column(y, num_rows, who)
    if values.dtype.kind == "f" and np.any(bad := ~np.isfinite(values)):
        raise InvalidValueError(
            f"Input {name} contains NaN or infinity: first in row {int(np.argmax(bad))}, {int(bad.sum())} of "
            f"{len(bad)} labels. Drop these rows first."
        )
    if values.dtype.kind == "f" and np.any(fraction := values != np.floor(values)):
        raise InvalidValueError(
            f"Unknown label type: continuous. {name} contains {values[fraction][0]:g} in row "
            f"{int(np.argmax(fraction))}; {who} requires classes. For a numeric target use sc.models.LinearRegression."
        )
    if values.dtype.kind == "O":
        for row, value in enumerate(values):
            if missing(value):
                raise InvalidValueError(f"Input {name} contains NaN: the label of row {row} is missing ({value!r}).")
    if values.dtype.kind == "S":
        raise InvalidTypeError(f"the labels in {name} are bytes: decode them, as in np.char.decode({name}).")
    found, codes = _sorted(values, name)
    if classes is not None:
        known = _known(classes, who)
        known = _sorted(known, "`classes`")[0] if sort else known
        return _declared(values, known), known
    if len(found) < 2:
        raise InvalidValueError(
            f"{who} needs at least two classes; every row of {name} has the class {found.tolist()[0]!r}."
        )
    return codes.astype(np.int32), found


def _sorted(values: np.ndarray, where: str) -> tuple[np.ndarray, np.ndarray]:
    try:
        found, codes = np.unique(values, return_inverse=True)
    except TypeError as error:
        raise InvalidTypeError(
            f"the labels in {where} cannot be sorted: they have different types ({error}). Convert all to strings."
        ) from error
    return found, codes.reshape(-1)


def _known(classes: Sequence[object] | np.ndarray, who: str) -> np.ndarray:
    known = np.asarray(classes)
    if known.ndim != 1:
        raise InvalidTypeError(f"`classes` of {who} must be a list of labels, got {classes!r}.")
    if len(set(known.tolist())) < max(2, len(known)):
        raise InvalidValueError(f"`classes` must be at least two different labels, got {known.tolist()!r}.")
    return known


def _declared(values: np.ndarray, classes: np.ndarray) -> np.ndarray:
    known = {label: code for code, label in enumerate(classes.tolist())}
    codes = np.empty(len(values), np.int32)
    for row, label in enumerate(values.tolist()):
        code = known.get(label)
        if code is None:
            raise InvalidValueError(
                f"the label {label!r} in row {row} of y is not one of the declared classes {list(known)!r}."
            )
        codes[row] = code
    return codes


def targets(
    y: ColumnLike | None, *, num_rows: int | None = None, who: str = "the model", name: str = "y"
) -> np.ndarray:
    """Check a numeric target: one finite number per row, in float64, because models centre it before they round it."""
    values = _column(y, num_rows, who)
    if values.dtype.kind not in "fiub":
        values = numbers(values[:, None], None, target=name)[:, 0]
    values = values.astype(np.float64)
    bad = ~(np.abs(values) <= np.finfo(jax.dtypes.canonicalize_dtype(np.float64)).max)
    if bad.any():
        row = int(np.argmax(bad))
        what = "NaN" if np.isnan(values[row]) else "infinity"
        raise InvalidValueError(
            f"Input {name} contains {what}: first in row {row}; {int(bad.sum())} of {len(values)} targets are not "
            "finite."
        )
    return values


def _column(y: ColumnLike | None, num_rows: int | None, who: str) -> np.ndarray:
    if y is None:
        raise InvalidValueError(f"{who} requires y to be passed, but the target y is None.")
    values = as_numpy(y, f"y of {who}")
    if values.ndim == 2 and values.shape[1] == 1:
        _remark_column(values.shape)
        values = values[:, 0]
    if values.ndim != 1:
        raise InvalidValueError(f"y of {who} must have one value per row, got shape {values.shape}.")
    if values.dtype.kind == "c":
        raise InvalidValueError(f"Complex data not supported: y of {who} has the type {values.dtype}.")
    if num_rows is not None and len(values) != num_rows:
        raise InvalidValueError(f"X has {num_rows} rows and y has {len(values)}: the numbers must be equal.")
    return values


def _remark_column(shape: tuple[int, ...]) -> None:
    """Warn with scikit-learn's own class if scikit-learn is imported."""
    exceptions = sys.modules.get("sklearn.exceptions")
    kind = SciroccoWarning if exceptions is None else exceptions.DataConversionWarning
    message = f"A column-vector y was passed when a 1d array was expected: y has the shape {shape}; use y.ravel()."
    warnings.warn(message, kind, stacklevel=5)


def gamma_law(pair: tuple[float, float], name: str, who: str) -> tuple[float, float]:
    """(shape, rate) as a user gives them."""
    try:
        shape, rate = pair
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(
            f"`{name}` of {who} must be a pair (shape, rate) of a Gamma distribution, got {pair!r}."
        ) from error
    for value in (shape, rate):
        _checks.positive(value, name, who)
    return float(shape), float(rate)
