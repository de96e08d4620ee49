"""Small tables on disk as pandas data frames: CSV, text, Parquet, Arrow, .npy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scirocco import _checks
from scirocco._extras import require
from scirocco.errors import InvalidValueError

_ARROW = (".parquet", ".arrow", ".feather")
_TEXT = {".csv": ",", ".tsv": "\t", ".txt": r"\s+", ".edges": r"\s+", ".edgelist": r"\s+"}
"""Separators of text files; those without a format of their own have columns between spaces, and comments."""


def read_table(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> Any:
    """Read a table, or some of its columns. A text file without a header has the columns x0, x1, ...

    A first line of numbers is no header, and neither is one whose entries also occur below.
    """
    place = _checks.path(path, "path").expanduser()
    if not place.is_file():
        raise InvalidValueError(
            f"{place} is a folder, not a file." if place.is_dir() else f"there is no file {place}."
        )
    table = _read(place)
    if not len(table):
        raise InvalidValueError(f"{place} has no rows{' below its header' if len(table.columns) else ''}.")
    if columns is None:
        return table
    for name in columns:
        if name not in table.columns:
            raise InvalidValueError(
                f"{place.name} has no column {name!r}. It has {', '.join(map(str, table.columns))}."
            )
    return table[list(columns)]


def _read(place: Path) -> Any:
    pandas = require("pandas", "reading tables")
    suffix = place.with_suffix("").suffix if place.suffix == ".gz" else place.suffix
    if suffix == ".npy":
        array = np.load(place, allow_pickle=False)
        table = pandas.DataFrame(np.atleast_1d(array).reshape(len(np.atleast_1d(array)), -1))
        return table.set_axis([f"x{k}" for k in range(table.shape[1])], axis=1)
    if suffix in _ARROW:
        require("pyarrow", f"reading {suffix} files")
        return pandas.read_parquet(place) if suffix == ".parquet" else pandas.read_feather(place)
    if suffix not in _TEXT:
        kinds = ", ".join([*_TEXT, *_ARROW])
        raise InvalidValueError(
            f"{place} is not a table that can be read: it must be a {kinds} or .npy file."
        )
    options: dict[str, Any] = {"sep": _TEXT[suffix], "skipinitialspace": True}
    if options["sep"] == r"\s+":
        options |= {"comment": "#"}
    try:
        table = pandas.read_csv(place, **options)
        if _is_data(table):
            table = pandas.read_csv(place, header=None, **options)
            table = table.set_axis([f"x{k}" for k in range(table.shape[1])], axis=1)
            first = ", ".join(str(table[name].iloc[0]) for name in table.columns)
            _checks.warn(f"{place.name} has no header: its first line ({first}) is read as data.")
    except (ValueError, UnicodeDecodeError) as error:  # pandas' own errors are ValueErrors
        raise InvalidValueError(f"{place} cannot be read as a table: {str(error).strip()}") from error
    return table


def _is_data(table: Any) -> bool:
    """Whether the names of the columns are the first row of the data."""
    names = [str(name) for name in table.columns]
    if not names or all(_is_number(name) for name in names):
        return bool(names)
    if len(names) != len(set(names)) or any(name.startswith("Unnamed:") for name in names):
        return False
    texts = [n for n in table.columns if table[n].dtype.kind not in "biuf"]
    return len(texts) >= 2 and any(bool((table[column] == name).any()) for column in texts for name in names)


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
