"""Adapt docstrings, which are written for readers of the code, to autodoc and napoleon."""

import re
from typing import Any

from sphinx.application import Sphinx

LONG = re.compile(r"~(?:\w+\.)+")
COLON = "\ue000"


def protect(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Escape bars, because |x| is not a substitution; hide colons that napoleon would read as the end of a type."""
    lines[:] = [line if line.lstrip().startswith((">>>", "...")) else without_bars(line) for line in lines]
    if what in ("attribute", "data"):
        lines[:] = [line.replace(": ", COLON) for line in lines]


def restore(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Restore the colons."""
    lines[:] = [line.replace(COLON, ": ") for line in lines]


def without_bars(line: str) -> str:
    """Return a line with its bars escaped, except inside backquotes."""
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(part if number % 2 else part.replace("|", r"\|") for number, part in enumerate(parts))


def skip(app: Sphinx, what: str, name: str, value: Any, skipped: bool, options: Any) -> bool | None:
    """Skip the fields of named tuples, whose docstrings contain only a number."""
    text = getattr(value, "__doc__", None) or ""
    return True if text.startswith("Alias for field number") else None


def shorten(
    app: Sphinx, what: str, name: str, value: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Shorten types to their last names, and write defaults made by a factory as an ellipsis, which can be parsed."""
    short = LONG.sub("", signature).replace("<factory>", "...") if signature else signature
    return short, LONG.sub("", returned) if returned else returned


def setup(app: Sphinx) -> dict[str, bool]:
    """Run before and after napoleon, which has priority 500."""
    app.connect("autodoc-process-docstring", protect, priority=100)
    app.connect("autodoc-process-docstring", restore, priority=900)
    app.connect("autodoc-process-signature", shorten)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
