"""What several commands share: Typer (or one line that says how to get it), options, JSON, files whole or absent."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from scirocco._console import print_wrapped, to_json, width
from scirocco._extras import require
from scirocco.errors import InvalidValueError, MissingExtraError

if TYPE_CHECKING:
    import typer
    import typer.core
else:
    try:
        typer = require("typer", "the command line of scirocco")
        require("typer.core", "the command line of scirocco")
    except MissingExtraError as missing:
        print(f"scirocco: {missing}", file=sys.stderr)
        sys.exit(2)

OUT = typer.Option("--out", metavar="DIR", help="Folder for results; made when it is missing.")
JSON = typer.Option("--json", help="For programs.")
RESUME = typer.Option("--resume", help="Go on with the run in RUN, if there is one; same options.")
OVERWRITE = typer.Option("--overwrite", help="Delete the run in RUN first.")
RUN = typer.Argument(help="The folder of a stored run.", metavar="RUN", show_default=False)


def print_json(value: object) -> None:
    """Plain values; numbers that JSON does not know (NaN, infinity) become null."""
    import json

    print(json.dumps(to_json(value, digits=None), indent=2, ensure_ascii=False, allow_nan=False))


@contextmanager
def drafted(path: Path) -> Iterator[Path]:
    """A name to write to, which becomes `path` when all is written; Ctrl-C leaves what was there."""
    draft = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    from scirocco.store import files

    try:
        with files.drafted(str(draft), str(path)):
            yield draft
    except OSError as error:
        raise InvalidValueError(f"{path} cannot be written: {error.strerror or error}.") from error


def write_whole(path: Path, text: str) -> None:
    """A text file, whole or not at all."""
    with drafted(path) as draft:
        draft.write_text(text, "utf-8")


__all__ = [
    "JSON",
    "OUT",
    "OVERWRITE",
    "RESUME",
    "RUN",
    "drafted",
    "print_json",
    "print_wrapped",
    "typer",
    "width",
    "write_whole",
]
