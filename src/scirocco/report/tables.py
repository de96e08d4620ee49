"""Tables that can be sorted and searched, and without a script are still tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from scirocco.report.markup import Html, join, tag


def facts(rows: Iterable[tuple[str, Any]], label: str) -> Html:
    """Names on the left, what they are on the right."""
    body = [tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in rows]
    return tag("table", tag("tbody", *body), class_="facts", aria_label=label)


def sortable(
    name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], label: str, texts: Sequence[int] = (0,)
) -> Html:
    """The first column names a row; columns in `texts` are words, the others numbers. A click on a heading sorts."""
    kinds = [None if place in texts else "num" for place in range(len(columns))]
    head = [
        tag("th", tag("button", column, type="button"), scope="col", class_=kind)
        for column, kind in zip(columns, kinds, strict=True)
    ]
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(tag("td", cell, class_=kind) for cell, kind in zip(row[1:], kinds[1:], strict=True)),
        )
        for row in rows
    ]
    table = tag(
        "table",
        tag("thead", tag("tr", *head)),
        tag("tbody", *body),
        id=name,
        class_="sortable",
        aria_label=label,
    )
    return tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=f"{label} (scrolls)")


def search(name: str, prompt: str, what: str) -> Html:
    """A box that keeps the rows (what="rows") or cards (what="cards") of an element that hold a text."""
    status, box = f"{name}-status", f"{name}-search"
    found = tag(
        "input", type="search", id=box, autocomplete="off", **{f"data_{what}": name}, data_status=status
    )
    return join([tag("label", prompt, found, for_=box), tag("span", id=status, role="status", class_="note")])


def choice(name: str, options: Sequence[tuple[str, str]]) -> Html:
    """A choice of the order of cards: (what the cards say in data-..., "up" or "down"; words)."""
    items = [tag("option", words, value=value) for value, words in options]
    box = f"{name}-order"
    return tag("label", "Sort by", tag("select", *items, id=box, data_cards=name), for_=box)


def interval_cell(
    mean: float, low: float, high: float, largest: float, around: tuple[float, float] | None = None
) -> Html:
    """A bar from 0 to the mean with its interval, on an axis from 0 to `largest`.

    With `around`, a wider thin line: a mark at the mean in place of the bar, as 0 has no meaning there.
    """

    def place(value: float) -> float:
        return 100 * min(max(value / largest, 0.0), 1.0) if largest > 0 and value == value else 0.0

    style = f"--a:{place(low):.1f}%;--b:{place(high):.1f}%;--m:{place(mean):.1f}%"
    wide = (
        ()
        if around is None
        else (tag("i", style=f"--a:{place(around[0]):.1f}%;--b:{place(around[1]):.1f}%"),)
    )
    kind = "range" if around is None else "range free"
    return tag("td", tag("div", *wide, class_=kind, style=style))
