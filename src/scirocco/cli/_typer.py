"""Typer, or one line that says how to get it; and what several commands share."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Any

from scirocco._extras import require
from scirocco.errors import MissingExtraError

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
RUN = typer.Argument(help="The folder of a stored run.", metavar="RUN", show_default=False)


def print_json(value: Any) -> None:
    """Plain values; numbers that JSON does not know (NaN, infinity) become null."""
    import json

    from scirocco._showing import to_json

    print(json.dumps(to_json(value, digits=None), indent=2, ensure_ascii=False, allow_nan=False))


def width() -> int:
    """Of the terminal; a pipe or a log has none of its own, and gets that of the tables."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 140


def print_wrapped(text: str) -> None:
    """Lines broken at the width, at blanks only, and further in than they begin."""
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        parts = textwrap.wrap(
            line, width(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
        print("\n".join(parts))


__all__ = ["JSON", "OUT", "RUN", "print_json", "print_wrapped", "typer", "width"]
