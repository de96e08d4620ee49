"""Shared by the commands: Typer (or one line on how to install it), options, JSON output, atomic file writes."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from scirocco import _checks
from scirocco._console import neutral, print_wrapped, to_json, width
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

OUT = typer.Option("--out", metavar="DIR", help="Folder for results; created if it does not exist.")
JSON = typer.Option("--json", help="Print JSON.")
RESUME = typer.Option("--resume", help="Resume the run in RUN, if there is one; pass the same options.")
OVERWRITE = typer.Option("--overwrite", help="Delete the run in RUN first.")
RUN = typer.Argument(help="The folder of a stored run.", metavar="RUN", show_default=False)
VOCABULARY = typer.Option("--vocabulary", metavar="FILE", help="The words, one per line, in the order of their ids.")
INTERVAL = typer.Option("--interval", min=0.01, max=0.999, help="Probability inside the credible intervals.")
NEW_RUN = typer.Option("--out", metavar="RUN", help="Folder for the run.", show_default=False)
NEW_FILE = typer.Option("--out", metavar="FILE.csv", help="File to write; one line per row.", show_default=False)
EPOCHS = typer.Option("--epochs", help="Length of the run in passes over the data.")
STEPS = typer.Option("--steps", min=1, help="Length of the run in batches.")
SECONDS = typer.Option("--seconds", help="Length of the run in seconds of wall time.")
DRAWS = typer.Option("--draws", min=1, help="Posterior draws to keep per chain.")
CHAINS = typer.Option("--chains", min=1, help="Independent chains; R-hat compares them.")
BATCH_SIZE = typer.Option("--batch-size", min=1, help="Rows (observations, nodes, documents) per step.")
SEED = typer.Option("--seed", min=0, help="Random seed of the chains.")
THREADS = typer.Option("--threads", min=1, help="Number of threads; all cores by default.")
REPLACE = typer.Option("--overwrite", help="Replace FILE.")


class AskedLength(NamedTuple):
    """The length of a fit: at most one of them."""

    num_steps: int | None = None
    num_epochs: float | None = None
    max_seconds: float | None = None


def check_fit(out: Path | None, length: AskedLength, resume: bool, overwrite: bool) -> None:
    """Reject options that cannot work, before any data are read."""
    from scirocco.store import holds_run, refuse_unless_free

    if resume and overwrite:
        raise InvalidValueError("give --resume (continue) or --overwrite (start again), not both.")
    if sum(value is not None for value in length) > 1:
        raise InvalidValueError("give one of --steps, --epochs and --seconds.")
    if out is None or (resume and holds_run(out)):
        return
    if holds_run(out) and not overwrite:
        raise InvalidValueError(
            f"{out} already contains a run. Add --resume to continue it or --overwrite to delete it, or choose another "
            "folder."
        )
    refuse_unless_free(out, overwrite)


def names_of(columns: str | None) -> list[str] | None:
    """The names in an option such as --columns x,y; None without one."""
    if columns is None:
        return None
    return [name.strip() for name in columns.split(",") if name.strip()]


def counted(number: int, unit: str) -> str:
    """A number and its unit."""
    return f"{number:,} {unit}{'' if number == 1 else 's'}"


def check_source(path: Path) -> None:
    """Reject a table that is not there, before anything slow is imported."""
    _checks.path(path, "DATA")
    if not path.expanduser().exists():
        raise InvalidValueError(f"there is no file {path}.")


def interrupted_early(out: Path) -> bool:
    """Whether there is a run that was interrupted in its burn-in: nothing to show, but it can be resumed."""
    from scirocco.store import holds_run, open_stored

    return holds_run(out) and open_stored(out).progress["status"] == "interrupted"


def how_to_resume(out: Path) -> str:
    """The message after a fit was interrupted."""
    return f"Interrupted. To resume {out}, repeat the command with --resume."


def drawn_so_far(num_chains: int, num_draws: int, status: str) -> str:
    """The draws of a run, for the title of a table."""
    chains = f"{num_chains} chain{'s' * (num_chains > 1)}"
    return f"{chains} with {num_draws} draws" + ("" if status in ("complete", "stopped") else f" so far ({status})")


def cell(row: Any, name: str) -> str:
    """A value of a table, with the interval in its columns `name_low` and `name_high`, if there is one."""
    if f"{name}_low" in row:
        return f"{row[name]:.3g} ({row[f'{name}_low']:.3g} to {row[f'{name}_high']:.3g})"
    value = row[name]
    if isinstance(value, str):
        return value
    return f"{int(value):,}" if float(value).is_integer() else f"{value:.3g}"


def check_target(path: Path, endings: tuple[str, ...], overwrite: bool) -> None:
    """Reject a file that cannot be written, before any work is done."""
    _checks.path(path, "--out")
    if path.suffix not in endings:
        raise InvalidValueError(f"--out {path} must end in {' or '.join(endings)}.")
    if path.exists() and not overwrite:
        raise InvalidValueError(f"{path} already exists. Add --overwrite to replace it, or choose another name.")
    if not path.parent.is_dir():
        raise InvalidValueError(f"there is no folder {path.parent} for {path.name}: create it first.")


def say(text: str, *, file: TextIO | None = None, flush: bool = False) -> None:
    """Print text that may contain words or names from a file."""
    print(neutral(text), file=file, flush=flush)


def print_json(value: object) -> None:
    """Print values as JSON; NaN and infinity become null."""
    import json

    text = json.dumps(to_json(value, digits=None), indent=2, ensure_ascii=False, allow_nan=False)
    print(re.sub("[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]", lambda c: f"\\u{ord(c[0]):04x}", text))


@contextmanager
def drafted(path: Path) -> Iterator[Path]:
    """A temporary name, renamed to `path` when everything is written; after Ctrl-C the old file is unchanged."""
    draft = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    from scirocco.store import files

    try:
        with files.drafted(str(draft), str(path)):
            yield draft
    except OSError as error:
        raise InvalidValueError(f"{path} cannot be written: {error.strerror or error}.") from error


def write_whole(path: Path, text: str) -> None:
    """Write a text file atomically."""
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
    "say",
    "typer",
    "width",
    "write_whole",
]
