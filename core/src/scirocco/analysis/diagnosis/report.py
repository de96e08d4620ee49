"""The result of a diagnosis, and how it is printed."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import Any

from scirocco.drawing.markup import join, plain_table, tag
from scirocco.run.certificate import Certificate

_WIDTH = 100  # characters of a printed line


@dataclass(frozen=True)
class Finding:
    """A problem of the run, the evidence for it, and what to change."""

    name: str
    """One of `NAMES`."""
    words: str
    evidence: str
    advice: str


NAMES = (
    "step size too large",
    "step size too small",
    "friction too small",
    "minibatch noise dominates",
    "not converged",
    "chains disagree",
    "prior and data disagree",
    "variances do not fit",
    "several modes",
    "trajectories diverge",
    "gradients disagree",
)


@dataclass(frozen=True)
class Diagnosis:
    """The outcome of `sc.analysis.diagnose`.

    Attributes
    ----------
    findings
        The problems; empty if there are none.
    measures
        All numbers, by name. Those that could not be estimated are absent, and `missing` says why.
    certificate
        Limits for the errors of means and standard deviations (`sc.analysis.certify`); None for models with their own
        sampling loop, which have no log density to compare with.
    """

    findings: list[Finding]
    measures: dict[str, Any]
    missing: list[str] = field(default_factory=list)
    title: str = ""
    certificate: Certificate | None = None

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not self.findings

    @property
    def names(self) -> list[str]:
        """The names of the problems."""
        return [finding.name for finding in self.findings]

    @property
    def verdict(self) -> str:
        """The result in one line."""
        if self.findings:
            return "; ".join(finding.words for finding in self.findings)
        return "all well, as far as could be measured" if self.missing else "all well"

    def __repr__(self) -> str:
        lines = [self.title, f"Verdict: {self.verdict}."]
        if self.certificate is not None:
            lines += _wrapped("", f"Certificate: {self.certificate}.")
        for finding in self.findings:
            lines += ["", *_wrapped("* ", f"{finding.words}."), *_wrapped("  ", finding.evidence)]
            lines += _wrapped("  → ", finding.advice)
        lines += ["", *_table(self.measures)]
        for reason in self.missing:
            lines += _wrapped("  not measured: ", reason)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """For notebooks: the verdict, each problem with what to change, and the numbers."""
        found = [
            tag("li", tag("b", f"{each.words}."), f" {each.evidence} ", tag("em", f"→ {each.advice}"))
            for each in self.findings
        ]
        missing = [tag("p", f"not measured: {reason}") for reason in self.missing]
        verdict = tag("ul", *found) if found else tag("p", tag("b", f"Verdict: {self.verdict}."))
        certificate = [] if self.certificate is None else [tag("p", f"Certificate: {self.certificate}.")]
        table = plain_table(_shown(self.measures))
        return join([tag("p", self.title), verdict, *certificate, table, *missing])


def _wrapped(lead: str, text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead))


LABELS = {
    "ess_bulk": ("effective draws, bulk (worst parameter)", "{:,.0f}"),
    "ess_tail": ("effective draws, tail (worst parameter)", "{:,.0f}"),
    "ess_per_second": ("effective draws per second", "{:,.1f}"),
    "ess_per_gradient": ("effective draws per gradient estimate", "{:.2g}"),
    "r_hat": ("R-hat (worst parameter; 1 when chains agree)", "{:.3f}"),
    "r_hat_of_halves": ("R-hat of the halves of the only chain (worst parameter)", "{:.3f}"),
    "drift": ("drift between halves, in sds (worst parameter)", "{:.2f}"),
    "curvature": ("step size (with momentum: squared) × largest curvature", "{:.3g}"),
    "step_inflation": ("variance inflated by the step, at most", "{:.1%}"),
    "noise_ratio": ("gradient noise over injected noise (worst parameter)", "{:.3g}"),
    "noise_inflation": ("variance inflated by minibatch noise (worst parameter)", "{:.1%}"),
    "stein_inflation": ("variance inflated, by Stein's identity (mean)", "{:.1%}"),
    "stein_inflation_error": ("  its standard error", "{:.1%}"),
    "ksd": ("kernel Stein discrepancy", "{:.3g}"),
    "ksd_of_exact_draws": ("  of the same number of independent exact draws", "{:.3g}"),
    "condition": ("largest over smallest curvature of the posterior", "{:.2g}"),
    "prior_pull": ("how far the prior moves the posterior, in sds (worst parameter)", "{:.2f}"),
}


def _shown(measures: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (label, form.format(measures[name]) + _where(measures, name))
        for name, (label, form) in LABELS.items()
        if name in measures
    ]


def _table(measures: dict[str, Any]) -> list[str]:
    shown = _shown(measures)
    width = max((len(label) for label, _ in shown), default=0)
    return [f"  {label.ljust(width)}  {value}" for label, value in shown]


def _where(measures: dict[str, Any], name: str) -> str:
    place = measures.get(f"{name}_parameter")
    return f"  ({place})" if place else ""
