"""Texts as users have them: lists, columns, tables (CSV, TSV, JSON lines, Parquet), lines, folders of files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scirocco import _checks
from scirocco.data.formats.conversion import TABLES, open_table, read_columns
from scirocco.data.formats.text import decoding
from scirocco.data.native.header import FILE_NAME as FOLDER_HEADER
from scirocco.data.values import Frame, Series, missing
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco_latent.lda.corpus import Corpus, as_corpus
from scirocco_latent.lda.readers import Vocabulary
from scirocco_latent.lda.tokeniser import WITHOUT_SPACES, as_tokeniser, count_words

_COUNTS, _WORDS = "docword.", "vocab."
_LINES = (".jsonl", ".ndjson")
_TABLES = (*TABLES, *_LINES)
_MOST_NAMES = 20
"""Names of columns in a message."""


class Texts(NamedTuple):
    """Texts that can be read several times."""

    read: Callable[[], Iterator[str]]
    number: int
    where: str
    """Where they are, for messages."""
    names: tuple[str, ...] | None = None


class OpenedCorpus(NamedTuple):
    """A corpus, and the names of its documents, if any."""

    corpus: Corpus
    names: tuple[str, ...] | None


def open_corpus(
    X: object,
    vocabulary: Vocabulary = None,
    *,
    column: str | None = None,
    encoding: str = "utf-8",
    tokeniser: object = None,
    known: Sequence[str] = (),
    may_be_empty: bool = False,
) -> OpenedCorpus:
    r"""Open documents in any known format: texts, or counts as for `as_corpus`.

    Parameters
    ----------
    X
        A list or column of texts; a data frame with `column`; the path of a table (CSV, TSV, JSON lines, Parquet) with
        `column`; of a text file with one document per line (also `.gz`; empty lines are empty documents, so that line
        and row numbers agree); of a folder with `.txt` files, each a document; or counts.
    vocabulary
        As for `as_corpus`. Without it the words of texts are learned, most frequent first; for a UCI file
        `docword.NAME.txt`, the file `vocab.NAME.txt` in the same folder is used if it exists.
    column
        The column that has the texts.
    encoding
        Of text files and tables.
    tokeniser
        A `Tokeniser`, a function from a text to words, the language of the stop words, or None: a `Tokeniser()`.
    known
        Words that are kept in any case, if words are learned.
    may_be_empty
        As for `as_corpus`.

    Examples
    --------
    >>> open_corpus(["The sun and the moon.", "Moon, moon!"]).corpus
    Corpus(2 documents, 2 words, 4 tokens, 0 empty)
    """
    if isinstance(X, (str, os.PathLike)):
        X = [X] if _is_prose(X) else _path(X)
    texts = as_texts(X, column, encoding)
    if texts is None:
        given = vocabulary if vocabulary is not None or not isinstance(X, Path) else _beside(X)
        return OpenedCorpus(as_corpus(X, given, may_be_empty=may_be_empty), None)
    split = as_tokeniser(tokeniser)
    corpus = count_words(texts.read, texts.number, split, vocabulary, known, texts.where, may_be_empty)
    return OpenedCorpus(corpus, texts.names)


def _path(given: str | os.PathLike[str]) -> Path:
    """A path, as typed, for messages."""
    _checks.path(given, "X")
    return Path(given).expanduser()


def _is_prose(X: object) -> bool:
    """Whether a string is a text rather than a path."""
    return isinstance(X, str) and len(X) > 200 and not Path(X[:4000]).exists()


def is_text(X: object, column: str | None, encoding: str) -> bool:
    """Whether X has texts rather than counts."""
    prose = isinstance(X, (str, os.PathLike)) and _is_prose(X)
    path = isinstance(X, (str, os.PathLike)) and not prose
    return prose or as_texts(_path(X) if path else X, column, encoding) is not None  # type: ignore[arg-type]


def as_texts(X: object, column: str | None = None, encoding: str = "utf-8") -> Texts | None:
    """The texts of X; None if X has counts, words or ids."""
    if isinstance(X, Path):
        return _of_path(X, column, encoding)
    if isinstance(X, Frame):
        return _of_frame(X, column)
    if column is not None:
        raise InvalidTypeError(f"`column` requires a data frame or a table on disk; `X` is a {type(X).__name__}.")
    if isinstance(X, (list, tuple, np.ndarray, Series)):
        values: Any = X.to_numpy() if isinstance(X, Series) and not isinstance(X, np.ndarray) else X
        if isinstance(values, np.ndarray) and (values.ndim != 1 or values.dtype.kind not in "OUT"):
            return None
        first = next((value for value in values if not missing(value)), None)
        return _of_values(values, "`X`") if isinstance(first, str) else None
    return None


def _of_values(values: Sequence[Any], where: str) -> Texts:
    """Texts in memory; missing ones are empty."""
    texts = []
    for number, value in enumerate(values):
        if not isinstance(value, str) and not missing(value):
            raise InvalidTypeError(
                f"{where} must contain texts; entry {number} (counted from 0) is {value!r:.40} "
                f"({type(value).__name__})."
            )
        texts.append(value if isinstance(value, str) else "")
    if len(texts) > 1 and not any(" " in text.strip() or WITHOUT_SPACES.search(text) for text in texts):
        raise InvalidValueError(
            f"each text of {where} is a single word, such as {next(filter(None, texts), '')!r}. If it is one document "
            "as a list of words, pass a list of such documents: [[...], [...]]."
        )
    return Texts(lambda: iter(texts), len(texts), where)


# -- data frames -------------------------------------------------------------------------------------------------------


def _of_frame(frame: Any, column: str | None) -> Texts | None:
    names = list(frame.columns)
    if column is not None:
        if column not in names:
            raise InvalidValueError(f"there is no column {column!r}: the columns are {_listed(names)}.")
        return _of_values(list(frame[column].to_numpy()), f"column {column!r}")
    with_text = [name for name in names if _is_text_column(frame[name])]
    if with_text:
        longest = max(with_text, key=lambda name: _length(frame[name]))
        raise InvalidTypeError(
            f"`X` is a data frame with texts: pass column={longest!r}, or another one that has the documents. "
            f"Columns with text are {_listed(with_text)}; for counts, pass only the columns of words."
        )
    return None


def _is_text_column(column: Any) -> bool:
    values = column.to_numpy()
    first = next((value for value in values[:50] if not missing(value)), None)
    return isinstance(first, str)


def _length(column: Any) -> int:
    """The number of characters of the first texts."""
    return sum(len(value) for value in column.to_numpy()[:50] if isinstance(value, str))


def _listed(names: Sequence[Any]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(map(repr, names[:_MOST_NAMES])) + more


# -- files -------------------------------------------------------------------------------------------------------------


def _of_path(path: Path, column: str | None, encoding: str) -> Texts | None:
    if not path.exists():
        raise InvalidValueError(f"there is no file or folder {path}. A single text is passed as a list: [text].")
    if _kind(path):
        found = table_column(path, column, encoding)
        if not found:
            raise InvalidValueError(f"{path} has no rows.")
        return _of_values(found, f"column {column!r} of {path.name}")
    if column is not None:
        raise InvalidValueError(f"`column` is for tables ({', '.join(_TABLES)}); {path.name} is none.")
    if not _is_text(path, encoding):
        return None
    if path.is_dir():
        files = _files(path)
        names = tuple(file.relative_to(path).as_posix() for file in files)
        return Texts(lambda: (_whole(file, encoding) for file in files), len(files), str(path), names)
    return Texts(lambda: _lines(path, encoding), sum(1 for _ in _lines(path, encoding)), str(path))


def _lines(path: Path, encoding: str) -> Iterator[str]:
    with decoding(path, encoding) as file:
        for line in file:
            yield line.rstrip("\r\n")


def _whole(path: Path, encoding: str) -> str:
    with decoding(path, encoding) as file:
        return file.read()


def _is_text(path: Path, encoding: str) -> bool:
    """Whether a file or folder contains text; data folders and matrices do not."""
    if path.is_dir():
        return not (path / FOLDER_HEADER).exists()
    if path.suffix in (".npz", ".npy"):
        return False
    with decoding(path, encoding) as file:
        first = file.readline(80).strip()
    return not (first.startswith("%%MatrixMarket") or first.isdigit())


def _beside(path: Path) -> Path | None:
    """The word list that belongs to a UCI file."""
    if not path.name.startswith(_COUNTS):
        return None
    stem = path.name.removeprefix(_COUNTS).removesuffix(".gz")
    for name in (stem, stem + ".gz"):
        found = path.with_name(_WORDS + name)
        if found.is_file():
            return found
    return None


def _files(path: Path) -> list[Path]:
    found = sorted(file for file in path.rglob("*.txt") if file.is_file())
    if not found:
        raise InvalidValueError(
            f"{path} is neither a data folder nor a folder with .txt files. Put one document in each file, or pass "
            "the path of a file with one document per line."
        )
    return found


# -- tables ------------------------------------------------------------------------------------------------------------


def _kind(path: Path) -> str:
    """The ending of a file if it is a table, else nothing."""
    name = path.name.lower().removesuffix(".gz")
    return next((each for each in _TABLES if name.endswith(each)), "")


def table_column(path: Path, column: str | None, encoding: str = "utf-8") -> list[Any]:
    """The values of a column of a table: texts, dates, sources."""
    if not _kind(path):
        raise InvalidValueError(f"{path.name} has no columns: pass a table ({', '.join(_TABLES)}).")
    if _kind(path) in _LINES:
        return list(_json_records(path, column, encoding))
    table = open_table(path, [] if column is None else [column], encoding)
    chosen = _need_column(path, column, table.names)
    values = read_columns(table, [chosen])[chosen]
    return list(values) if values.dtype.kind == "M" else values.tolist()


def column_of(X: object, column: str, encoding: str = "utf-8") -> list[Any]:
    """Another column of documents: of a data frame, or of a table on disk."""
    if isinstance(X, Frame):
        if column not in list(X.columns):
            raise InvalidValueError(f"there is no column {column!r}: the columns are {_listed(list(X.columns))}.")
        return list(X[column].to_numpy())
    if isinstance(X, (str, os.PathLike)):
        return table_column(_path(X), column, encoding)
    raise InvalidTypeError(
        f"{column!r} can be the name of a column only if `X` is a data frame or the path of a table; otherwise pass a "
        f"list with an entry for each document. `X` is a {type(X).__name__}."
    )


def as_numbers(values: Any) -> np.ndarray:
    """Groups or times in order: as numbers or dates if all of them are, such as the years of a CSV file."""
    given = np.asarray(values)
    if given.dtype.kind not in "OUT":
        return given
    texts = given.astype(str)
    try:
        numbers = texts.astype(np.float64)
    except ValueError:
        if not all(text[:4].isdigit() for text in texts.flat):
            return texts
        try:
            return texts.astype("datetime64")
        except ValueError:
            return texts
    return numbers.astype(np.int64) if np.all(numbers == np.floor(numbers)) else numbers


def _need_column(path: Path, column: str | None, names: Sequence[Any]) -> str:
    if column is None:
        raise InvalidValueError(
            f"{path.name} is a table: pass column=..., the column that has the texts. The columns are {_listed(names)}."
        )
    if column not in names:
        raise InvalidValueError(f"{path.name} has no column {column!r}: the columns are {_listed(names)}.")
    return column


def _json_records(path: Path, column: str | None, encoding: str) -> Iterator[Any]:
    with decoding(path, encoding) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                found = json.loads(line)
            except json.JSONDecodeError as error:
                raise InvalidValueError(f"line {number} of {path} is not JSON: {error}.") from error
            if isinstance(found, str) and column is None:
                yield found
                continue
            if not isinstance(found, dict):
                raise InvalidValueError(f"line {number} of {path} is a {type(found).__name__}, expected an object.")
            yield found.get(_need_column(path, column, list(found) if column is None or number == 1 else [column]))
