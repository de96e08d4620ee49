"""The page around the sections: one file that asks nobody for anything."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import NamedTuple

from scirocco._version import __version__
from scirocco.report.markup import Html, join, tag

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""Told to the browser as well: it refuses every request."""


class Section(NamedTuple):
    """A part of a report, with a place in its table of contents."""

    name: str
    """The id of the element."""
    title: str
    content: Html


def render(title: str, subtitle: str, sections: Sequence[Section]) -> Html:
    """A whole document."""
    head = join(
        [
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
            tag("link", rel="icon", href="data:,"),  # else a browser asks the server for one
            tag("title", title),
            tag("style", _resource("style.css")),
        ]
    )
    body = join(
        [
            tag("a", "Skip to the report", href="#report", class_="skip"),
            _header(title, subtitle),
            _contents(sections),
            tag("main", *map(_section, sections), id="report", tabindex="-1"),
            tag(
                "footer",
                tag("p", f"Written by scirocco {__version__}. The file is complete: it needs no network."),
            ),
            tag("script", _resource("script.js")),
        ]
    )
    page = tag("html", tag("head", head), tag("body", body), lang="en")
    return Html(f"<!doctype html>\n{page}\n")


def _resource(name: str) -> Html:
    return Html(resources.files("scirocco.report").joinpath(name).read_text("utf-8"))


def _header(title: str, subtitle: str) -> Html:
    switch = tag("button", "Dark", type="button", id="theme", aria_pressed="false", aria_label="Dark colours")
    return tag("header", tag("div", tag("h1", title), tag("p", subtitle)), switch)


def _contents(sections: Sequence[Section]) -> Html:
    links = [tag("li", tag("a", section.title, href=f"#{section.name}")) for section in sections]
    return tag("nav", tag("ul", *links), aria_label="Sections")


def _section(section: Section) -> Html:
    heading = f"{section.name}-title"
    return tag(
        "section",
        tag("h2", section.title, id=heading),
        section.content,
        id=section.name,
        aria_labelledby=heading,
        tabindex="-1",
    )
