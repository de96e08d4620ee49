"""Markup that cannot be broken by what is put into it: text is escaped unless it is `Html` already."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from typing import Any

_VOID = frozenset({"input", "meta", "link", "br", "hr"})


class Html(str):
    """Text that is markup already, and is not escaped again."""


def escape(content: Any) -> Html:
    """Text as markup."""
    return content if isinstance(content, Html) else Html(html.escape(str(content)))


def join(parts: Iterable[Any], between: str = "") -> Html:
    """Pieces of text and markup, one after the other."""
    return Html(between.join(escape(part) for part in parts))


def tag(element: str, /, *content: Any, **attributes: Any) -> Html:
    """An element. `class_` is class, `aria_label` is aria-label; None and False leave an attribute out.

    Examples
    --------
    >>> tag("p", "a < b", class_="note", hidden=None)
    '<p class="note">a &lt; b</p>'
    """
    written = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        word = key.rstrip("_").replace("_", "-")
        written.append(f" {word}" if value is True else f' {word}="{html.escape(str(value))}"')
    opening = f"<{element}{''.join(written)}>"
    return Html(opening if element in _VOID else f"{opening}{join(content)}</{element}>")


def number(value: Any, digits: int = 4) -> str:
    """As `run.summary()` rounds it; a dash for what is not known."""
    value = float(value)
    if math.isnan(value):
        return "–"
    return f"{float(f'{value:.{digits}g}'):.{max(digits, 6)}g}"


def count(value: Any) -> str:
    """A whole number; a dash for what is not known."""
    value = float(value)
    return f"{value:.0f}" if math.isfinite(value) else "–"


def paragraph(*content: Any, class_: str | None = None) -> Html:
    """A paragraph."""
    return tag("p", *content, class_=class_)


def shorten(text: str, most: int) -> str:
    """With an ellipsis in the middle, since names often differ at their end."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most - most // 2 - 1) :]}"
