"""Checks of the thesis' sentences about figures 2.4.1 to 2.4.3. "KL" is the median over the runs, of all parameters.

Rules were written before the first full run. Three were changed after it: the mixture was measured by the KL of θ₁
alone; an order within `CLOSE` counted where it agreed with the thesis; and "not much better" also held for much worse.
Two methods count as equal when their KL differ by at most `CLOSE`; an order that rests on such a difference does not
count, whether it agrees with the thesis or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scirocco_papers.base import Claim, error_of, in_errors
from scirocco_papers.divide_and_conquer.methods import COMBINED, JUDGED, SAMPLED

CLOSE, EXPLORED, EVEN, UNIMODAL = 0.1, 0.5, 0.25, 1.0
"""KL that does not count; of a shift by one standard deviation; share of a mode at which it is explored (half way from
never, 0, to evenly, ½); height of the middle, in modes, from which on there are no two modes."""
POOR, MUCH = 2.0, 2.0
UNKNOWN_START = "the thesis does not say where it started, nor how long its burn-in was"
Found = dict[str, Any]


def medians(found: Found, key: str = "kl") -> dict[str, float]:
    """The median of each method; ∞ where half of the runs diverged."""
    return {name: float(np.median(each[key])) for name, each in found["methods"].items()}


def listed(values: dict[str, float], names: Any = JUDGED) -> str:
    """Numbers by name, for a sentence."""
    return ", ".join(f"{name} {values[name]:.2f}" for name in names)


def tie(kl: dict[str, float], low: Sequence[str], high: Sequence[str]) -> str:
    """Why an order of methods, those of `low` before those of `high`, says little either way; empty if it does not."""
    last, first = max(low, key=kl.__getitem__), min(high, key=kl.__getitem__)
    near = abs(kl[last] - kl[first]) <= CLOSE
    return f"{last} is within {CLOSE} of {first}: their order says little, whichever it is" if near else ""


def lowest(kl: dict[str, float], name: str) -> str:
    """The tie of a method with the best of the others."""
    return tie(kl, (name,), [other for other in JUDGED if other != name])


def apart(found: Found, low: str, high: str) -> tuple[float, float]:
    """How much lower one KL is than another, and the standard error of that.

    Over the runs, and the trial by which the setting was chosen, whose luck all of them share; and `CLOSE`, by which
    estimates from neighbours are wrong in themselves.
    """
    kl = medians(found)
    errors = []
    for name in (low, high):
        facts = found["methods"][name]
        chosen = [value for setting, value in facts["tried"] if tuple(setting) == tuple(facts["setting"])]
        errors.append(error_of([*facts["kl"], *(chosen if facts["setting"] else ())], "median"))
    return kl[high] - kl[low], float(np.linalg.norm([*errors, CLOSE]))


def _mean(found: Found, name: str, key: str) -> float:
    return float(np.mean(found["methods"][name][key]))


# -- heavy tails ---------------------------------------------------------------------------------------------


def heavy_tailed(found: Found) -> list[Claim]:
    """Figure 2.4.1."""
    kl = medians(found)
    poorest = sorted(JUDGED, key=kl.__getitem__)[-2:]
    apart = max(abs(kl[name] - kl["SGHMC"]) for name in ("Consensus", "Weierstrass"))
    shown = f"t: KL {listed(kl)}; exact draws {np.median(found['exact']):.2f}"
    return [
        Claim(
            "all methods are equipped to explore this posterior",
            shown,
            f"KL ≤ {EXPLORED} for all",
            max(kl[name] for name in JUDGED) <= EXPLORED,
        ),
        Claim(
            "The KDEMC and SGLD algorithms have the poorest approximation to the posterior",
            f"the two highest: {poorest[1]} {kl[poorest[1]]:.3f}, {poorest[0]} {kl[poorest[0]]:.3f}",
            "the two highest KL are theirs",
            set(poorest) == {"KDEMC", "SGLD"},
            tie(kl, ("SGHMC", "Consensus", "Weierstrass"), ("KDEMC", "SGLD")),
        ),
        Claim(
            "SGHMC performs the best in terms of minimizing KL divergence",
            ", ".join(f"{name} {kl[name]:.3f}" for name in JUDGED),
            "the lowest KL of the five",
            kl["SGHMC"] == min(kl[name] for name in JUDGED),
            lowest(kl, "SGHMC"),
        ),
        Claim(
            "closely followed by the consensus Monte Carlo algorithm and the Weierstrass sampler",
            f"Consensus {kl['Consensus']:.3f}, Weierstrass {kl['Weierstrass']:.3f}, SGHMC {kl['SGHMC']:.3f}",
            f"both KL within {CLOSE} of SGHMC's",
            apart <= CLOSE,
        ),
        Claim(
            "The Weierstrass sampler does a good job of improving the convergence speed of KDEMC",
            f"Weierstrass {kl['Weierstrass']:.3f}, KDEMC {kl['KDEMC']:.3f}",
            "KL lower than KDEMC's",
            kl["Weierstrass"] < kl["KDEMC"],
            tie(kl, ("Weierstrass",), ("KDEMC",)),
        ),
    ]


# -- two modes -----------------------------------------------------------------------------------------------


def modes(found: Found) -> list[Claim]:
    """Figure 2.4.2, divide and conquer."""
    kl = medians(found)
    valley = {name: _mean(found, name, "valley") for name in JUDGED}
    shown = f"mixture: KL of (θ₁, θ₂): {listed(kl)}; of θ₁ {listed(medians(found, 'kl_drawn'))}"
    middle = f"height of the middle, in modes: {listed(valley)}; truth {found['exact_valley']:.2f}"
    return [
        Claim(
            "the consensus algorithm performs poorly in this setting [and] leads to a unimodal posterior approximation",
            f"{shown}; {middle}",
            f"KL above both stochastic gradient methods', middle ≥ {UNIMODAL:g}",
            kl["Consensus"] > max(kl[name] for name in SAMPLED) and valley["Consensus"] >= UNIMODAL,
            margin=in_errors(*(apart(found, name, "Consensus") for name in SAMPLED)),  # the middle is 100 times that
        ),
        Claim(
            "KDEMC offers an improvement over the Consensus algorithm",
            f"KDEMC {kl['KDEMC']:.2f}, Consensus {kl['Consensus']:.2f}",
            "KL lower",
            kl["KDEMC"] < kl["Consensus"],
            tie(kl, ("KDEMC",), ("Consensus",)),
            margin=in_errors(apart(found, "KDEMC", "Consensus")),
        ),
        Claim(
            "[KDEMC] still does not capture the bimodality",
            f"middle {valley['KDEMC']:.2f}; truth {found['exact_valley']:.2f}",
            f"middle ≥ {UNIMODAL:g}",
            valley["KDEMC"] >= UNIMODAL,
            better_kdemc(found) if valley["KDEMC"] < UNIMODAL else "",
        ),
        Claim(
            "The Weierstrass method seems to encounter similar issues to KDEMC, and its performance is not much better",
            f"Weierstrass {kl['Weierstrass']:.2f}, middle {valley['Weierstrass']:.2f}; KDEMC {kl['KDEMC']:.2f}, "
            f"middle {valley['KDEMC']:.2f}",
            f"both middles ≥ {UNIMODAL:g}, KL between 1/{MUCH:g} of KDEMC's and {MUCH:g} times it",
            min(valley["Weierstrass"], valley["KDEMC"]) >= UNIMODAL
            and kl["KDEMC"] / MUCH <= kl["Weierstrass"] <= MUCH * kl["KDEMC"],
            better_kdemc(found) if valley["KDEMC"] < UNIMODAL else "",
        ),
    ]


def better_kdemc(found: Found) -> str:
    """Why KDEMC does well: how it does the way it was published."""
    published = found["published"]
    return (
        "KDEMC is run better here: 50 chains, and Gibbs moves over all components. With the paper's moves in one chain "
        f"its KL is {np.median(published['kl']):.2f}, and the share of the mode less visited "
        f"{np.mean(published['share']):.2f}"
    )


def stochastic_modes(found: Found) -> list[Claim]:
    """Figure 2.4.2, stochastic gradients."""
    kl = medians(found)
    worst = max(kl[name] for name in SAMPLED)
    beaten = kl["KDEMC"] <= worst < float(np.median(found["published"]["kl"]))
    share = {name: _mean(found, name, "share") for name in SAMPLED}
    far = {name: float(np.mean(found["methods"][name]["far"]["share"])) for name in SAMPLED}
    apart = {name: float(np.mean(found["methods"][name]["apart"]["share"])) for name in SAMPLED}
    return [
        Claim(
            "The stochastic gradient methods perform better than the divide and conquer approaches",
            f"KL of (θ₁, θ₂): {listed(kl)}; of θ₁: {listed(medians(found, 'kl_drawn'))}",
            "the KL of (θ₁, θ₂) of both below that of the three others",
            worst < min(kl[name] for name in COMBINED),
            tie(kl, SAMPLED, COMBINED) or (better_kdemc(found) if beaten else ""),
        ),
        Claim(
            "and are able to explore both modes",
            f"share of the mode less visited: {listed(share, SAMPLED)}",
            f"at least {EVEN} for both, mean over the runs",
            min(share.values()) >= EVEN,
        ),
        Claim(
            "if the modes are more separated the stochastic gradient methods will also struggle with exploration",
            f"centres 1 apart instead of 0.36, same settings: share {listed(apart, SAMPLED)}",
            f"below {EVEN} for both",
            max(apart.values()) < EVEN,
        ),
        Claim(
            "When the starting point is further from the posterior mass, [SGHMC] does not appear to explore both modes",
            f"from (1, -1), (0.5, 2): share {listed(far, SAMPLED)}",
            f"below {EVEN} for SGHMC",
            far["SGHMC"] < EVEN,
            UNKNOWN_START,
        ),
        Claim(
            "Overall SGLD performs the best at minimising the KL-divergence of this problem",
            listed(kl),
            "the lowest KL of the five",
            kl["SGLD"] == min(kl[name] for name in JUDGED),
            lowest(kl, "SGLD"),
        ),
    ]


# -- complex geometry ----------------------------------------------------------------------------------------


def warped(found: Found) -> list[Claim]:
    """Figure 2.4.3."""
    kl = medians(found)
    reach, tail = ({name: _mean(found, name, key) for name in JUDGED} for key in ("reach", "tail"))
    lost = {name: float(np.median(found["methods"][name]["far"]["kl"])) - kl[name] for name in SAMPLED}
    return [
        Claim(
            "again the consensus algorithm struggles to approximate the full posterior",
            f"warped: KL {listed(kl)}",
            "the highest KL of the five",
            kl["Consensus"] == max(kl[name] for name in JUDGED),
            tie(kl, [name for name in JUDGED if name != "Consensus"], ("Consensus",)),
            margin=in_errors(*(apart(found, name, "Consensus") for name in JUDGED if name != "Consensus")),
        ),
        Claim(
            "Averaging [produces] an approximation to the full posterior which lies in the centre",
            f"sd of θ₂ over the true one: {listed(reach)}",
            "below ½ for consensus",
            reach["Consensus"] < 0.5,
        ),
        Claim(
            "The KDEMC works reasonably well on this example",
            f"KDEMC {kl['KDEMC']:.2f}, Consensus {kl['Consensus']:.2f}",
            f"KL ≤ {EXPLORED} and at most 1/{POOR:g} of consensus'",
            kl["KDEMC"] <= min(EXPLORED, kl["Consensus"] / POOR),
        ),
        Claim(
            "but underestimates the tails",
            f"draws of θ₁ below the true 5 % quantile, over 5 %: {listed(tail)}",
            "below 1 for KDEMC",
            tail["KDEMC"] < 1,
        ),
        Claim(
            "The Weierstrass shows some improvement over KDEMC",
            f"Weierstrass {kl['Weierstrass']:.2f}, KDEMC {kl['KDEMC']:.2f}",
            "KL lower than KDEMC's",
            kl["Weierstrass"] < kl["KDEMC"],
            tie(kl, ("Weierstrass",), ("KDEMC",)),
        ),
        Claim(
            "the stochastic gradient methods perform better than the divide and conquer algorithms",
            listed(kl),
            "the KL of both below that of the three others",
            max(kl[name] for name in SAMPLED) < min(kl[name] for name in COMBINED),
            tie(kl, SAMPLED, COMBINED),
        ),
        Claim(
            "once again SGHMC is more sensitive to the starting point than SGLD",
            f"KL from (-4, -4) less KL from the mode: {listed(lost, SAMPLED)}",
            f"larger for SGHMC, and above {CLOSE}",
            lost["SGHMC"] > max(lost["SGLD"], CLOSE),
            UNKNOWN_START,
        ),
    ]
