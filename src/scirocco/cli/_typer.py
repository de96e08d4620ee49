"""Typer, or one line that says how to get it; and what several commands share."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from scirocco._extras import require
from scirocco.errors import MissingExtraError

if TYPE_CHECKING:
    import typer
else:
    try:
        typer = require("typer", "the command line of scirocco")
    except MissingExtraError as missing:
        print(f"scirocco: {missing}", file=sys.stderr)
        sys.exit(2)

OUT = typer.Option("--out", metavar="DIR", help="Folder for results; made when it is missing.")

__all__ = ["OUT", "typer"]
