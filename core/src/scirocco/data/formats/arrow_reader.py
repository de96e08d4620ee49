"""Parquet and Arrow files, or a folder of them with one schema."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from scirocco._extras import require
from scirocco.data.formats.readers import reading, rows_per_chunk
from scirocco.errors import InvalidTypeError, InvalidValueError

PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather", ".ipc", ".arrows")
_MOST_ROWS = 1 << 17


class ArrowTable:
    """The columns of one or more Parquet or Arrow files."""

    single = False

    def __init__(self, path: Path, files: list[Path]):
        self.path, self.label, self.files = path, path.name, files
        self.schema = _schema(files[0])
        # pandas stores an unnamed index in such a column; it is not data.
        self.names = [name for name in self.schema.names if not re.fullmatch(r"__index_level_\d+__", name)]
        for file in files[1:]:
            self._compare(file)
        self._shapes: dict[str, tuple[int, ...]] = {}

    def _compare(self, file: Path) -> None:
        other, first = _schema(file), self.files[0].name
        for name in self.schema.names:
            if other.get_field_index(name) < 0:
                raise InvalidValueError(f"{file.name} has no column `{name}`, but {first} has. {_SAME_SCHEMA}")
            types = self.schema.field(name).type, other.field(name).type
            if types[0] != types[1]:
                raise InvalidValueError(
                    f"column `{name}` is {types[1]} in {file.name} but {types[0]} in {first}. {_SAME_SCHEMA}"
                )
        extra = [name for name in other.names if self.schema.get_field_index(name) < 0]
        if extra:
            raise InvalidValueError(f"{file.name} has a column `{extra[0]}` that {first} lacks. {_SAME_SCHEMA}")

    def chunks(self, wanted: list[str], numbers: bool = True) -> Iterator[dict[str, np.ndarray]]:
        """Batches of rows of every file in turn."""
        for name in wanted:
            if self.schema.names.count(name) > 1:
                raise InvalidValueError(f"{self.label} has several columns named `{name}`. Rename them.")
            if numbers:
                _check_type(self.schema.field(name).type, f"column `{name}` of {self.label}")
        for file in self.files:
            batches, row = _batches(file, wanted), 0
            while True:
                with reading(file):
                    batch = next(batches, None)
                if batch is None:
                    break
                columns = {name: batch.column(name) for name in wanted}
                yield {
                    name: self._column(column, name, file, row) if numbers else any_values(column)
                    for name, column in columns.items()
                }
                row += batch.num_rows

    def _column(self, column: Any, name: str, file: Path, row: int) -> np.ndarray:
        values = _values(column, f"column `{name}` of {file.name}", row)
        shape = self._shapes.setdefault(name, values.shape[1:])
        if values.shape[1:] != shape:
            raise InvalidValueError(
                f"column `{name}` of {file.name} is ragged: lists of shape {values.shape[1:]} from row {row} on, of "
                f"shape {shape} before. All rows must have the same length: pad or split them."
            )
        return values


_SAME_SCHEMA = "All files of a folder must have the same columns and types: cast or remove the others."


def _schema(file: Path) -> Any:
    with reading(file):
        if file.suffix.lower() in PARQUET:
            parquet = require("pyarrow.parquet", "reading Parquet files")
            with parquet.ParquetFile(file) as opened:
                return opened.schema_arrow
        with _open_ipc(file) as reader:
            return reader.schema


def _open_ipc(file: Path) -> Any:
    """The file format, or the stream format."""
    arrow = require("pyarrow", "reading Arrow files")
    ipc = require("pyarrow.ipc", "reading Arrow files")
    if file.stat().st_size == 0:
        raise ValueError("the file is empty")
    mapped = arrow.memory_map(str(file))
    if mapped.read(6) == b"ARROW1":
        return ipc.open_file(mapped)
    mapped.seek(0)
    return ipc.open_stream(mapped)


def _batches(file: Path, wanted: list[str]) -> Iterator[Any]:
    """Record batches of moderate size."""
    if file.suffix.lower() in PARQUET:
        parquet = require("pyarrow.parquet", "reading Parquet files")
        # A small buffer: otherwise whole row groups are kept undecoded.
        with parquet.ParquetFile(file, buffer_size=1 << 16, pre_buffer=False) as opened:
            meta = opened.metadata
            groups = range(meta.num_row_groups)
            total = sum(meta.row_group(i).total_byte_size for i in groups)
            # Encoded sizes are misleading for repetitive columns, hence a limit on the rows as well.
            size = min(_MOST_ROWS, rows_per_chunk(total / max(1, meta.num_rows)))
            yield from opened.iter_batches(size, columns=wanted)
        return
    with _open_ipc(file) as reader:
        for batch in _record_batches(reader):
            batch = batch.select(wanted)
            size = min(_MOST_ROWS, rows_per_chunk(batch.nbytes / max(1, batch.num_rows)))
            for start in range(0, batch.num_rows, size):
                yield batch.slice(start, size)


def _record_batches(reader: Any) -> Iterator[Any]:
    if isinstance(reader, require("pyarrow.ipc", "reading Arrow files").RecordBatchFileReader):
        return (reader.get_batch(i) for i in range(reader.num_record_batches))
    return iter(reader)


def _check_type(kind: Any, name: str) -> None:
    """Raise an error, before anything is read, for types that cannot become an array of numbers."""
    types = require("pyarrow", "reading Arrow files").types
    advice = None
    if types.is_dictionary(kind):
        return _check_type(kind.value_type, name)
    if isinstance(kind, require("pyarrow", "reading Arrow files").BaseExtensionType):
        return _check_type(kind.storage_type, name)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _check_type(kind.value_type, name)
    if types.is_temporal(kind):
        advice = "dates or times: convert them to numbers, e.g. days since the first one"
    elif types.is_struct(kind) or types.is_map(kind) or types.is_union(kind):
        advice = "nested records: flatten them into columns"
    elif types.is_decimal(kind):
        advice = "decimal numbers: cast them to double"
    elif types.is_null(kind):
        advice = "only nulls: fill them"
    elif not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        advice = "text or bytes: encode it as numbers (0, 1, 2, ...)"
    if advice:
        raise InvalidTypeError(f"{name} has type {kind}, which holds {advice} first, or omit it with columns={{...}}.")
    return None


def _values(array: Any, name: str, row: int) -> np.ndarray:
    """A column of a batch as an array; lists of equal length become further axes."""
    arrow = require("pyarrow", "reading Arrow files")
    if array.null_count:
        first = row + int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        raise InvalidValueError(
            f"{name} has a null at row {first} (counted from 0; {array.null_count} in this batch of {len(array)}). "
            "Drop these rows or fill the values first."
        )
    if isinstance(array.type, arrow.FixedShapeTensorType):
        return np.asarray(array.to_numpy_ndarray())
    if isinstance(array.type, arrow.BaseExtensionType):
        return _values(array.storage, name, row)
    types = arrow.types
    if types.is_dictionary(array.type):
        return _values(array.dictionary_decode(), name, row)
    if types.is_fixed_size_list(array.type):
        return _nested(array.flatten(), len(array), array.type.list_size, name, row)
    if types.is_list(array.type) or types.is_large_list(array.type):
        lengths = np.diff(array.offsets.to_numpy())
        if len(lengths) and (lengths != lengths[0]).any():
            odd = int(np.argmax(lengths != lengths[0]))
            raise InvalidValueError(
                f"{name} is ragged: row {row + odd} (counted from 0) has a list of length {lengths[odd]}, the rows "
                f"before of length {lengths[0]}. All rows must have the same length: pad or split them."
            )
        return _nested(array.flatten(), len(array), int(lengths[0]) if len(lengths) else 0, name, row)
    return np.asarray(array.to_numpy(zero_copy_only=False))


def any_values(column: Any) -> np.ndarray:
    """A column of any type: whole numbers exact, missing values of all but decimal numbers and dates as None."""
    types = require("pyarrow", "reading Arrow files").types
    kind = column.type
    if types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    plain = types.is_floating(kind) or types.is_temporal(kind) or not column.null_count
    if plain or types.is_string(kind) or types.is_large_string(kind):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    found = np.empty(len(column), object)
    found[:] = column.to_pylist()
    return found


def _nested(flat: Any, length: int, width: int, name: str, row: int) -> np.ndarray:
    if flat.null_count:
        first = row + int(np.argmax(flat.is_null().to_numpy(zero_copy_only=False))) // max(1, width)
        raise InvalidValueError(
            f"{name} has a null inside the list of row {first} (counted from 0). Fill the values first."
        )
    values = _values(flat, name, row)
    return values.reshape(length, width, *values.shape[1:])
