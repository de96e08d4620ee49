"""Whether a run can be trusted, in words."""

from __future__ import annotations

import math

from scirocco.analysis import diagnose
from scirocco.analysis.diagnosis.report import LABELS, Diagnosis, Finding
from scirocco.errors import InvalidValueError, SciroccoError
from scirocco.report.markup import Html, join, paragraph, tag
from scirocco.report.page import Section
from scirocco.report.tables import facts
from scirocco.run import Run


def section(run: Run, given: Diagnosis | None = None, about: str = "") -> Section:
    """From `sc.analysis.diagnose`; with `given` from an earlier one. `about` says what was looked at."""
    found: Diagnosis | None = given
    parts = [paragraph(about)] if about else []
    if found is None:
        try:
            found = diagnose(run)
        except InvalidValueError as error:
            parts.append(paragraph("Nothing could be judged.", class_="verdict bad"))
            parts.append(paragraph(str(error)))
        except SciroccoError as error:
            parts.append(paragraph("The diagnosis failed.", class_="verdict bad"))
            parts.append(paragraph(str(error)))
    if found is not None:
        parts += [_verdict(found), *map(_finding, found.findings), _measures(found), _missing(found)]
    return Section("diagnosis", "Diagnosis", join(parts))


def _verdict(found: Diagnosis) -> Html:
    words = f"{found.verdict[0].upper()}{found.verdict[1:]}."
    return paragraph(words, class_="verdict" if found.ok else "verdict bad")


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
        rows.append((words.strip(), form.format(value) + (f" ({place})" if place else "")))
    return join([tag("h3", "Measured"), facts(rows, "Measured")]) if rows else Html()


def _missing(found: Diagnosis) -> Html:
    if not found.missing:
        return Html()
    reasons = [tag("li", reason) for reason in found.missing]
    return join([tag("h3", "What could not be judged"), tag("ul", *reasons)])
