"""CSV files, plain or compressed, read in chunks by pandas."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from scirocco import _checks
from scirocco._extras import require
from scirocco.data.formats.readers import reading
from scirocco.errors import InvalidTypeError, InvalidValueError

CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_CHUNK_VALUES = 1 << 21


class CsvTable:
    """The columns of a CSV file with a header line (without one they are called column0, column1, ...)."""

    single = False

    def __init__(self, path: Path):
        self.path, self.label = path, path.name
        self._pandas = require("pandas", "reading CSV files")
        self._options: dict[str, Any] = {
            "sep": "\t" if ".tsv" in path.name else ",",
            "low_memory": False,
        }
        if tuple(int(part) for part in self._pandas.__version__.split(".")[:2]) < (3, 1):
            self._options["float_precision"] = "round_trip"  # later versions always read the nearest double
        with reading(path):
            self.names = [str(name) for name in self._read(nrows=0).columns]
        if _all_data(self.names):
            self.names = [f"column{i}" for i in range(len(self.names))]
            self._options |= {"header": None, "names": self.names}
            _checks.warn(
                f"the first line of {self.label} holds numbers, not names. It is read as data, and the columns are "
                f"called {self.names[0]} to {self.names[-1]}."
            )

    def _read(self, **options: Any) -> Any:
        try:
            return self._pandas.read_csv(self.path, **self._options, **options)
        except self._pandas.errors.EmptyDataError as error:
            raise InvalidValueError(f"{self.path} is empty: there is no header line.") from error

    def chunks(self, wanted: list[str]) -> Iterator[dict[str, np.ndarray]]:
        """Some lines at a time. A column may be whole numbers in one chunk and decimals in the next."""
        size, row = max(1, _CHUNK_VALUES // len(self.names)), 0
        with reading(self.path):
            # With `usecols` pandas says nothing of lines that are too long, without index_col=False it shifts them.
            reader = self._read(chunksize=size, index_col=False)
        with reader:
            while True:
                with reading(self.path), warnings.catch_warnings():
                    warnings.simplefilter("error", self._pandas.errors.ParserWarning)
                    frame = self._next(reader)
                if frame is None:
                    break
                yield {name: self._column(frame[name], name, row) for name in wanted}
                row += len(frame)

    def _next(self, reader: Any) -> Any:
        try:
            return next(reader, None)
        except self._pandas.errors.ParserWarning as warning:
            raise ValueError("lines have more fields than the header line") from warning

    def _column(self, column: Any, name: str, row: int) -> np.ndarray:
        where = f"column `{name}` of {self.label}"
        if column.dtype.kind not in "fiub":
            numbers = self._pandas.to_numeric(column, errors="coerce")
            text = (numbers.isna() & column.notna()).to_numpy()
            if text.any():
                first = int(np.argmax(text))
                raise InvalidTypeError(
                    f"{where} holds text: {column.iloc[first]!r} at row {row + first} (counted from 0). Encode it as "
                    "numbers (dates: days since the first one), or leave it out with columns={...}."
                )
            column = numbers
        missing = column.isna().to_numpy()
        if missing.any():
            raise InvalidValueError(
                f"{where} has an empty cell or NaN at row {row + int(np.argmax(missing))} (counted from 0; "
                f"{int(missing.sum())} in this chunk of {len(missing)}). Drop these rows or fill the values first."
            )
        return np.asarray(column.to_numpy())


def _all_data(names: list[str]) -> bool:
    """Whether a header line is a row of numbers; different whole numbers may well be the names of pixels."""
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return False
    return not all(
        number.is_integer() and "." not in name for number, name in zip(numbers, names, strict=True)
    )
