"""Names of the columns of a mixture, kept inside its run; draws have none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from scirocco.cli._files import write_whole
from scirocco.errors import InvalidValueError

_FILE = Path("scirocco") / "columns.json"
"""In the folder that is replaced with the run: beside the draws it would be a stranger there."""


def keep_names(path: Path, names: Sequence[str] | None) -> None:
    """Write them into a run, if there is one by now."""
    from scirocco.store import holds_run, open_stored

    if names is not None and holds_run(path):
        content = {"of": open_stored(path).created_at, "names": list(names)}
        write_whole(path / _FILE, json.dumps(content, ensure_ascii=False) + "\n")


def kept_names(path: Path) -> tuple[str, ...] | None:
    """Those of a run; None where there are none, or where they are of a run that this one has replaced."""
    from scirocco.store import open_stored

    if not (path / _FILE).exists():
        return None
    try:
        content = json.loads((path / _FILE).read_text("utf-8"))
        names = tuple(str(name) for name in content["names"])
        of = content["of"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidValueError(
            f"{path / _FILE} is damaged ({error}). Delete it: columns are then called by their numbers."
        ) from error
    return names if of == open_stored(path).created_at else None
