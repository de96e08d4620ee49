"""Ma, Chen & Fox (2015), figure 3: SGLD, SGHMC, SGRLD and SGRHMC for the topics of Wikipedia, in the expanded mean.

As in the paper: 10,000 documents in batches of 50, three runs of each sampler, runtime per 100 documents. Its
supplement with the settings is not available: K = 100, α = 0.01, β = 0.0001 and 50 sweeps over a batch (25 dropped) are
those of Patterson & Teh (2013), whom it follows, and the step sizes and frictions are the best of a small grid on other
documents, one chain each.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from scirocco.models import LDA
from scirocco.samplers import schedules
from scirocco_papers import lda_runs as runs
from scirocco_papers.base import Claim, Outcome, Settings, error_of, in_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUM_TRAINING, NUM_HELD, NUM_DOCUMENTS, NUM_MARKS, NUM_RUNS = 50_000, 1_000, 10_000, 10, 3
QUICK = {"training": 4_000, "held": 300, "documents": 1_500, "marks": 4, "runs": 4}
ALPHA, BETA = 0.01, 0.0001
SIMILAR = 1.5
COLOURS = {"SGLD": "#56b4e9", "SGHMC": "#0072b2", "SGRLD": "#7b3294", "SGRHMC": "#d55e00"}


class Try(NamedTuple):
    """A step size, which decays as ε (1 + m/1000)^-κ, and a friction."""

    step: float
    friction: float | None = None

    def __str__(self) -> str:
        return f"ε = {self.step:g}" + ("" if self.friction is None else f", C = {self.friction:g}")


GRID = {
    "SGLD": (Try(0.1), Try(0.3), Try(1.0)),
    "SGHMC": (Try(0.3, 100.0), Try(0.8, 1.0), Try(0.8, 10.0), Try(0.8, 100.0)),
    "SGRLD": (Try(0.005), Try(0.01), Try(0.02)),
    "SGRHMC": (Try(0.1, 1.0), Try(0.14, 10.0), Try(0.14, 100.0), Try(0.2, 100.0)),
}
KNOWN = {"SGLD": Try(0.3), "SGHMC": Try(0.8, 10.0), "SGRLD": Try(0.01), "SGRHMC": Try(0.14, 100.0)}
"""For a quick run."""
_KAPPA = {"SGLD": 0.6, "SGRLD": 0.6, "SGHMC": 0.3, "SGRHMC": 0.3}
"""Patterson & Teh's for steps of Langevin samplers; half of it for the Hamiltonian ones, whose ε is like a root."""


def model(name: str, tried: Try, num_topics: int, sweeps: int) -> LDA:
    """One of the four."""
    return LDA(
        num_topics,
        alpha=ALPHA,
        beta=BETA,
        sampler=name.lower(),
        memory="none",
        batch_size=50,
        sweeps=sweeps,
        burn_in=sweeps // 2,
        step_size=schedules.polynomial(tried.step, 1000.0, _KAPPA[name]),
        options=None if tried.friction is None else {"friction": tried.friction},
    )


def run(settings: Settings) -> Outcome:
    """A quick run has fewer documents and topics, and no grid."""
    quick, seed = settings.quick, settings.seed or 0
    size = QUICK if quick else {"training": NUM_TRAINING, "held": NUM_HELD, "documents": NUM_DOCUMENTS}
    marks, num_runs = (QUICK["marks"], QUICK["runs"]) if quick else (NUM_MARKS, NUM_RUNS)
    shape = (20, 20) if quick else (100, 50)
    chosen, tuning = (KNOWN, {}) if quick else tune(settings, seed)
    texts = runs.wikipedia(settings, size["training"], size["held"])
    jobs = {
        name: [runs.Job(model(name, tried, *shape), size["documents"], seed + number) for number in range(num_runs)]
        for name, tried in chosen.items()
    }
    curves = runs.follow_all(texts, jobs, marks)
    numbers: dict[str, Any] = {
        "chosen": {name: str(tried) for name, tried in chosen.items()},
        "tuning": tuning,
        "seconds_per_100": {name: float(np.median(per_hundred(each))) for name, each in curves.items()},
        "curves": curves,
    }
    return Outcome(judge(numbers), numbers, lambda figure: draw(figure, numbers), notes(numbers))


def tune(settings: Settings, seed: int) -> tuple[dict[str, Try], dict[str, Any]]:
    """The best of each sampler's grid on other documents, and all that was found."""
    texts = runs.wikipedia(settings, NUM_TRAINING, NUM_HELD, split=1)
    jobs = {
        name: [runs.Job(model(name, tried, 100, 50), NUM_DOCUMENTS, seed + 1000) for tried in grid]
        for name, grid in GRID.items()
    }
    found = runs.follow_all(texts, jobs, NUM_MARKS)
    chosen = {name: GRID[name][int(np.argmin(runs.ends(curves)))] for name, curves in found.items()}
    tuning = {
        name: {
            str(tried): {"averaged": curve["averaged"][-1], "now": curve["now"][-1]}
            for tried, curve in zip(GRID[name], curves, strict=True)
        }
        for name, curves in found.items()
    }
    return chosen, tuning


def per_hundred(curves: list[dict[str, Any]]) -> list[float]:
    """Seconds of processor time for 100 documents of each run, from the first mark on: compilers work before it."""
    return [100 * float(np.ptp(curve["seconds"]) / np.ptp(curve["documents"])) for curve in curves]


# -- judging -------------------------------------------------------------------------------------------------


def judge(numbers: dict[str, Any]) -> list[Claim]:
    """What the paper says, in its order."""
    return [_geometry(numbers), _momentum(numbers), _runtimes(numbers)]


def _listed(numbers: dict[str, Any], score: str) -> str:
    curves = numbers["curves"]
    return "; ".join(
        f"{name} {' '.join(f'{value:.0f}' for value in runs.ends(each, score))}" for name, each in curves.items()
    )


def _geometry(numbers: dict[str, Any]) -> Claim:
    scores = {name: runs.ends(each) for name, each in numbers["curves"].items()}
    worst = max(scores["SGRLD"].max(), scores["SGRHMC"].max())
    best = min(scores["SGLD"].min(), scores["SGHMC"].min())
    return Claim(
        "the results demonstrate the importance of Riemannian variants of the stochastic gradient samplers",
        f"perplexity at the end, by run: {_listed(numbers, 'averaged')}",
        "every run of SGRLD and SGRHMC below every run of SGLD and SGHMC",
        bool(worst < best),
        margin=in_errors(
            *(
                (
                    scores[plain].mean() - scores[other].mean(),
                    np.hypot(error_of(scores[plain]), error_of(scores[other])),
                )
                for plain in ("SGLD", "SGHMC")
                for other in ("SGRLD", "SGRHMC")
            )
        ),
    )


def _momentum(numbers: dict[str, Any]) -> Claim:
    scores = {name: runs.ends(each).mean() for name, each in numbers["curves"].items()}
    return Claim(
        "there also appear to be some benefits from the HMC term, for Riemannian and non-Riemannian samplers",
        f"means at the end: SGHMC {scores['SGHMC']:.0f}, SGLD {scores['SGLD']:.0f}; SGRHMC {scores['SGRHMC']:.0f}, "
        f"SGRLD {scores['SGRLD']:.0f}. Topics as they are at the end, not averaged: {_listed(numbers, 'now')}",
        "SGHMC below SGLD, and SGRHMC below SGRLD",
        bool(scores["SGHMC"] < scores["SGLD"] and scores["SGRHMC"] < scores["SGRLD"]),
        "not expected with tuned steps. A batch of 50 shakes the momentum so much that the best friction forgets it "
        "within a step or so (C ε ≥ 1), and what is left is nearly a Langevin step. SGRLD's step makes noise at the "
        "boundary: single states are spoilt by it, but averaged over states it smooths topics that have too sparse a "
        "prior",
    )


def _runtimes(numbers: dict[str, Any]) -> Claim:
    seconds = numbers["seconds_per_100"]
    least, most = (pick(seconds, key=seconds.__getitem__) for pick in (min, max))
    errors = [error_of(np.log(per_hundred(numbers["curves"][name])), "median") for name in (least, most)]
    return Claim(
        "the average runtime for the different methods are similar since the main bottleneck is the gradient",
        "per 100 documents: " + ", ".join(f"{name} {value:.3f} s" for name, value in seconds.items()),
        f"the longest at most {SIMILAR:g} times the shortest",
        max(seconds.values()) <= SIMILAR * min(seconds.values()),
        margin=in_errors((np.log(SIMILAR * seconds[least] / seconds[most]), math.hypot(*errors))),
    )


def notes(numbers: dict[str, Any]) -> list[str]:
    """Findings in addition to the claims."""
    chosen = "; ".join(f"{name} {tried}" for name, tried in numbers["chosen"].items())
    notes = [f"Step sizes: {chosen}. The paper's runtimes per 100 documents: 0.73 s to 0.82 s."]
    for name, found in numbers["tuning"].items():
        notes.append(
            f"Tuning of {name}, on other documents: "
            + ", ".join(
                f"{scores['averaged']:.0f} and as they are {scores['now']:.0f} ({tried})"
                for tried, scores in found.items()
            )
            + "."
        )
    return notes


# -- drawing -------------------------------------------------------------------------------------------------


def draw(figure: Figure, numbers: dict[str, Any]) -> None:
    """The figure of the experiment."""
    figure.set_size_inches(12.5, 4.2)
    left, middle, table = figure.subplots(1, 3, width_ratios=(1.5, 1.5, 1))
    for axes, score in ((left, "from_start"), (middle, "now")):
        for name, each in numbers["curves"].items():
            runs.plot_band(axes, each, "documents", score, color=COLOURS[name], label=name)
        axes.set(xlabel="documents", xlim=(0, None))
    low, high = np.array([axes.get_ylim() for axes in (left, middle)]).T
    for axes in (left, middle):
        axes.set_ylim(low.min(), high.max())
    left.set(title="p averaged over the marks so far", ylabel="perplexity of held-out words")
    middle.set(title="topics as they are")
    middle.legend()
    names = list(numbers["curves"])
    seconds = [numbers["seconds_per_100"][name] for name in names]
    table.barh(names[::-1], seconds[::-1], color=[COLOURS[name] for name in names[::-1]])
    for place, value in enumerate(seconds[::-1]):
        table.text(value, place, f" {value:.3f} s", va="center")
    table.set(title="processor time\nper 100 documents", xlim=(0, 1.3 * max(seconds)), xticks=[])
    table.spines["bottom"].set_visible(False)
