"""Lines and fields of text files: encodings, compression, quotes, and the same number of fields in every line."""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from scirocco.data.formats.readers import reading
from scirocco.data.sizes import READING
from scirocco.errors import InvalidValueError

DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": " ", ".edges": " ", ".edgelist": " "}
"""What is between fields, by the ending of the file; a space stands for several, and there `#` begins a comment."""
_BLOCK_CHARACTERS = 1 << 24
"""Characters that are held as Python strings at once."""
_COMMENT = re.compile(r"(^|\s)#.*")


def delimiter_of(path: Path) -> str | None:
    """What is between the fields of a text file; None for other files."""
    return DELIMITERS.get(Path(path.name.lower().removesuffix(".gz")).suffix)


@contextmanager
def decoding(path: Path, encoding: str = "utf-8") -> Iterator[TextIO]:
    """A text file, opened; bytes that are not in the encoding are named by their line.

    A byte order mark is not part of the text, and tells UTF-16 from UTF-8.
    """
    try:
        "".encode(encoding)
    except LookupError:
        raise InvalidValueError(
            f"there is no encoding {encoding!r}; usual ones are utf-8, cp1252 and utf-16."
        ) from None
    with reading(path):
        name = _encoding(path, encoding)
        with io.TextIOWrapper(_bytes(path), encoding=name, newline="") as file:
            try:
                yield file
            except UnicodeDecodeError as error:
                raise InvalidValueError(_undecodable(path, name, error)) from error


def _bytes(path: Path) -> Any:
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else open(path, "rb")


def _encoding(path: Path, encoding: str) -> str:
    if encoding.lower().replace("_", "-") not in ("utf-8", "utf8"):
        return encoding
    with _bytes(path) as file:
        mark = file.read(2)
    return "utf-16" if mark in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"


def _undecodable(path: Path, encoding: str, error: UnicodeDecodeError) -> str:
    with _bytes(path) as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode(encoding)
            except UnicodeDecodeError as found:
                bad = line[found.start : found.start + 1]
                name = encoding.removesuffix("-sig")
                return (
                    f"{path} cannot be read as {name}: line {number} has the byte 0x{bad.hex()}. Convert the file to "
                    'UTF-8, or pass its encoding where that is possible, such as encoding="cp1252" (Western Windows) '
                    'or "utf-16"; if encodings are mixed, convert that line first.'
                )
    return f"{path} cannot be read as {encoding}: {error}. Pass its encoding."


class _Lines:
    """The lines of a file for the CSV parser, counted."""

    def __init__(self, file: TextIO, path: Path, spaces: bool):
        self._file, self._path, self._spaces = file, path, spaces
        self.number = self.characters = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._file.readline(READING.line_characters)
        if not line:
            raise StopIteration
        self.number += 1
        self.characters += len(line)
        if len(line) >= READING.line_characters:
            raise InvalidValueError(
                f"line {self.number} of {self._path} has more than {READING.line_characters:,} characters: "
                "it is no table."
            )
        if "\0" in line:
            raise InvalidValueError(
                f"line {self.number} of {self._path} has a null character: it is damaged, or no text file."
            )
        if not self._spaces:
            return line
        if "#" in line and not (line := _COMMENT.sub("", line)).strip():
            return next(self)
        return " ".join(line.split()) if '"' not in line else line.replace("\t", " ").strip()


def blocks(path: Path, encoding: str = "utf-8") -> Generator[list[list[str]], None, None]:
    """The lines of a table as lists of fields, many at a time; the first line decides how many fields a line has.

    Spaces around a field are not part of it. Blank lines are allowed at the end only.
    """
    delimiter = delimiter_of(path) or ","
    csv.field_size_limit(max(csv.field_size_limit(), READING.line_characters))
    with decoding(path, encoding) as file:
        if delimiter == ",":
            delimiter = _separator(file)
        lines = _Lines(file, path, delimiter == " ")
        rows = csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=True)
        block, start, width, blank, first = list[list[str]](), 0, 0, 0, 1
        try:
            for row in rows:
                if len(row) != width or blank or not row:
                    width = width or len(row)
                    blank = _check_fields(row, width, blank, first, path)
                if row:
                    block.append(row)
                first = lines.number + 1
                if len(block) * width >= READING.text_values or lines.characters - start >= _BLOCK_CHARACTERS:
                    yield block
                    block, start = [], lines.characters
        except csv.Error as error:
            raise InvalidValueError(
                f"{path} has a broken quote in the record that begins in line {first} ({error}): a text in double "
                "quotes must end with one, and a quote inside it must be doubled."
            ) from error
        if block:
            yield block


def _separator(file: TextIO) -> str:
    """The comma, or what is there instead of it in the first line."""
    first = file.readline(READING.line_characters)
    file.seek(0)
    return next((sign for sign in ";\t" if "," not in first and sign in first), ",")


def _check_fields(row: list[str], width: int, blank: int, line: int, path: Path) -> int:
    """Raise an error for a line with more or fewer fields than the first; return the first of some blank lines."""
    if not row:
        return blank or line
    if blank:
        raise InvalidValueError(
            f"line {blank} of {path} is blank, and others follow: remove it, or write NA where a value is missing."
        )
    if len(row) != width:
        raise InvalidValueError(
            f"line {line} of {path} has {len(row)} fields, the first line {width}: all lines must have as many. A text "
            "with a comma or a line break must be in double quotes, and a quote in it doubled."
        )
    return 0
