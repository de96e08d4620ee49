"""Tables on the terminal: with rich where it is installed, as plain text where it is not."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

from scirocco.experiments.base import Experiment, Reproduction

_STYLES = {"yes": "green", "NO": "bold red"}


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[int] = (),
    lines: bool = False,
) -> None:
    """Print rows of text under headings; the columns numbered in `right` are aligned to the right."""
    if importlib.util.find_spec("rich") is None:
        _print_plain(title, columns, rows, right)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, show_lines=lines
    )
    if right:  # numbers: narrow, for a terminal of 80 columns
        table.padding, table.show_edge = (0, 0), False
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    console = Console()
    wide = console if console.is_terminal else Console(width=140)  # a pipe or a log has no width of its own
    wide.print(table)


def _print_plain(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]
) -> None:
    rows = [[" ".join(cell.split()) for cell in row] for row in rows]
    columns = [" ".join(column.split()) for column in columns]
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    print(title)
    for row in [columns, ["-" * width for width in widths], *rows]:
        cells = [
            cell.rjust(w) if i in right else cell.ljust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def print_reproduction(done: Reproduction) -> None:
    """The verdicts, the findings and where the files are."""
    rows = []
    for claim in done.outcome.claims:
        why = f"\nnot counted: {claim.because}" if claim.because else ""
        rows.append([f"«{claim.paper}»", f"{claim.here}\n(rule: {claim.rule}){why}", claim.verdict])
    title = f"{done.experiment.title} ({done.experiment.figure})"
    print_table(title, ["the paper's claim", "here", "holds"], rows, lines=True)
    for note in done.outcome.notes:
        print(f"  note: {note}")
    print(f"\n  {done.record}\n  {done.picture}\n  {done.seconds:.0f} s")
    sys.stdout.flush()


def print_experiments(experiments: Sequence[Experiment]) -> None:
    """What can be reproduced."""
    rows = [[e.name, e.title, e.figure, e.duration] for e in experiments]
    print_table("scirocco reproduce NAME", ["name", "what", "where", "takes"], rows)
