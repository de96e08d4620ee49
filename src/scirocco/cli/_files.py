"""Files that commands write: whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scirocco.errors import InvalidValueError


@contextmanager
def drafted(path: Path) -> Iterator[Path]:
    """A name to write to, which becomes `path` when all is written; Ctrl-C leaves what was there."""
    draft = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield draft
        draft.replace(path)
    except OSError as error:
        raise InvalidValueError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):  # there is none
            draft.unlink()


def write_whole(path: Path, text: str) -> None:
    """A text file, whole or not at all."""
    with drafted(path) as draft:
        draft.write_text(text, "utf-8")
