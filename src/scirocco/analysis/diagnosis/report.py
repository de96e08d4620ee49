"""What a diagnosis says, and how it is read."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import Any

_WIDTH = 100


@dataclass(frozen=True)
class Finding:
    """Something that is wrong, how it shows, and what to change."""

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
)


@dataclass(frozen=True)
class Diagnosis:
    """The outcome of `sc.analysis.diagnose`.

    Attributes
    ----------
    findings
        What is wrong; empty when all is well.
    measures
        All numbers, by name. Those that could not be had are missing, and `missing` says why.
    """

    findings: list[Finding]
    measures: dict[str, Any]
    missing: list[str] = field(default_factory=list)
    title: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def names(self) -> list[str]:
        """What was found, by name."""
        return [finding.name for finding in self.findings]

    @property
    def verdict(self) -> str:
        """In one line."""
        if self.findings:
            return "; ".join(finding.words for finding in self.findings)
        return "all well, as far as could be measured" if self.missing else "all well"

    def __repr__(self) -> str:
        lines = [self.title, f"Verdict: {self.verdict}."]
        for finding in self.findings:
            lines += ["", *_wrapped("* ", f"{finding.words}."), *_wrapped("  ", finding.evidence)]
            lines += _wrapped("  → ", finding.advice)
        lines += ["", *_table(self.measures)]
        for reason in self.missing:
            lines += _wrapped("  not measured: ", reason)
        return "\n".join(lines)


def _wrapped(lead: str, text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead))


LABELS = {
    "ess_bulk": ("effective draws, bulk (worst parameter)", "{:,.0f}"),
    "ess_tail": ("effective draws, tail (worst parameter)", "{:,.0f}"),
    "ess_per_second": ("effective draws a second", "{:,.1f}"),
    "ess_per_gradient": ("effective draws a gradient estimate", "{:.2g}"),
    "r_hat": ("R-hat (worst parameter; 1 when chains agree)", "{:.3f}"),
    "drift": ("drift between halves, in sds (worst parameter)", "{:.2f}"),
    "curvature": ("step size (with momentum: squared) × largest curvature", "{:.3g}"),
    "step_inflation": ("variance inflated by the step, at most", "{:.1%}"),
    "noise_ratio": ("gradient noise over injected noise (worst parameter)", "{:.3g}"),
    "noise_inflation": ("variance inflated by minibatch noise (worst parameter)", "{:.1%}"),
    "stein_inflation": ("variance inflated, as the gradients see it (mean)", "{:.1%}"),
    "stein_inflation_error": ("  its standard error", "{:.1%}"),
    "ksd": ("kernel Stein discrepancy", "{:.3g}"),
    "ksd_of_exact_draws": ("  of as many independent exact draws", "{:.3g}"),
    "condition": ("largest over smallest curvature of the posterior", "{:.2g}"),
    "prior_pull": ("how far the prior moves the posterior, in sds (worst parameter)", "{:.2f}"),
}


def _table(measures: dict[str, Any]) -> list[str]:
    shown = [
        (label, form.format(measures[name]) + _where(measures, name))
        for name, (label, form) in LABELS.items()
        if name in measures
    ]
    width = max((len(label) for label, _ in shown), default=0)
    return [f"  {label.ljust(width)}  {value}" for label, value in shown]


def _where(measures: dict[str, Any], name: str) -> str:
    place = measures.get(f"{name}_parameter")
    return f"  ({place})" if place else ""
