"""Output of commands: tables (plain text if rich is not installed), values for JSON, folders.

Separate from the packages that use it, so that a command that only prints something starts fast.
"""

from __future__ import annotations

import importlib.util
import math
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scirocco.errors import InvalidValueError

_STYLES = {"yes": "green", "NO": "bold red"}


_CONTROLS = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]")


def neutral(text: str) -> str:
    r"""Make control characters visible: a word or a name from a file must not send commands to the terminal.

    >>> neutral("sun \x1b[2J moon")
    'sun \\x1b[2J moon'
    """
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = (), lines: bool = False
) -> None:
    """Print rows of text under headings; the columns numbered in `right` are aligned to the right."""
    title, columns = neutral(title), [neutral(column) for column in columns]
    rows = [[neutral(cell) for cell in row] for row in rows]
    if importlib.util.find_spec("rich") is None:
        _print_plain(title, columns, rows, right)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, show_lines=lines)
    if right:  # numbers: narrow, for a terminal of 80 columns
        table.padding, table.show_edge = (0, 0), False
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    console = Console()
    wide = console if console.is_terminal else Console(width=140)  # a pipe or a log has no width of its own
    wide.print(table)


def _print_plain(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> None:
    rows = [[" ".join(cell.split()) for cell in row] for row in rows]
    columns = [" ".join(column.split()) for column in columns]
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    print(title)
    for row in [columns, ["-" * width for width in widths], *rows]:
        cells = [
            cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def to_json(value: Any, digits: int | None = 6) -> Any:
    """NumPy numbers and arrays as lists, floats with `digits` digits (None: all), null for NaN and infinity."""
    if isinstance(value, dict):
        return {str(key): to_json(item, digits) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item, digits) for item in value]
    if isinstance(value, np.ndarray):
        return to_json(value.tolist(), digits)
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (float, np.floating)):
        if not math.isfinite(value):
            return None
        return float(value) if digits is None else float(f"{value:.{digits}g}")
    return int(value) if isinstance(value, np.integer) else value


def width() -> int:
    """The width of the terminal; a pipe or a log, which has none, gets that of the tables."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 140


def print_wrapped(text: str) -> None:
    """Print lines wrapped at the width, at spaces only, with continuation lines indented."""
    for line in neutral(text).splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        parts = textwrap.wrap(line, width(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        print("\n".join(parts))


def make_folder(path: Path) -> None:
    """Create a folder for results before the work starts; raise an error if it cannot be created."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValueError(f"results cannot be written to {path}: {error.strerror or error}.") from error
