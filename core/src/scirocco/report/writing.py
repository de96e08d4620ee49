"""From a run, a fitted model or a folder to one HTML file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from scirocco import _checks
from scirocco._version import __version__
from scirocco.analysis.diagnosis.report import Diagnosis
from scirocco.drawing.charts import scores
from scirocco.drawing.markup import Html, Section, join, tag
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models._core.view import View, size_of
from scirocco.report import chains, curves, overview
from scirocco.report.overview import view_of
from scirocco.store.files import writing

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""A policy that makes the browser block every network request."""


def html(
    what: object,
    *,
    documents: Any = None,
    column: str | None = None,
    groups: Any = None,
    encoding: str = "utf-8",
    names: Any = None,
    diagnosis: Diagnosis | None = None,
    checks: Sequence[Checking] = (),
) -> str:
    """A report as one self-contained HTML document; see `write` for the arguments."""
    given = {"documents": documents, "column": column, "groups": groups, "names": names}
    if documents is not None:
        given["encoding"] = encoding
    view = view_of(what, **{name: value for name, value in given.items() if value is not None})
    return str(_render(view.title, view.size or size_of(view.run), _sections(view, diagnosis, checks)))


def write(
    what: object,
    path: str | os.PathLike[str],
    *,
    documents: Any = None,
    column: str | None = None,
    groups: Any = None,
    encoding: str = "utf-8",
    names: Any = None,
    diagnosis: Diagnosis | None = None,
    checks: Sequence[Checking] = (),
) -> Path:
    """Write a report as one self-contained HTML file, which opens in any browser without a network.

    Parameters
    ----------
    what
        A run (from `sc.sample`, `sc.load` or `sc.resume`), a fitted model of `sc.models`, or the folder of a stored
        run.
    path
        The file to write: a name that ends in .html, or a folder for report.html. An existing report is replaced.
    documents
        For topics: documents in which their prevalence is measured. The report has the documents with the largest share
        of each topic; of texts, it shows the beginning.
    column, encoding
        If `documents` is a data frame or a table on disk: the column that has the texts; the encoding of the file.
    groups
        For topics: a group or date for each of the `documents`, by which the shares of topics are shown; or the name
        of their column.
    names
        For clusters: the names of the columns of the data.
    diagnosis
        A result of `sc.analysis.diagnose`. Pass it for a run that was loaded: with its model and data, more can be
        checked. By default the run is diagnosed here with what is available.
    checks
        Results of `sc.analysis.predictive_check`, `compare` and `sbc` to show, or other objects with a method
        `section(name)` that returns a `Section`.

    Returns
    -------
    Path
        The path of the file.

    Examples
    --------
    >>> import tempfile, jax.numpy as jnp, scirocco as sc
    >>> from scirocco import report
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = sc.sample(model, jnp.ones(100), jnp.array(1.0), sampler=sc.SGLD(1e-3), num_samples=200,
    ...                   store=f"{folder}/run", progress=False)
    ...     report.write(f"{folder}/run", folder).name
    'report.html'
    """
    target = _target(path)
    told = {"documents": documents, "column": column, "groups": groups, "encoding": encoding, "names": names}
    text = html(what, **told, diagnosis=diagnosis, checks=checks)
    _replace(target, text)
    return target


class Report:
    """A report that a notebook displays as a page.

    Attributes
    ----------
    html
        The document.
    path
        The file, if it was written to one.
    """

    def __init__(self, html: str, path: Path | None = None):
        self.html, self.path = html, path

    def __repr__(self) -> str:
        where = f" in {self.path}" if self.path else ""
        return f"Report({len(self.html.encode()) / 1024:.0f} KiB{where})"

    def _repr_html_(self) -> str:
        style = "width:100%;height:80vh;border:1px solid #888"
        return str(tag("iframe", srcdoc=self.html, style=style, title="scirocco report"))


def show(what: object, path: str | os.PathLike[str] | None = None, **options: Any) -> Report:
    """A report that notebooks display; with `path` it is also written to a file. Options as for `write`."""
    target = None if path is None else _target(path)
    text = html(what, **options)
    if target is not None:
        _replace(target, text)
    return Report(text, target)


@runtime_checkable
class Checking(Protocol):
    """A result that can be shown in a report."""

    def section(self, name: str = ...) -> Section:
        """Its section, with this id."""


def _sections(view: View, given: Diagnosis | None, checks: Sequence[Checking]) -> list[Section]:
    """The sections: what was run, diagnosis, checks, sections of the model, draws, curves."""
    seen = chains.look_at(view.to_chart, view.run.group_size)
    diagnosis = overview.diagnosis(view.to_judge, given, view.about, derived=view.judged is not None)
    found = [overview.what_was_run(view.run), diagnosis]
    found += _checked(checks)
    found += [*view.sections(seen), *chains.sections(seen), *curves.sections(view.run, view.to_chart)]
    scored = None if view.shows_scores else scores(view.run.scores)
    return found if scored is None else [*found, Section("scores", "Scores", scored)]


def _checked(checks: Sequence[Checking]) -> list[Section]:
    """The sections of checks, with names that differ."""
    found: list[Section] = []
    for check in checks:
        if not isinstance(check, Checking):
            raise InvalidTypeError(
                f"`checks` must contain results of predictive_check, compare or sbc, got {type(check).__name__}."
            )
        section, number = check.section(), 1
        taken = {other.name for other in found}
        while section.name in taken:
            number += 1
            section = check.section(f"{section.name.rstrip('0123456789-')}-{number}")
        found.append(section)
    return found


def _target(path: str | os.PathLike[str]) -> Path:
    _checks.path(path, "path")
    target = Path(path)
    if target.is_dir():
        target = target / "report.html"
    if target.suffix.lower() not in (".html", ".htm"):
        raise InvalidValueError(f"a report is an HTML file: `path` must end in .html, got {str(path)!r}.")
    if not target.parent.is_dir():
        raise InvalidValueError(f"there is no folder {target.parent}: create it first, or give another `path`.")
    return target


def _replace(target: Path, text: str) -> None:
    """Write atomically: a reader never sees half a page."""
    with writing(str(target), sync=False, many_writers=True) as file:
        file.write(text.encode("utf-8", "replace"))  # folder names may contain any bytes


# -- the page around the sections: one file that makes no network requests --------------------------------------------


def _render(title: str, subtitle: str, sections: Sequence[Section]) -> Html:
    """The complete HTML document."""
    head = join(
        [
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
            tag("link", rel="icon", href="data:,"),  # otherwise the browser requests one from the server
            tag("title", title),
            tag("style", _resource("style.css")),
        ]
    )
    body = join(
        [
            tag("a", "Skip to the report", href="#report", class_="skip"),
            _header(title, subtitle),
            _contents(sections),
            tag("main", *map(_written, sections), id="report", tabindex="-1"),
            tag(
                "footer",
                tag("p", f"Written by scirocco {__version__}. The file is self-contained and needs no network."),
            ),
            tag("script", _resource("script.js")),
        ]
    )
    page = tag("html", tag("head", head), tag("body", body), lang="en")
    return Html(f"<!doctype html>\n{page}\n")


def _resource(name: str) -> Html:
    return Html(resources.files("scirocco.report").joinpath(name).read_text("utf-8"))


def _header(title: str, subtitle: str) -> Html:
    switch = tag("button", "Dark colours", type="button", id="theme", hidden=True)  # useless without scripts
    return tag("header", tag("div", tag("h1", title), tag("p", subtitle)), switch)


def _contents(sections: Sequence[Section]) -> Html:
    links = [tag("li", tag("a", section.title, href=f"#{section.name}")) for section in sections]
    return tag("nav", tag("ul", *links), aria_label="Sections")


def _written(section: Section) -> Html:
    heading = f"{section.name}-title"
    return tag(
        "section",
        tag("h2", section.title, id=heading),
        section.content,
        id=section.name,
        aria_labelledby=heading,
        tabindex="-1",
    )
