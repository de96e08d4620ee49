"""What a regression is fitted to: a table of features, or the columns that a formula makes of a data frame."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from scirocco._extras import require
from scirocco.data.values import as_numpy
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models.inputs import ColumnLike, TableLike
from scirocco.models.inputs.formulas import (
    Design,
    as_frame,
    checked_weights,
    column,
    parse,
    refuse_missing,
    used_columns,
)

INTERCEPT = "Intercept"


class FitInput(NamedTuple):
    """A table and what belongs to its rows."""

    table: Any
    """As it was given; in a fit, once they are checked, its `Features`."""
    y: ColumnLike | None
    offset: np.ndarray | None
    weight: np.ndarray | None
    intercept: bool
    response: str = "y"
    design: Design | None = None

    @property
    def num_rows(self) -> int:
        """The number of rows of the features."""
        return len(self.table.array)


def plain(X: TableLike, y: ColumnLike | None, offset: Any, weights: Any, intercept: bool, who: str) -> FitInput:
    """A table of features; offset and weights are checked when its rows are counted."""
    if isinstance(weights, str):
        raise InvalidTypeError(
            f"`weights` of {who} is the name of a column, {weights!r}, which requires a formula; without one, pass a "
            "number for each row."
        )
    return FitInput(X, y, offset, weights, intercept)


def from_formula(formula: str, frame: Any, y: Any, offset: Any, weights: Any, intercept: bool, who: str) -> FitInput:
    """The columns of a formula; offset and response are named there."""
    parsed = parse(formula)
    if y is not None or offset is not None:
        raise InvalidValueError(
            f"the formula {formula!r} names the response and the offset: call fit(frame) without y and offset."
        )
    if parsed.groups or parsed.trials is not None:
        raise InvalidValueError(
            f"{who} has no group terms such as (1 | shop) and no proportion(successes, trials), got {formula!r}: use "
            "sc.models.GLMM."
        )
    if not intercept:
        raise InvalidValueError(f"write `0 +` in the formula of {who} instead of intercept=False.")
    if weights is not None and not isinstance(weights, str):
        raise InvalidTypeError(f"`weights` of {who} with a formula must be the name of a column.")
    table = as_frame(frame, used_columns(parsed, weights), who, keep=(parsed.response,))
    if len(table) == 0:
        raise InvalidValueError(f"the table of {who} has no rows.")
    refuse_missing(table)
    design = Design(parsed.fixed, table, offset=parsed.offset)
    if not [name for name in design.names if name != INTERCEPT]:
        raise InvalidValueError(f"the formula {formula!r} has no columns: {who} requires at least one.")
    weight = None if weights is None else checked_weights(column(table, weights), weights)
    return FitInput(
        made_columns(design, table),
        table[parsed.response].to_numpy(),
        design.offset(table),
        weight,
        INTERCEPT in design.names,
        parsed.response,
        design,
    )


def made_columns(design: Design, table: Any) -> Any:
    """The columns of a formula but the intercept, as a data frame."""
    pandas = require("pandas", "a formula")
    kept = [place for place, name in enumerate(design.names) if name != INTERCEPT]
    names = [design.names[place] for place in kept]
    return pandas.DataFrame(design.matrix(table)[:, kept], columns=names)


def for_prediction(formula: str, design: Design, frame: Any, who: str) -> tuple[Any, np.ndarray | None]:
    """The columns of a formula, and the offset, of other rows; the response is not needed."""
    parsed = parse(formula)
    table = as_frame(frame, used_columns(parsed, response=False), who)
    refuse_missing(table)
    return made_columns(design, table), design.offset(table)


def response_of(formula: str, frame: Any, who: str) -> np.ndarray:
    """The response in a table."""
    name = parse(formula).response
    return np.asarray(as_frame(frame, [name], who, keep=(name,))[name].to_numpy())


def per_row(values: Any, name: str, num_rows: int, who: str) -> np.ndarray | None:
    """One finite number per row."""
    if values is None:
        return None
    found = as_numpy(values, f"`{name}` of {who}")
    if found.dtype.kind not in "fiub" or found.shape != (num_rows,):
        raise InvalidTypeError(
            f"`{name}` of {who} must be {num_rows} numbers, one per row, got shape {found.shape} of {found.dtype}."
        )
    found = found.astype(np.float64)
    if not np.isfinite(found).all():
        bad = int(np.argmin(np.isfinite(found)))
        raise InvalidValueError(f"`{name}` of {who} is {found[bad]} in row {bad}.")
    return checked_weights(found, name) if name == "weights" else found
