"""What was run (configuration, data, versions, time), and the diagnosis."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterator
from typing import Any

from scirocco import models
from scirocco.analysis import diagnose
from scirocco.analysis.diagnosis.report import LABELS, Diagnosis, Finding
from scirocco.drawing.markup import Html, Section, facts, join, number, paragraph, shorten, tag
from scirocco.errors import InvalidTypeError, InvalidValueError, SciroccoError
from scirocco.models._core.view import Reportable, View, need_draws, own_run
from scirocco.run import Run, load
from scirocco.run.records import plain, sampler_name

_LONG = 300  # characters of a setting
_TITLES = {
    "model": "Model",
    "num_rows": "Rows of data",
    "data": "Fingerprint of the data",
    "dimension": "Parameters",
    "num_burnin": "Burn-in steps",
    "thin": "Steps per draw",
    "seed": "Seed",
    "backend": "Device",
}


def what_was_run(run: Run) -> Section:
    """The first section of every report."""
    known = run.configuration
    rows = [("Method", _method(run)), ("Draws", _draws(run)), ("Status", run.status)]
    rows += [(title, _text(known[name])) for name, title in _TITLES.items() if known.get(name) is not None]
    if run.path:
        rows.append(("Stored in", run.path))
    versions = known.get("versions", {})
    rows.append(("Versions", ", ".join(f"{name} {value}" for name, value in versions.items()) or "not known"))
    more = {
        name: _unwrapped(value) if name == "sampler" else value
        for name, value in known.items()
        if name not in (*_TITLES, "versions", "num_samples", "num_chains")
    }
    parts = [_in_two([*rows, *_timing(run.timing)], "What was run"), _details("All settings", more)]
    if run.preparation:
        parts.append(_details("What the set-up found", run.preparation))
    return Section("what", "What was run", join(parts))


def _unwrapped(sampler: Any) -> Any:
    """A sampler inside an internal one, with the settings of both."""
    if not isinstance(sampler, dict) or "inner" not in sampler or sampler["name"] == "Preconditioned":
        return sampler
    return sampler["inner"] | {name: value for name, value in sampler.items() if name not in ("name", "inner")}


def _method(run: Run) -> str:
    estimator = run.configuration.get("estimator")
    name = method_of(run)
    name = f"{name[:1].upper()}{name[1:]}" if isinstance(run.configuration.get("sampler"), dict) else name
    return f"{name} with {estimator['name']}" if isinstance(estimator, dict) else name


def _draws(run: Run) -> str:
    asked = run.configuration.get("num_samples", run.num_draws)
    short = "" if asked == run.num_draws else f" of {asked:,} requested"
    chains = "1 chain" if run.num_chains == 1 else f"{run.num_chains} chains"
    return f"{chains} × {run.num_draws:,} draws{short}"


def _timing(timing: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Seconds of the phases of a run."""
    yield "Time", "" if timing else "not stored"
    for phase, spent in timing.items():
        if isinstance(spent, dict) and "wall" in spent:
            made = spent.get("steps")
            steps = "" if made is None else f", {made:,} step{'s' * (made != 1)} per chain"
            seconds = f"{spent['wall']:.3g} s ({spent.get('cpu', 0.0):.3g} s of CPU)"
            yield f"  {_words(phase)}", f"{seconds}{steps}"


def _in_two(rows: list[tuple[str, str]], label: str) -> Html:
    """Two tables side by side where there is room; an indented row stays with the row that it belongs to."""
    middle = (len(rows) + 1) // 2
    while middle < len(rows) and rows[middle][0].startswith(" "):
        middle += 1
    halves = [facts(half, label) for half in (rows[:middle], rows[middle:]) if half]
    return tag("div", *halves, class_="pair")


def _details(title: str, tree: dict[str, Any]) -> Html:
    return tag("details", tag("summary", title), facts(_flat(plain(tree)), title)) if tree else Html()


def _flat(tree: object, place: str = "") -> Iterator[tuple[str, str]]:
    """Leaves of nested settings: sampler · step_size · start."""
    if isinstance(tree, dict) and tree:
        for name, value in tree.items():
            yield from _flat(value, f"{place} · {name}" if place else str(name))
    elif isinstance(tree, list) and any(isinstance(item, (dict, list)) for item in tree):
        yield place, f"{len(tree):,} entries; the first: {_text(tree[0])}"
    else:
        yield place, _text(tree)


def _text(value: object) -> str:
    if isinstance(value, float):
        return number(value, 6)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list):
        return shorten(", ".join(_text(item) for item in value), _LONG)
    return shorten(str(value), _LONG)


def _words(name: str) -> str:
    return name.replace("_", " ").capitalize()


# -- the diagnosis ---------------------------------------------------------------------------------------------------


def diagnosis(run: Run, given: Diagnosis | None = None, about: str = "", derived: bool = False) -> Section:
    """The result of `sc.analysis.diagnose`, or `given`, an earlier one. `about` says what was diagnosed.

    `derived`: quantities that are computed from the parameters, of which the log density says nothing.
    """
    found: Diagnosis | None = given
    parts = [paragraph(about)] if about else []
    if found is None:
        try:
            found = diagnose(dataclasses.replace(run, certificate=None) if derived else run)
        except InvalidValueError as error:
            parts.append(paragraph("Nothing could be checked.", class_="verdict bad"))
            parts.append(paragraph(str(error)))
        except SciroccoError as error:
            parts.append(paragraph("The diagnosis failed.", class_="verdict bad"))
            parts.append(paragraph(str(error)))
    if found is not None:
        if derived:
            found = dataclasses.replace(found, missing=[], certificate=None)
        certificate = [] if found.certificate is None else [paragraph(f"Certificate: {found.certificate}.")]
        verdict = [*map(_finding, found.findings)] or [_verdict(found)]
        parts += [*verdict, *certificate, _measures(found), _missing(found)]
    return Section("diagnosis", "Diagnosis", join(parts))


def _verdict(found: Diagnosis) -> Html:
    words = f"{found.verdict[0].upper()}{found.verdict[1:]}."
    return paragraph(words, class_="verdict")


def _finding(finding: Finding) -> Html:
    title = f"{finding.words[0].upper()}{finding.words[1:]}"
    advice = paragraph(tag("strong", "What to do: "), finding.advice)
    return tag("div", tag("h3", title), paragraph(finding.evidence), advice, class_="finding")


def _measures(found: Diagnosis) -> Html:
    rows = []
    for name, (words, form) in LABELS.items():
        value = found.measures.get(name)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            continue
        place = found.measures.get(f"{name}_parameter")
        rows.append((words, form.format(value) + (f" ({place})" if place else "")))
    return join([tag("h3", "Measured"), _in_two(rows, "Measured")]) if rows else Html()


def _missing(found: Diagnosis) -> Html:
    if not found.missing:
        return Html()
    reasons = [tag("li", reason) for reason in found.missing]
    return join([tag("h3", "What could not be checked"), tag("ul", *reasons)])


def view_of(what: object, **options: Any) -> View:
    """The `View` of a run or model, opened from disk if needed; `options` are for the model."""
    if isinstance(what, (str, os.PathLike)):
        what = load(what)
    if isinstance(what, Run):
        need_draws(what)
        if what.path is None or models.name_at(what.path) is None:
            return View(what, f"Posterior draws by {method_of(what)}")
        try:
            model = models.load(what.path)
        except InvalidValueError as error:  # a fit that has not finished
            return View(what, f"Posterior draws by {method_of(what)}", about=str(error))
        return model.report_view(what, **options)
    if isinstance(what, Reportable):
        return what.report_view(**options)
    if hasattr(what, "run_") or hasattr(what, "get_params"):  # a user's own class
        return View(own_run(what), type(what).__name__)
    raise InvalidTypeError(
        f"a report requires a run, a fitted model or the folder of a stored run; got {type(what).__name__}."
    )


def method_of(run: Run) -> str:
    """The sampler's name for readers."""
    sampler = run.configuration.get("sampler")
    if not isinstance(sampler, dict):
        return re.sub(r"^(scir|sg\w+)", lambda found: found[0].upper(), str(sampler)).replace("_", " ")
    return sampler_name(sampler)
