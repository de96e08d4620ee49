"""From a run, a fitted model or a folder to one HTML file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from scirocco.analysis.diagnosis.report import Diagnosis
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.report import chains, clusters, coefficients, curves, facts, topics, verdict
from scirocco.report.markup import Html, tag
from scirocco.report.page import Section, render
from scirocco.report.subjects import Subject, subject_of
from scirocco.store.files import writing


def html(what: Any, *, documents: Any = None, names: Any = None, diagnosis: Diagnosis | None = None) -> str:
    """A report as one HTML document that needs no network: `write` describes the arguments."""
    subject = subject_of(what)
    return str(render(subject.title, subject.subtitle, _sections(subject, documents, names, diagnosis)))


def write(
    what: Any,
    path: str | os.PathLike[str],
    *,
    documents: Any = None,
    names: Any = None,
    diagnosis: Diagnosis | None = None,
) -> Path:
    """Write a report: one HTML file with all that it needs, which opens in any browser without a network.

    Parameters
    ----------
    what
        A run (from `sc.sample`, `sc.load` or `sc.resume`), a fitted model of `sc.models`, or the folder of a stored
        run.
    path
        Where to: a name that ends in .html, or a folder, in which it is called report.html. An older report is
        replaced.
    documents
        For topics: documents over which their prevalence is measured.
    names
        For clusters: what the columns of the data are called.
    diagnosis
        From `sc.analysis.diagnose`, for a run that was loaded: with its model and data more can be judged. By default
        it is made here, of what is known.

    Returns
    -------
    Path
        Of the file.

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
    text = html(what, documents=documents, names=names, diagnosis=diagnosis)
    _replace(target, text)
    return target


class Report:
    """A report that a notebook shows as a page.

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


def show(what: Any, path: str | os.PathLike[str] | None = None, **options: Any) -> Report:
    """A report as an object that notebooks show; with `path` it is written as well. Options as for `write`."""
    target = None if path is None else _target(path)
    text = html(what, **options)
    if target is not None:
        _replace(target, text)
    return Report(text, target)


def _sections(subject: Subject, documents: Any, names: Any, given: Diagnosis | None) -> list[Section]:
    run = subject.run
    found = [facts.section(run), verdict.section(subject.judged, given, subject.about)]
    if subject.kind == "topics":
        found += topics.sections(subject, documents)
    elif subject.kind == "clusters":
        found += clusters.sections(subject, names)
    seen = chains.view(subject.charted)
    if subject.kind == "coefficients":
        found.append(coefficients.section(seen))
    found += [*chains.sections(seen), curves.section(run)]
    scored = curves.scores(run) if subject.kind in ("run", "coefficients") else None
    return [*found, Section("scores", "Scores", scored)] if isinstance(scored, Html) else found


def _target(path: str | os.PathLike[str]) -> Path:
    try:
        target = Path(path)
    except TypeError:
        raise InvalidTypeError(f"`path` must be the name of a file, got {type(path).__name__}.") from None
    if target.is_dir():
        target = target / "report.html"
    if target.suffix.lower() not in (".html", ".htm"):
        raise InvalidValueError(f"a report is an HTML file: `path` must end in .html, got {str(path)!r}.")
    if not target.parent.is_dir():
        raise InvalidValueError(f"there is no folder {target.parent}: make it first, or give another `path`.")
    return target


def _replace(target: Path, text: str) -> None:
    """All of it or nothing: a reader never sees half a page."""
    with writing(str(target), sync=False, many_writers=True) as file:
        file.write(text.encode("utf-8", "replace"))  # names of folders may be any bytes
