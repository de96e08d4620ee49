"""Tables on disk as pandas data frames."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from scirocco import _checks
from scirocco._extras import require
from scirocco.data.formats.conversion import open_table, read_columns
from scirocco.errors import InvalidValueError


def read_table(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> Any:
    """Read a table, or some of its columns, as a pandas data frame. See `TextTable` for the rules of text files."""
    pandas = require("pandas", "reading tables")
    place = _checks.path(path, "path").expanduser()
    if place.is_dir():
        raise InvalidValueError(f"{place} is a folder, not a file.")
    table = open_table(place, columns or ())
    choice = list(table.names if columns is None or table.single else columns)
    _check_names(choice, table.names, place.name)
    found = read_columns(table, choice)
    if table.single:  # a .npy file: the columns of its array
        rows = found["data"].reshape(len(found["data"]), -1)
        found = {f"x{number}": rows[:, number] for number in range(rows.shape[1])}
        _check_names(columns or (), list(found), place.name)
        found = {name: found[name] for name in columns or found}
    if not all(map(len, found.values())):
        raise InvalidValueError(f"{place} has no rows{' below its header' if found else ''}.")
    return pandas.DataFrame(
        {name: pandas.Series(column, dtype=column.dtype) for name, column in found.items()}
    )


def _check_names(columns: Sequence[str], names: Sequence[str], file: str) -> None:
    for name in columns:
        if name not in names:
            raise InvalidValueError(f"{file} has no column {name!r}. It has {', '.join(names[:20])}.")
