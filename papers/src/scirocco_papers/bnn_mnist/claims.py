"""What the thesis says of the six samplers of figure 4.6.3, with checks."""

from __future__ import annotations

from typing import Any

import numpy as np

from scirocco_papers.base import Claim

STANDARD = ("sgld", "sghmc", "sgnht")
METHODS = (*STANDARD, *(f"{name}cv" for name in STANDARD))
SHARE = 0.9
"""The share of the runs in which an average must beat every draw."""


def judge(numbers: dict[str, Any], cut: bool) -> list[Claim]:
    """The two sentences of the thesis, and two of ours; `cut`: the chains are shorter than the thesis'."""
    found = numbers["methods"]
    level = {name: float(np.mean([np.mean(each["losses"]) for each in found[name]])) for name in METHODS}
    short = "the chains are shorter than the thesis' by far, and not all have burnt in" if cut else ""
    return [_controlled(level, short), _standard(level, short), _average(found, short), _brier(found, short)]


def _controlled(level: dict[str, float], short: str) -> Claim:
    pairs = [(level[name], level[f"{name}cv"]) for name in STANDARD]
    shown = ", ".join(f"{name} {a:.4f} → {b:.4f}" for name, (a, b) in zip(STANDARD, pairs, strict=True))
    return Claim(
        "Again we see improvements in the predictive performance of the control variate methods.",
        f"log loss along the chain, mean over seeds, without and with control variates: {shown}",
        "less with them, for each of the three",
        all(b < a for a, b in pairs),
        short,
    )


def _standard(level: dict[str, float], short: str) -> Claim:
    shown = ", ".join(f"{name} {level[name]:.4f}" for name in STANDARD)
    return Claim(
        "Among the standard methods, sghmc and sgnht have the best predictive performance.",
        f"log loss along the chain, mean over seeds: {shown}",
        "less for both than for sgld",
        max(level["sghmc"], level["sgnht"]) < level["sgld"],
        short,
    )


def _average(found: dict[str, list[dict[str, Any]]], short: str) -> Claim:
    runs = [each for method in METHODS for each in found[method]]
    better = [each["average"]["log_loss"] < np.min(each["losses"]) for each in runs]
    gains = [np.mean(each["losses"]) - each["average"]["log_loss"] for each in runs]
    return Claim(
        "(ours) The average over the draws predicts better than any single one.",
        f"log loss of the average below that of the chain's best draw in {sum(better)} of {len(better)} runs; below "
        f"the mean over draws by {np.median(gains):.4f} (median)",
        f"in at least {SHARE:.0%} of the runs",
        bool(np.mean(better) >= SHARE),
        short,
        ours=True,
    )


def _brier(found: dict[str, list[dict[str, Any]]], short: str) -> Claim:
    pairs = {
        name: [float(np.mean([each[part]["brier"] for each in found[name]])) for part in ("single", "average")]
        for name in METHODS
    }
    shown = ", ".join(f"{name} {a:.4f} → {b:.4f}" for name, (a, b) in pairs.items())
    return Claim(
        "(ours) Its probabilities are better, too.",
        f"Brier score of the last draw and of the average, mean over seeds: {shown}",
        "less for the average, for each of the six",
        all(b < a for a, b in pairs.values()),
        short,
        ours=True,
    )


def notes(numbers: dict[str, Any]) -> list[str]:
    """Findings in addition to the claims."""
    found = numbers["methods"]

    def mean(name: str, part: str, score: str) -> float:
        return float(np.mean([each[part][score] for each in found[name]]))

    errors = ", ".join(
        f"{name} {mean(name, 'single', 'calibration_error'):.3f} → {mean(name, 'average', 'calibration_error'):.3f}"
        for name in METHODS
    )
    accuracy, losses = (
        ", ".join(f"{name} {mean(name, 'average', score):.4f}" for name in METHODS)
        for score in ("accuracy", "log_loss")
    )
    worse = [name for name in STANDARD if mean(f"{name}cv", "average", "log_loss") > mean(name, "average", "log_loss")]
    return [
        f"Log loss of the average: {losses}; with control variates it is higher for {', '.join(worse) or 'none'}.",
        f"Share of test images that the average gets right: {accuracy}.",
        f"Expected calibration error of the last draw and of the average: {errors}. An average is less sure than its "
        "draws: right for a chain in equilibrium; in one that still improves, bad early draws count like late ones.",
        f"Mean log loss of the first and the last quarter of the draws, the worst seed: {_drift(found)}. What falls "
        "has not burnt in.",
    ]


def _drift(found: dict[str, list[dict[str, Any]]]) -> str:
    shown = []
    for name in METHODS:
        worst = max((np.asarray(each["losses"]) for each in found[name]), key=lambda losses: float(np.mean(losses)))
        quarter = max(1, len(worst) // 4)
        shown.append(f"{name} {worst[:quarter].mean():.3f} → {worst[-quarter:].mean():.3f}")
    return ", ".join(shown)
