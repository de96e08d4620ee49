"""Tables on disk as pandas data frames: what all models and commands read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from scirocco import _checks
from scirocco._extras import require
from scirocco.data.formats.conversion import ColumnPlan, open_table, read_columns
from scirocco.errors import InvalidValueError


def read_table(path: str | os.PathLike[str], columns: Sequence[str] | None = None, *, folders: bool = False) -> Any:
    """Read a table, or those of its columns with these names or patterns, as a pandas data frame.

    `folders`: whether a data folder, whose rows may be in another order, or a folder of files is a table. An array with
    several numbers in a row has a column for each. See `TextTable` for the rules of text files.
    """
    pandas = require("pandas", "reading tables")
    place = _checks.path(path, "path").expanduser()
    if place.is_dir() and not folders:
        raise InvalidValueError(f"{place} is a folder, not a file.")
    table = open_table(place, columns or ())
    wanted = table.names if columns is None or table.single else _chosen(columns, table.names, place.name)
    found: dict[str, np.ndarray] = {}
    for name, column in read_columns(table, wanted).items():
        found |= _single_columns("x" if table.single else name, column, table.single)
    if table.single and columns is not None:
        found = {name: found[name] for name in _chosen(columns, list(found), place.name)}
    if not all(map(len, found.values())):
        raise InvalidValueError(f"{place} has no rows{' below its header' if found else ''}.")
    return pandas.DataFrame(
        {name: pandas.Series(column, dtype=column.dtype) for name, column in found.items()}, copy=False
    )


def _chosen(columns: Sequence[str], names: list[str], where: str) -> list[str]:
    return ColumnPlan({"x": columns}, names, where).wanted


def _single_columns(name: str, array: np.ndarray, single: bool) -> dict[str, np.ndarray]:
    """An array as columns: x[0], x[1], ... of a matrix; x0, x1, ... if there is nothing else."""
    if array.ndim == 1 and not single:
        return {name: array}
    rows = array.reshape(len(array), -1)
    brackets = ("", "") if single else ("[", "]")
    return {f"{name}{brackets[0]}{k}{brackets[1]}": rows[:, k] for k in range(rows.shape[1])}
