"""Checks of the thesis' sentences about figure 4.6.1."""

from __future__ import annotations

import math
from typing import Any

from scirocco_papers.base import Claim, in_errors

EXPLORES = 0.25
"""Share of the less visited component at which a sampler explores both: half way between never, 0, and evenly, ½."""
UNEVEN = 0.4
"""Share below which the exploration is uneven: one component gets more than 1½ times the other."""

Numbers = dict[str, Any]


def judge(numbers: Numbers) -> list[Claim]:
    """One claim for each sentence that numbers can decide, in the thesis' order."""
    of = numbers["samplers"]
    return [
        *_of_sgld(of),
        *_of_sghmc(of["sghmc"], numbers["as_in_r"]["sghmc"]),
        _collapse("sgnht appears to collapse to the posterior mode", of["sgnht"]),
        *_of_control_variates(numbers),
        _collapse("sgnhtcv collapses to a posterior mode", of["sgnhtcv"]),
    ]


def _of_sgld(of: Numbers) -> list[Claim]:
    sgld, best = of["sgld"], max(of, key=lambda name: of[name]["share"])
    error = (sgld["share_error"] ** 2 + of[best]["share_error"] ** 2) ** 0.5
    return [
        Claim(
            "sgld performs the best at exploring both components",
            f"share {sgld['share']:.2f} ± {sgld['share_error']:.2f}; highest of the six: {best}, "
            f"{of[best]['share']:.2f} ± {of[best]['share_error']:.2f}",
            f"share ≥ {EXPLORES} and not below the highest by more than two standard errors",
            _explores(sgld) and sgld["share"] >= of[best]["share"] - 2 * error,
            margin=in_errors(_room(sgld), (sgld["share"] - of[best]["share"] + 2 * error, error)),
        ),
        Claim(
            "though it over-estimates posterior uncertainty",
            f"spread {sgld['spread']:.2f} times that of NUTS (chains from {min(sgld['spreads']):.2f} to "
            f"{max(sgld['spreads']):.2f})",
            "above 1 in every chain",  # by ten times their sd over the chains
            bool(min(sgld["spreads"]) > 1),
        ),
    ]


def _of_sghmc(here: Numbers, in_r: Numbers) -> list[Claim]:
    return [
        Claim(
            "sghmc also explores both components",
            _share(here),
            f"share ≥ {EXPLORES}",
            _explores(here),
            margin=in_errors(_room(here)),
        ),
        Claim(
            "but somewhat unevenly",
            f"{_share(here)}; as the R package runs it {in_r['share']:.2f} (chains from {min(in_r['shares']):.2f} to "
            f"{max(in_r['shares']):.2f})",
            f"share < {UNEVEN}",
            here["share"] < UNEVEN,
            "not expected of a right implementation. R gives θ₁ and θ₂ the same normals, moves them one after the "
            "other and refreshes the momentum with half its variance, which keeps its chains in one component for long",
        ),
    ]


def _of_control_variates(numbers: Numbers) -> list[Claim]:
    of, in_r = numbers["samplers"], numbers["as_in_r"]["sgldcv"]
    names = [name for name in of if name.endswith("cv")]
    facts, others = of["sgldcv"], max(of[name]["share"] for name in names if name != "sgldcv")
    unstable = facts["thesis_h"] / 2 * numbers["posterior"]["largest_curvature"]
    return [
        Claim(
            "The control variate methods do not explore both components either",
            "; ".join(f"{name} {_share(of[name])}" for name in names),
            f"share < {EXPLORES} for all three",
            not any(_explores(of[name]) for name in names),
            margin=in_errors(*((-gap, error) for gap, error in (_room(of[name]) for name in names))),
        ),
        Claim(
            "sgldcv explores the space the best [of the control variate methods]",
            f"sgldcv at h = {facts['h']:g}: {_share(facts)}, the others at most {others:.2f}; as the R package runs "
            f"it, at h = {facts['thesis_h']:g}: {in_r['share']:.2f}",
            "the highest share of the three",
            facts["share"] > others,
            f"the thesis' h = {facts['thesis_h']:g} cannot be used: the chains leave the finite numbers (ε × largest "
            f"curvature = {unstable:.2g}, above 2). R survives it because it moves θ₁ and θ₂ one after the other"
            if "diverged_at_step" in facts
            else "",
        ),
        Claim(
            "but over-estimates uncertainty of the first component",
            f"at h = {facts['h']:g}, spread of the draws nearer to the first mode {facts['spread_of_component']:.2f} "
            "times that of NUTS",
            "above 1",
            facts["spread_of_component"] > 1,
            margin=in_errors(
                (math.log(facts["spread_of_component"]), facts.get("spread_of_component_error", math.nan))
            ),
        ),
    ]


def _room(facts: Numbers) -> tuple[float, float]:
    """How far the share is above the one of a sampler that explores, and its standard error over the chains."""
    return facts["share"] - EXPLORES, facts["share_error"]


def _collapse(sentence: str, facts: Numbers) -> Claim:
    return Claim(
        sentence,
        f"{_share(facts)}, spread {facts['spread']:.2f}",
        f"share < {EXPLORES} and spread < 1",
        not _explores(facts) and bool(facts["spread"] < 1),
    )


def _share(facts: Numbers) -> str:
    return f"share {facts['share']:.2f}"


def _explores(facts: Numbers) -> bool:
    return bool(facts["share"] >= EXPLORES)


def notes(numbers: Numbers) -> list[str]:
    """What the figure shows that the thesis does not say."""
    of, posterior = numbers["samplers"], numbers["posterior"]
    distances = ", ".join(f"{name} {facts['tv']:.2f}" for name, facts in of.items())
    exact = numbers["sgnht_with_exact_gradients"]
    ratio = posterior["noise_of_sum_over_noise_of_difference"]
    return [
        f"Total variation from NUTS on the figure's grid: {distances}; between two runs of NUTS "
        f"{posterior['tv_of_two_runs']:.2f}.",
        "The collapse of sgnht is the algorithm's, not a slip: the gradient noise is nearly the same for θ₁ and θ₂, so "
        f"that its variance is {ratio:.0f} times larger along θ₁ + θ₂ than along θ₁ - θ₂. Friction that absorbs it "
        f"along the sum freezes the difference: spread of the sum {of['sgnht']['spread_of_sum']:.2f}, of the "
        f"difference {of['sgnht']['spread_of_difference']:.2f} times that of NUTS. With exact gradients the same "
        f"sampler explores both components: share {exact['share']:.2f}, spread {exact['spread']:.2f}.",
        f"sghmc's spread of {of['sghmc']['spread']:.2f} is gradient noise that R's default friction α = 0.01 cannot "
        "absorb. scirocco warns of that, and its own default friction is set from the measured noise.",
        "«As the R package runs it» re-enacts its released source (see `as_in_r`); R itself was not run.",
        "The text gives the second centre as (0.1, 0.1); the authors' script has (0.5, 0.5), which also fits the Stan "
        "draws stored beside it.",
    ]
