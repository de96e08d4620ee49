"""Safe markup (text is escaped unless it is `Html`), sections, tables."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, SupportsFloat

_VOID = frozenset({"input", "meta", "link", "br", "hr", "wbr"})


class Html(str):
    """Text that is already markup, and is not escaped again."""


def escape(content: object) -> Html:
    """Text as markup."""
    return content if isinstance(content, Html) else Html(html.escape(str(content)))


def join(parts: Iterable[object], between: str = "") -> Html:
    """Concatenate pieces of text and markup."""
    return Html(between.join(escape(part) for part in parts))


def tag(element: str, /, *content: object, **attributes: object) -> Html:
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


def number(value: SupportsFloat, digits: int = 4) -> str:
    """A number rounded as in `run.summary()`; a dash if it is not known."""
    value = float(value)
    if math.isnan(value):
        return "–"
    return f"{float(f'{value:.{digits}g}'):.{max(digits, 6)}g}"


def count(value: SupportsFloat) -> str:
    """An integer; a dash if it is not known."""
    value = float(value)
    return f"{value:.0f}" if math.isfinite(value) else "–"


def paragraph(*content: object, class_: str | None = None) -> Html:
    """A paragraph."""
    return tag("p", *content, class_=class_)


def shorten(text: str, most: int) -> str:
    """Shorten with an ellipsis in the middle, since names often differ at their end."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most - most // 2 - 1) :]}"


def breakable(name: object) -> Html:
    """A name that may be broken after its signs of punctuation, so that it need not be broken elsewhere.

    Examples
    --------
    >>> breakable("a_b.c=1.5e-3")
    'a_<wbr>b.<wbr>c=1.5e-3'
    """
    if isinstance(name, Html):
        return name
    return join(re.split(r"(?<=[_/|])(?=\w)|(?<=[.,:-])(?=[^\W\d])", str(name)), tag("wbr"))


class Section(NamedTuple):
    """A section of a report, listed in its table of contents."""

    name: str
    """The id of the element."""
    title: str
    content: Html


# -- tables, which can be sorted and searched with scripts, and read without -----------------------------------------


def legend(entries: Iterable[tuple[Html, str]]) -> Html:
    """What the marks of charts mean: a mark, drawn in 20 by 10 units, and words."""
    items = [
        tag("li", tag("svg", mark, viewBox="0 0 20 10", aria_hidden="true"), f" {words}") for mark, words in entries
    ]
    return tag("ul", *items, class_="key")


def spot(class_: str) -> Html:
    """A circle for a legend."""
    return tag("circle", cx=10, cy=5, r=4, class_=class_)


def facts(rows: Iterable[tuple[str, object]], label: str) -> Html:
    """A table with names on the left and values on the right; a name that begins with a space is indented."""
    body = [
        tag(
            "tr",
            tag("th", name.strip(), scope="row", class_="under" if name.startswith(" ") else None),
            tag("td", breakable(value)),
        )
        for name, value in rows
    ]
    return tag("table", tag("tbody", *body), class_="facts", aria_label=label)


def plain_table(rows: Iterable[tuple[str, object]]) -> Html:
    """A table like that of `facts` for notebooks, which have no style sheet of ours."""
    body = []
    for name, value in rows:
        room = ";padding-left:2em" if name.startswith(" ") else ""
        cells = (tag("td", name.strip(), style=f"text-align:left{room}"), tag("td", value, style="text-align:left"))
        body.append(tag("tr", *cells))
    return tag("table", *body)


def sortable(
    name: str, columns: Sequence[str], rows: Iterable[Sequence[object]], label: str, texts: Sequence[int] = (0,)
) -> Html:
    """A sortable table. The first column names a row; columns in `texts` are text, the others numbers."""
    kinds = [None if place in texts else "num" for place in range(len(columns))]
    head = [
        tag("th", tag("button", column, type="button"), scope="col", class_=kind)
        for column, kind in zip(columns, kinds, strict=True)
    ]
    body = [
        tag(
            "tr",
            tag("th", breakable(row[0]), scope="row"),
            *(tag("td", cell, class_=kind) for cell, kind in zip(row[1:], kinds[1:], strict=True)),
        )
        for row in rows
    ]
    table = tag(
        "table", tag("thead", tag("tr", *head)), tag("tbody", *body), id=name, class_="sortable", aria_label=label
    )
    return tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=f"{label} (scrolls)")


def search(name: str, prompt: str, what: str) -> Html:
    """A search box that filters the rows (what="rows") or cards (what="cards") of an element by text."""
    status, box = f"{name}-status", f"{name}-search"
    found = tag("input", type="search", id=box, autocomplete="off", **{f"data_{what}": name}, data_status=status)
    return join([tag("label", prompt, found, for_=box), tag("span", id=status, role="status", class_="note")])


def choice(name: str, options: Sequence[tuple[str, str]]) -> Html:
    """A menu for the order of cards: (the name of their data-... attribute, "up" or "down"; label)."""
    items = [tag("option", words, value=value) for value, words in options]
    box = f"{name}-order"
    return tag("label", "Sort by", tag("select", *items, id=box, data_cards=name), for_=box)


def interval_cell(
    mean: float, low: float, high: float, largest: float, around: tuple[float, float] | None = None
) -> Html:
    """A bar from 0 to the mean with its interval, on an axis from 0 to `largest`.

    With `around`, a wider thin line: a mark at the mean instead of the bar, as 0 has no meaning there.
    """

    def place(value: float) -> float:
        return 100 * min(max(value / largest, 0.0), 1.0) if largest > 0 and value == value else 0.0

    style = f"--a:{place(low):.1f}%;--b:{place(high):.1f}%;--m:{place(mean):.1f}%"
    wide = () if around is None else (tag("i", style=f"--a:{place(around[0]):.1f}%;--b:{place(around[1]):.1f}%"),)
    kind = "range" if around is None else "range free"
    return tag("td", tag("div", *wide, class_=kind, style=style))
