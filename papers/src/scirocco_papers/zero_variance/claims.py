"""What the thesis says of zero-variance control variates, with checks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from scirocco_papers.base import Claim, in_errors

KINDS = ("all rows", "control variates", "plain minibatches")
HALVED, VANISHED = 2.0, 1.05
SENTENCES = (
    "The plots show good variance reduction of the chain (logistic regression, figure 3.5.2).",
    "The plots show excellent variance reduction of the chain (matrix factorisation, figure 3.5.4; here: 1 % of rows).",
)


def judge(numbers: dict[str, Any], quick: bool) -> list[Claim]:
    """What the thesis says of the boxes and after theorem 3.4.2."""
    return [*_judge_boxes(numbers["boxes"]), *_judge_scaling(numbers["scaling"], quick)]


def _judge_boxes(boxes: dict[int, list[dict[str, Any]]]) -> list[Claim]:
    """The sentences for the sizes, largest first."""
    claims = []
    for size, sentence in zip(sorted(boxes, reverse=True), SENTENCES, strict=False):
        ratios = np.array([each["variance_ratio"] for each in boxes[size]])
        listed = ", ".join(f"{ratio:.1f}" for ratio in ratios)
        claims.append(
            Claim(
                sentence,
                f"{size:,} rows: variance of the score along the chain divided by {listed}",
                "smaller in every run, at most half in the median run",
                bool(ratios.min() > 1 and np.median(ratios) >= HALVED),
            )
        )
    return claims


def _judge_scaling(scaling: dict[int, dict[str, dict[str, Any]]], quick: bool) -> list[Claim]:
    sizes = sorted(scaling)
    reductions = {name: [scaling[size][name]["reduction"] for size in sizes] for name in KINDS}
    at = " at N = " + ", ".join(f"{size:,}" for size in sizes)
    shown = {name: ", ".join(f"{each:.3g}" for each in found) + at for name, found in reductions.items()}
    exact, control, plain = (reductions[name] for name in KINDS)
    moved = max(each["moved"] for found in scaling.values() for each in found.values())
    # a ratio of two variances from n draws each is known to 2/√n of itself, if the draws are independent
    error = 2 / min(each.get("num_draws", math.nan) for each in scaling[sizes[0]].values()) ** 0.5
    short = "a quick run has too few draws to tell 1.1 from 1" if quick else ""
    return [
        Claim(
            "if we use the standard SGLD gradient estimate [...] our variance reduction diminishes as N gets large",
            f"variance of the mean of a coefficient divided by {shown[KINDS[2]]} (medians)",
            f"less at the largest N than at the smallest, and below {VANISHED} there",
            plain[-1] < plain[0] and plain[-1] < VANISHED,
            short,
        ),
        Claim(
            "if we use the SGLD-CV estimate instead [...] the variance reduction does not diminish with increasing "
            "dataset size",
            f"divided by {shown[KINDS[1]]}",
            "at the largest N no less than 0.7 times that at the smallest, and above 2",
            control[-1] >= 0.7 * control[0] and control[-1] > HALVED,
            margin=in_errors(
                (math.log(control[-1] / control[0] / 0.7), 2**0.5 * error), (math.log(control[-1] / HALVED), error)
            ),
        ),
        Claim(
            "the better the gradient estimate, the better this control variate performs",
            f"divided by {exact[-1]:.3g} with all rows, {control[-1]:.3g} with control variates, {plain[-1]:.3g} with "
            f"plain minibatches, at N = {sizes[-1]:,}",
            "in this order",
            exact[-1] > control[-1] > plain[-1],
        ),
        Claim(
            "E[g̃] = E[g]: an unbiased estimate of the gradient gives a valid control variate",
            f"estimates of the coefficients move by {moved:.2f} standard errors of the plain mean (root mean square)",
            "at most 2, for every kind of gradients and every N",
            moved <= 2,
        ),
    ]


def notes(numbers: dict[str, Any]) -> list[str]:
    """Findings in addition to the claims."""
    scaling = numbers["scaling"]
    sizes = sorted(scaling)
    exact = ", ".join(f"{scaling[size][KINDS[0]]['reduction']:.0f}" for size in sizes)
    return [
        f"With the gradients of all rows the variance is divided by {exact}: the more rows, the closer the posterior "
        "is to a normal law, for which nothing would be left. What is left with control variates is the noise of "
        "minibatches, about as large at every N.",
        "The thesis' step sizes suit the commonest columns; coefficients of rare soil types hardly move in 10,000 "
        "steps. So the boxes show how far the score of such a chain wanders, and no error of its mean can be trusted.",
        "Control variates do not help with columns that a minibatch hardly ever sees: for one that is 1 in a share f "
        "of the rows, the noise of a gradient from n rows is about 1/(n f) times the variance of that gradient over "
        "the posterior, however large N is.",
    ]
