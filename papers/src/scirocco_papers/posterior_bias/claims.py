"""Checks of what the library promises of its samplers and estimators on covertype."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from scirocco_papers.base import Claim, in_errors

NEAR, SMALL_BIAS = 0.05, 0.1
"""An sd ratio so near 1 is right; a bias of the mean below a tenth of a standard deviation is none."""
SLOWER = TWICE = 2.0
MATCHED_STEP = 0.05
MATCHED = f"SGLD, ε = {MATCHED_STEP}"
"""In round coordinates, the same step for every estimator."""
REDUCED = ("Full", "ControlVariates", "SVRG", "SAGA")


def judge(numbers: dict[str, Any]) -> list[Claim]:
    """Ours, not a paper's."""
    tables = numbers["tables"]
    small = tables[min(tables)]
    round_ones = [name for name in small if name.endswith("round")]
    independent = numbers["truth"][min(tables)].get("independent", math.nan)
    claims = [_right(small, round_ones, independent), _means(small, round_ones, independent), _stuck(small, round_ones)]
    if len(tables) > 1:
        claims += _large(tables[max(tables)], max(tables))
    return [dataclasses.replace(claim, ours=True) for claim in claims]


def _range(values: list[float]) -> str:
    return f"{min(values):.3f} to {max(values):.3f}"


def _right(small: dict[str, Any], names: list[str], independent: float) -> Claim:
    cells = [small[n][way] for n in names for way in small[n] if way in ("Full", "ControlVariates")]
    found = [cell["sd_ratio"] for cell in cells]
    plain = [small[n]["Minibatch"]["sd_ratio"] for n in names]
    return Claim(
        "In round coordinates, with automatic steps, exact gradients and control variates give the right spread.",
        f"sd over true sd, mean over the coefficients: {_range(found)}; with plain minibatches {_range(plain)}",
        f"every sampler within {NEAR:.0%} with Full and ControlVariates",
        all(abs(ratio - 1) <= NEAR for ratio in found),
        margin=in_errors(*((NEAR - abs(cell["sd_ratio"] - 1), cell["sd_error"] / independent**0.5) for cell in cells)),
    )


def _means(small: dict[str, Any], names: list[str], independent: float) -> Claim:
    cells = {f"{n} with {way}": small[n][way] for n in names for way in small[n] if way in REDUCED}
    allowed = {each: max(SMALL_BIAS, TWICE * found["monte_carlo"]) for each, found in cells.items()}
    worst = max(cells, key=lambda each: cells[each]["mean_bias"] / allowed[each])
    return Claim(
        "In round coordinates the means are right.",
        f"error of a mean in posterior sds (root mean square): {_range([c['mean_bias'] for c in cells.values()])}, "
        f"worst {worst}, of which {cells[worst]['monte_carlo']:.3f} is the number of draws",
        f"at most {SMALL_BIAS}, or twice what the number of draws explains, for {', '.join(REDUCED)}",
        cells[worst]["mean_bias"] <= allowed[worst],
        margin=in_errors(
            *(
                (allowed[each] - found["mean_bias"], found["monte_carlo"] / (2 * independent) ** 0.5)
                for each, found in cells.items()
            )
        ),
    )


def _stuck(small: dict[str, Any], names: list[str]) -> Claim:
    gains = {
        name: small[name]["ControlVariates"]["ess_per_million"]
        / small[name.removesuffix(", round")]["ControlVariates"]["ess_per_million"]
        for name in names
        if name.removesuffix(", round") in small
    }
    return Claim(
        "Round coordinates pay: more effective draws for the same gradients than in the user's units.",
        "effective draws a gradient, round over user's units, control variates: "
        + ", ".join(f"{name.removesuffix(', round')} {gain:.0f}" for name, gain in gains.items()),
        f"at least {SLOWER:g} times as many, for every sampler",
        min(gains.values()) >= SLOWER,
    )


def _large(large: dict[str, Any], size: int) -> list[Claim]:
    plain, control = (large[MATCHED][way]["sd_ratio"] for way in ("Minibatch", "ControlVariates"))
    gains = {
        name.removesuffix(", round"): row["ControlVariates"]["ess_per_million"] / row["Minibatch"]["ess_per_million"]
        for name, row in large.items()
        if name != MATCHED
    }
    return [
        Claim(
            "Control variates remove the inflation that minibatches bring.",
            f"N = {size:,}, {MATCHED}: sd over true sd {plain:.3f} with minibatches, {control:.3f} with "
            "control variates",
            f"more than {1 + NEAR:g} with minibatches, within {NEAR:.0%} of 1 with control variates",
            plain > 1 + NEAR and abs(control - 1) <= NEAR,
        ),
        Claim(
            "With automatic steps plain minibatches pay with slower mixing instead.",
            f"N = {size:,}, effective draws a gradient, control variates over minibatches: "
            + ", ".join(f"{name} {gain:.1f}" for name, gain in gains.items()),
            f"at least {SLOWER:g} times as many with control variates, for every sampler",
            min(gains.values()) >= SLOWER,
        ),
    ]


def notes(numbers: dict[str, Any]) -> list[str]:
    """Findings in addition to the claims."""
    truth = numbers["truth"]
    said = [
        f"N = {size:,}: {found['num_columns']} columns, condition {found['condition']:.3g}, NUTS has at least "
        f"{found['least_ess']:.0f} effective draws of every squared coefficient, so an sd is known to "
        f"{1 / (2 * found['least_ess']) ** 0.5:.1%} of itself."
        for size, found in truth.items()
    ]
    small = numbers["tables"][min(numbers["tables"])]
    stuck = [f"{n} {small[n]['ControlVariates']['sd_ratio']:.2f}" for n in small if f"{n}, round" in small]
    said.append(
        "In the user's units one step size serves curvatures that differ thousandfold, and the chains do not cross the "
        f"posterior in this time; their sd ratios with control variates are {', '.join(stuck)}."
    )
    if all("SAGA" in row for row in small.values()):
        ratios = [row["SAGA"]["sd_ratio"] for n, row in small.items() if n.endswith("round")]
        said.append(
            f"SAGA in round coordinates: sd ratios {_range(ratios)}. With batches in blocks, its default before this "
            "experiment, they were 0.84 to 0.97: given the table, the rows left of an epoch are the stalest ones."
        )
    if len(numbers["tables"]) > 1:
        said.append(
            "The claim of inflation was first stated for automatic steps, and did not hold: they are chosen so small "
            "that minibatches inflate nothing. It is now stated for one step size."
        )
    if "kinked" in numbers:
        found = numbers["kinked"]
        said.append(
            "With the Laplace prior, which has no curvature, `Preconditioned` takes its coordinates from the "
            "likelihood alone; where that is flat they are too long for the kink at 0, and exact gradients give an sd "
            f"ratio of {found['sd_ratio']:.3f} (root mean square error {found['sd_error']:.2f}) with SGLD."
        )
    return said
