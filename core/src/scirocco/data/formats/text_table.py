"""Tables in text files: which line has the names, and one type for each column, decided over the whole file.

Numbers are read as numbers only if nothing is lost: whole numbers are exact, and `007` stays a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from scirocco import _checks
from scirocco.data.formats import text
from scirocco.data.values import EXACT
from scirocco.errors import InvalidTypeError, InvalidValueError

GAPS = frozenset(("", "NA", "N/A", "n/a", "NaN", "nan", "NAN", "NULL", "null", "None", "<NA>", "#N/A"))
"""What stands for a missing value in a column of numbers. In a column of texts only an empty field does."""
_FLAGS = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}
_LEADING_ZERO = re.compile(r"[+-]?0[0-9]+$")
_DATE = re.compile(r"\d{4}-\d\d(-\d\d([T ].*)?)?$")
_MANY = 1_000_000
"""Different texts of a column, above which they are hardly repeated."""
_FEW_COLUMNS = 3
"""A first line 0, 1, 2 of so many columns can be an edge with its weight."""
_HEAD = 10_000
"""Lines that decide whether the first has names."""


class WiderColumnError(Exception):
    """A column turned out to be of another type than its first rows; the next reading gives it from the start."""


class Kind:
    """What has been seen of a column, some fields at a time."""

    def __init__(self) -> None:
        self.text = self.decimal = self.flag = self.gap = self.whole = False
        self.low = self.high = 0
        self.words: set[str] = set()
        """Words for missing values that have been seen."""
        self._texts: dict[str, str] = {}
        """The texts of a column with few different ones, so that each is in memory once."""

    def add(self, fields: list[str]) -> None:
        """Take more fields into account."""
        if self.text:
            return
        whole = _whole(fields)
        if whole is None:
            gaps = GAPS.intersection(fields)
            self.gap |= bool(gaps)
            self.words |= gaps
            fields = [field for field in fields if field not in GAPS] if gaps else fields
            whole = _whole(fields)
        if whole:
            self.whole = True
            self.low, self.high = min(self.low, min(whole)), max(self.high, max(whole))
        elif fields:
            if _FLAGS.keys() >= set(fields):
                self.flag = True
            elif _are_decimals(fields):
                self.decimal = True
            else:
                self.text = True
        self.text |= self.flag and (self.whole or self.decimal)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type that all of them have; object for texts, and for whole numbers that no other type holds."""
        if self.text or (self.flag and self.gap):
            return np.dtype(object)
        if self.flag:
            return np.dtype(bool)
        size = max(-self.low, self.high)
        if self.decimal or not self.whole or (self.gap and size <= EXACT):
            return np.dtype(np.float64)
        if not self.gap and -(2**63) <= self.low and self.high < 2**63:
            return np.dtype(np.int64)
        return np.dtype(np.uint64) if not self.gap and 0 <= self.low and self.high < 2**64 else np.dtype(object)

    def array(self, fields: list[str]) -> np.ndarray:
        """Fields as an array of this type."""
        if self.dtype != object:
            convert: Any = {"b": _FLAGS.__getitem__, "f": float}.get(self.dtype.kind, int)
            if self.gap:
                fields = ["nan" if field in GAPS else field for field in fields]
            return np.array([convert(field) for field in fields], self.dtype)
        found = np.empty(len(fields), object)
        if self.text:
            once = self._texts
            if len(once) < _MANY:
                fields = list(map(once.setdefault, fields, fields))
            found[:] = [field or None for field in fields]
        else:
            parse: Any = _FLAGS.__getitem__ if self.flag else int
            found[:] = [None if field in GAPS else parse(field) for field in fields]
        return found


def _whole(fields: list[str]) -> list[int] | None:
    """Whole numbers that are written as Python would write them; None if one is not."""
    try:
        numbers = list(map(int, fields))
    except ValueError:
        return None
    return numbers if list(map(str, numbers)) == fields else None


def _are_decimals(fields: list[str]) -> bool:
    joined = "".join(fields)
    if "_" in joined or not joined.isascii():
        return False
    try:
        list(map(float, fields))
    except ValueError:
        return False
    return not any(map(_LEADING_ZERO.match, fields))


class TextTable:
    """The columns of a CSV file, or of another text file with one row in a line.

    Parameters
    ----------
    path
        The file.
    wanted
        Names of columns: if all are in the first line, it has the names.
    encoding
        That of the file, unless a byte order mark says UTF-16.
    """

    single = False

    def __init__(self, path: Path, wanted: Sequence[str] = (), encoding: str = "utf-8"):
        self.path, self.label, self._encoding = path, path.name, encoding
        with closing(text.blocks(path, encoding)) as first:
            rows = islice(chain.from_iterable(first), _HEAD)
            head = [[field.strip() for field in row] for row in rows]
        if not head:
            raise InvalidValueError(f"{path} is empty: it has no line of names, and no rows.")
        self._has_names, remark = _has_names(head, wanted)
        bare = [f"x{number}" for number in range(len(head[0]))]
        self.names = [name or own for name, own in zip(head[0], bare, strict=True)] if self._has_names else bare
        self._kinds: dict[str, Kind] = {}
        if remark:
            shown = ", ".join(field[:40] for field in head[0][:8]) + (", ..." if len(head[0]) > 8 else "")
            own = bare[0] if len(bare) == 1 else f"{bare[0]} to {bare[-1]}"
            _checks.warn(remark.format(label=self.label, first=shown, own=own))

    def chunks(self, wanted: list[str], numbers: bool = True) -> Iterator[dict[str, np.ndarray]]:
        """Some rows at a time; `WiderColumnError` at the end if a type was wrong: then read them again."""
        places = [self._place(name) for name in wanted]
        kinds = [self._kinds.setdefault(name, Kind()) for name in wanted]
        said: list[tuple[np.dtype[Any], bool]] = []
        skip, row, wider = int(self._has_names), 0, False
        for block in text.blocks(self.path, self._encoding):
            block, skip = block[skip:], 0
            columns = list(zip(*block, strict=True))
            fields = [list(map(str.strip, columns[place])) for place in places] if block else []
            for kind, some in zip(kinds, fields, strict=False):
                kind.add(some)
            now = [(kind.dtype, kind.text) for kind in kinds]  # objects are texts, flags or long whole numbers
            wider |= bool(said) and now != said
            if block and not wider:
                said = now
                made = {n: k.array(some) for n, k, some in zip(wanted, kinds, fields, strict=True)}
                yield {n: self._number(a, n, row) for n, a in made.items()} if numbers else made
            row += len(block)
        if wider:
            raise WiderColumnError
        for name, kind in zip(wanted, kinds, strict=True):
            words = sorted(kind.words - {""})
            if kind.text and words and not numbers:
                _checks.warn(
                    f"column `{name}` of {self.label} has texts: {', '.join(words)} in it is one, not a missing value."
                )

    def _place(self, name: str) -> int:
        if self.names.count(name) > 1:
            raise InvalidValueError(f"{self.label} has several columns named `{name}`. Rename them.")
        return self.names.index(name)

    def _number(self, column: np.ndarray, name: str, row: int) -> np.ndarray:
        """A column of numbers without gaps; anything else is named by its row."""
        where = f"column `{name}` of {self.label}"
        values = column.tolist() if column.dtype == object else []
        if values:
            column = np.array([_as_number(value) for value in values], object)
            bad = next((number for number, value in enumerate(column) if isinstance(value, str)), None)
            if bad is not None:
                raise InvalidTypeError(
                    f"{where} holds text: {values[bad]!r} at row {row + bad} (counted from 0). Encode it as numbers "
                    "(dates: days since the first one), or omit it with columns={...}."
                )
            column = column.astype(np.float64)
        gaps = np.isnan(column) if column.dtype.kind == "f" else np.zeros(0, bool)
        if gaps.any():
            raise InvalidValueError(
                f"{where} has an empty cell or NaN at row {row + int(np.argmax(gaps))} (counted from 0; "
                f"{int(gaps.sum())} in this chunk of {len(gaps)}). Drop these rows or fill the values first."
            )
        return column


def _as_number(value: Any) -> Any:
    """A text such as 007 as a number; other texts as they are."""
    try:
        return np.nan if value is None or value in GAPS else float(value)
    except (TypeError, ValueError):
        return value


def _has_names(head: list[list[str]], wanted: Sequence[str]) -> tuple[bool, str]:
    """Whether the first line has the names of the columns, and what is to be said about it."""
    first, below = head[0], list(zip(*head[1:], strict=True))
    if wanted and set(wanted) <= set(first):
        return True, ""
    here = [_look([field]) for field in first]
    rest = [_look(column) for column in below]
    if all(look in ("number", "gap") for look in here):
        counted = any(first == [str(start + k) for k in range(len(first))] for start in (0, 1))
        many = len(first) > _FEW_COLUMNS or any(_whole(list(column)) is None for column in below)
        return (True, _NAMES) if counted and below and many else (False, _DATA)
    pairs = [pair for pair in zip(here, rest, strict=False) if pair[1] not in ("text", "gap")]
    if any(one != other for one, other in pairs):
        return True, ""
    occurs = any(field in column for field in first if field for column in below)
    if pairs or occurs or len(set(first)) < len(first):
        return False, _DATA
    return True, _NAMES if below else ""


def _look(fields: Sequence[str]) -> str:
    """What fields are: numbers, dates, flags, texts, or only gaps."""
    fields = [field for field in fields if field not in GAPS]
    if not fields:
        return "gap"
    if _are_decimals(list(fields)):
        return "number"
    if all(map(_DATE.match, fields)):
        return "date"
    return "flag" if _FLAGS.keys() >= set(fields) else "text"


_NAMES = (
    "the first line of {label} ({first}) is taken as the names of its columns. If it is data, add a line of names "
    "before it."
)
_DATA = "{label} has no header: its first line ({first}) is read as data. Names of columns: {own}."
