"""Checks of the paper's claims about scores on msweb."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from scirocco_papers.base import Claim, error_of, in_errors

DEFAULT, KEPT = "DPMixture()", "DPMixture(sampler='scir')"
SCIR_BAR, DEFAULT_BAR = 11.40, 11.345
FAR, MANY = 0.5, 2.0
_RELEASED = (
    "two slips of the code released with the paper (commit 8be4c62) produce it: components are updated from the visits "
    "of users 0 to 999 in place of the minibatch's, and SGRLD's sticks drift by v·n in both coordinates. With them "
    "SCIR stays at 12.03 and SGRLD at 12.04 to 12.09 with ever more clusters, some 200 after 1,000 steps. Here they "
    "are mended. Whether the paper's figure came from that commit is unknown"
)
_SHORT = "a quick run ends before the chains are anywhere near their law"
Numbers = dict[str, Any]


def tail(curves: Sequence[Numbers], score: str = "now") -> np.ndarray:
    """A score of each chain, averaged over the last fifth of its marks."""
    return np.array([np.mean(curve[score][-max(len(curve[score]) // 5, 1) :]) for curve in curves])


def ends(curves: Sequence[Numbers], score: str = "averaged") -> np.ndarray:
    """A score of each chain at its last mark."""
    return np.array([curve[score][-1] for curve in curves])


def judge(numbers: Numbers, quick: bool) -> list[Claim]:
    """One claim for each sentence that numbers can decide; of a quick run, only the first counts."""
    curves = numbers["curves"]
    claims = [
        _lower(curves),
        _steady(curves),
        _scir(curves),
        _worse(curves),
        _many(curves),
        _far(curves, numbers["one_component"]),
        _default(curves),
    ]
    if not quick:
        return claims
    return [claims[0], *(dataclasses.replace(claim, because=claim.because or _SHORT) for claim in claims[1:])]


def _listed(values: np.ndarray) -> str:
    return " ".join(f"{value:.3f}" for value in values)


def _lower(curves: Numbers) -> Claim:
    scir, sgrld = tail(curves["SCIR"]), tail(curves["SGRLD"])
    return Claim(
        "SCIR consistently converges to a lower log predictive test score [than SGRLD]",
        f"the last fifth of the marks, by seed: SCIR {_listed(scir)}; SGRLD {_listed(sgrld)}",
        "lower in every seed; scores of single states, as in the paper",
        bool(np.all(scir < sgrld)),
        margin=in_errors((sgrld.mean() - scir.mean(), np.hypot(error_of(scir), error_of(sgrld)))),
    )


def _steady(curves: Numbers) -> Claim:
    spread = {
        name: np.mean([np.std(curve["now"][-max(len(curve["now"]) // 5, 2) :]) for curve in curves[name]])
        for name in ("SCIR", "SGRLD")
    }
    seeds = {name: np.std(tail(curves[name])) for name in spread}
    return Claim(
        "and appears to have lower variance than SGRLD",
        f"sd of the score along the end of a chain: SCIR {spread['SCIR']:.4f}, SGRLD {spread['SGRLD']:.4f}; between "
        f"seeds {seeds['SCIR']:.4f}, {seeds['SGRLD']:.4f}",
        "lower along the chain",
        bool(spread["SCIR"] < spread["SGRLD"]),
    )


def _scir(curves: Numbers) -> Claim:
    scir, states = ends(curves["SCIR"]), tail(curves["SCIR"])
    return Claim(
        f"[not in the paper: with its settings SCIR reaches {SCIR_BAR:.2f}]",
        f"p averaged over the later half of the marks, by seed: {_listed(scir)}. Single states, which score higher: "
        f"{_listed(states)}, {_at_most(states, SCIR_BAR)}",
        f"at most {SCIR_BAR:.2f} in every seed, p averaged over states as `log_predictive` does",
        bool(np.all(scir <= SCIR_BAR)),
        ours=True,
    )


def _worse(curves: Numbers) -> Claim:
    now = np.mean([curve["now"] for curve in curves["SGRLD"]], axis=0)
    steps = curves["SGRLD"][0]["steps"]
    late, lowest = float(np.mean(now[-max(len(now) // 5, 1) :])), int(np.argmin(now))
    holds = bool(late > now[lowest] + 0.02)
    return Claim(
        "SGRLD also appears to be producing worse scores as the number of iterations increases",
        f"mean of the seeds: lowest {now[lowest]:.3f} after {steps[lowest]:,} steps, {late:.3f} in the last fifth",
        "the last fifth is more than 0.02 above the lowest mark",
        holds,
        _RELEASED,
    )


def _many(curves: Numbers) -> Claim:
    found = {name: ends(curves[name], "occupied") for name in ("SGRLD", "SCIR", "Gibbs")}
    listed = "; ".join(f"{name} {' '.join(f'{v:.0f}' for v in values)}" for name, values in found.items())
    return Claim(
        "SGRLD had a tendency to propose many more clusters than were required",
        f"occupied at the end, by seed: {listed}. The paper's SGRLD begins with 30, its SCIR with 20",
        f"at least {MANY:g} times those of Gibbs in every seed",
        bool(np.all(found["SGRLD"] >= MANY * np.mean(found["Gibbs"]))),
        _RELEASED,
    )


def _far(curves: Numbers, one: float) -> Claim:
    scir, sgrld, gibbs = (float(tail(curves[name]).mean()) for name in ("SCIR", "SGRLD", "Gibbs"))
    closed = (one - scir) / (one - gibbs)
    return Claim(
        "While SCIR outperforms SGRLD, the methods are not that competitive with the Gibbs sampler",
        f"single states: Gibbs {gibbs:.3f}, SCIR {scir:.3f}, SGRLD {sgrld:.3f}; one component {one:.3f}. SCIR goes "
        f"{100 * closed:.0f} % of the way from one component to Gibbs. p averaged: Gibbs "
        f"{ends(curves['Gibbs']).mean():.3f}, SCIR {ends(curves['SCIR']).mean():.3f}",
        f"SCIR goes less than {100 * FAR:.0f} % of that way",
        bool(closed < FAR),
        _RELEASED,
    )


def _default(curves: Numbers) -> Claim:
    ours, gibbs, states = ends(curves[DEFAULT]), ends(curves["Gibbs"]), tail(curves[DEFAULT])
    spent = max(curve["seconds"][-1] for curve in curves[DEFAULT])
    return Claim(
        f"[not in the paper: {DEFAULT} reaches {DEFAULT_BAR}]",
        f"p averaged, by seed: {_listed(ours)} in at most {spent:.1f} s of processor time; Gibbs {_listed(gibbs)}. "
        f"Single states, which score higher: {_listed(states)}, {_at_most(states, DEFAULT_BAR)}; Gibbs "
        f"{_listed(tail(curves['Gibbs']))}",
        f"at most {DEFAULT_BAR} in every seed, p averaged over states as `log_predictive` does",
        bool(np.all(ours <= DEFAULT_BAR)),
        ours=True,
    )


def _at_most(values: np.ndarray, bar: float) -> str:
    return f"{int(np.sum(values <= bar))} of {len(values)} at most {bar}"


def notes(numbers: Numbers) -> list[str]:
    """Findings in addition to the claims."""
    curves = numbers["curves"]
    means = {name: float(ends(each).mean()) for name, each in curves.items()}
    states = {name: float(tail(each).mean()) for name, each in curves.items()}
    out = [
        "With p averaged over the states of the later half: "
        + ", ".join(f"{name} {mean:.3f}" for name, mean in means.items())
        + ". The paper's score is of single states. SGRLD's are the noisier ones, and an average hides noise; nor is "
        "its prior (a = 0.001) SCIR's (a = 0.5).",
        f"Single states: SCIR {states['SCIR']:.3f}, SCIR-CV with its settings {states['SCIR-CV']:.3f}, SCIR with "
        f"counts that are kept in place of estimated {states[KEPT]:.3f}, Gibbs {states['Gibbs']:.3f}, {DEFAULT} "
        f"{states[DEFAULT]:.3f}.",
    ]
    cost = {name: np.mean([curve["seconds"][-1] for curve in each]) for name, each in curves.items()}
    out.append(
        "Processor time of a chain: "
        + ", ".join(
            f"{name} {seconds:.1f} s for {curves[name][0]['steps'][-1]:,} steps" for name, seconds in cost.items()
        )
        + "."
    )
    return out
