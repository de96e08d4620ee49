"""Which columns of a source make which array."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Mapping, Sequence

import numpy as np

from scirocco.errors import InvalidTypeError, InvalidValueError

Columns = Mapping[str, str | Sequence[str]]


class Plan:
    """For each array the columns that make it; a plain one stays as it is, several are stacked side by side."""

    def __init__(self, columns: Columns | None, names: Sequence[str], where: str):
        self.where = where
        self.stacked: dict[str, bool] = {}
        self.columns: dict[str, list[str]] = {}
        if columns is None:
            self.columns = {name: [name] for name in names}
            self.stacked = dict.fromkeys(names, False)
        else:
            self._choose(columns, list(names))

    @property
    def wanted(self) -> list[str]:
        """All columns to be read."""
        return [name for group in self.columns.values() for name in group]

    def arrays(self, chunk: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The arrays from a chunk of columns."""
        made = {}
        for array, group in self.columns.items():
            made[array] = self._stack(array, group, chunk) if self.stacked[array] else chunk[group[0]]
        return made

    def _stack(self, array: str, group: list[str], chunk: Mapping[str, np.ndarray]) -> np.ndarray:
        parts = [chunk[name] for name in group]
        deep = [name for name, part in zip(group, parts, strict=True) if part.ndim > 2]
        if deep:
            raise InvalidValueError(
                f"column `{deep[0]}` of {self.where} has {chunk[deep[0]].ndim - 1} axes in a row and cannot be "
                f"stacked into `{array}`. Make it an array of its own."
            )
        widths = [1 if part.ndim == 1 else part.shape[1] for part in parts]
        matrix = np.empty((len(parts[0]), sum(widths)), np.result_type(*(part.dtype for part in parts)))
        start = 0
        for part, width in zip(parts, widths, strict=True):
            matrix[:, start : start + width] = part[:, None] if part.ndim == 1 else part
            start += width
        return matrix

    def _choose(self, columns: Columns, names: list[str]) -> None:
        if not isinstance(columns, Mapping) or not columns:
            raise InvalidTypeError(
                f"`columns` maps array names to columns, e.g. {{'x': ['feature_*'], 'y': 'label'}}; got {columns!r}."
            )
        entries = [
            (array, entry)
            for array, listed in columns.items()
            for entry in ([listed] if isinstance(listed, str) else listed)
        ]
        named = {entry for _, entry in entries if entry in names}
        owner: dict[str, str] = {}
        for array, entry in entries:
            group = self.columns.setdefault(array, [])
            for name in self._matches(entry, names, named):
                if name in owner:
                    raise InvalidValueError(
                        f"column `{name}` of {self.where} is used twice: in `{owner[name]}` and in `{array}`."
                    )
                owner[name] = array
                group.append(name)
            plain = isinstance(columns[array], str) and entry in names
            self.stacked[array] = not plain
        empty = [array for array in columns if not self.columns.get(array)]
        if empty:
            raise InvalidValueError(f"`columns` lists no column for the array `{empty[0]}`.")

    def _matches(self, entry: str, names: list[str], named: set[str]) -> list[str]:
        """One column by its name, or those that a pattern matches and that no entry names."""
        if entry in names:
            return [entry]
        if any(sign in entry for sign in "*?["):
            found = [name for name in names if fnmatch.fnmatchcase(name, entry) and name not in named]
            if not found:
                raise InvalidValueError(
                    f"the pattern {entry!r} matches no column of {self.where}. {_listed(names)}"
                )
            return found
        close = difflib.get_close_matches(entry, names, n=1)
        hint = f"Did you mean `{close[0]}`? " if close else ""
        raise InvalidValueError(f"{self.where} has no column `{entry}`. {hint}{_listed(names)}")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:20]) + (f", ... ({len(names)} in all)" if len(names) > 20 else "")
    return f"The columns are: {shown}."
