"""Typer, or one line that says how to get it; and what several commands share."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from scirocco._extras import require
from scirocco._showing import print_wrapped, to_json, width
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
RESUME = typer.Option("--resume", help="Go on with the run in RUN, if there is one; same options.")
OVERWRITE = typer.Option("--overwrite", help="Delete the run in RUN first.")
RUN = typer.Argument(help="The folder of a stored run.", metavar="RUN", show_default=False)


def print_json(value: Any) -> None:
    """Plain values; numbers that JSON does not know (NaN, infinity) become null."""
    import json

    print(json.dumps(to_json(value, digits=None), indent=2, ensure_ascii=False, allow_nan=False))


__all__ = ["JSON", "OUT", "OVERWRITE", "RESUME", "RUN", "print_json", "print_wrapped", "typer", "width"]
