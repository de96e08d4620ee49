"""Word counts of plain text: a file with one document per line, or a folder with one document per file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from scirocco._checks import is_number, positive_int
from scirocco.data.formats.readers import reading
from scirocco.data.native.header import FILE_NAME as FOLDER_HEADER
from scirocco.errors import InvalidValueError
from scirocco.models.lda.corpus import Corpus, as_corpus
from scirocco.models.lda.embedded import STOP_WORDS
from scirocco.models.lda.readers import Vocabulary, open_text

LEAST_DOCUMENTS, MOST_SHARE = 5, 0.5
_WORD = re.compile(r"[^\W\d_]{3,}")  # letters of any alphabet
_COUNTS, _WORDS = "docword.", "vocab."


class Opened(NamedTuple):
    """A corpus, and the names of its documents, if any."""

    corpus: Corpus
    names: tuple[str, ...] | None


def words_of(text: str) -> list[str]:
    """Words of three or more letters in lower case, without English stop words, numbers and punctuation.

    The rule of the embedded corpus, for letters of any alphabet.

    Examples
    --------
    >>> words_of("The FFT of a 2-D array; naïve, не быстро.")
    ['fft', 'array', 'naïve', 'быстро']
    """
    return [word for word in _WORD.findall(text.lower()) if word not in STOP_WORDS]


def open_corpus(
    path: Path,
    vocabulary: Vocabulary = None,
    *,
    min_documents: int = LEAST_DOCUMENTS,
    max_share: float = MOST_SHARE,
) -> Opened:
    r"""Open a corpus on disk in any known format: matrices as for `as_corpus`, and plain text.

    In a folder with `.txt` files (also in subfolders), each file is a document. Any other file that does not start like
    a UCI or Matrix Market file is text with one document per line, also compressed (`.gz`). Empty lines are empty
    documents, so that line and row numbers agree.

    Parameters
    ----------
    path
        Path of the corpus.
    vocabulary
        As for `as_corpus`. Without it the words of a text are learned, most frequent first; for a UCI file
        `docword.NAME.txt`, the file `vocab.NAME.txt` in the same folder is used if it exists.
    min_documents, max_share
        For learned words: the least number of documents that contain them, and the largest fraction of documents.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "lines.txt"
    >>> _ = path.write_text("sun and moon\nmoon, moon!\n")
    >>> open_corpus(path, min_documents=1, max_share=1.0).corpus
    Corpus(2 documents, 2 words, 4 tokens, 0 empty)
    """
    path = path.expanduser()
    if not path.exists():
        raise InvalidValueError(f"there is no file or folder {path}.")
    if not _is_text(path):
        given = vocabulary if vocabulary is not None else _beside(path)
        return Opened(as_corpus(path, given), None)
    files = _files(path) if path.is_dir() else None
    words = _learned(_bags(path, files), min_documents, max_share, path) if vocabulary is None else vocabulary
    names = None if files is None else tuple(file.relative_to(path).as_posix() for file in files)
    return Opened(as_corpus(_bags(path, files), words), names)


def _is_text(path: Path) -> bool:
    """Whether a file or folder contains text; data folders and matrices do not."""
    if path.is_dir():
        return not (path / FOLDER_HEADER).exists()
    if path.suffix in (".npz", ".npy"):
        return False
    with reading(path), open_text(path) as file:
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


def _bags(path: Path, files: list[Path] | None) -> Iterator[Counter[str]]:
    """Yield the words of each document; texts are read twice instead of being stored."""
    if files is None:
        with reading(path), open_text(path) as lines:
            for line in lines:
                yield Counter(words_of(line))
        return
    for file in files:
        with reading(file):
            text = file.read_text("utf-8")
        yield Counter(words_of(text))


def _learned(bags: Iterable[Counter[str]], least: int, max_share: float, path: Path) -> tuple[str, ...]:
    """Words that are neither rare nor too common, most frequent first and ties in alphabetical order."""
    positive_int(least, "min_documents")
    if not is_number(max_share) or not 0 < float(max_share) <= 1:
        raise InvalidValueError(f"`max_share` must be above 0 and at most 1, got {max_share}.")
    seen_in, total, num_documents = Counter[str](), Counter[str](), 0
    for bag in bags:
        seen_in.update(bag.keys())
        total.update(bag)
        num_documents += 1
    if not total:
        raise InvalidValueError(f"{path} has no words (three or more letters, no English stop words).")
    kept = [word for word, count in seen_in.items() if least <= count <= float(max_share) * num_documents]
    if not kept:
        raise InvalidValueError(
            f"{path}: none of {len(seen_in):,} words is in at least {least} and at most {max_share:.0%} of "
            f"{num_documents:,} documents, so the corpus is empty. Decrease min-documents, increase max-share, or pass "
            "a vocabulary."
        )
    return tuple(sorted(kept, key=lambda word: (-total[word], word)))
