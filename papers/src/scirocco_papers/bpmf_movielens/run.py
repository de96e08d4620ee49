"""Thesis, figures 3.5.3, 3.5.4 and A.3.2: matrix factorisation of MovieLens 100k by SGLD, SGLD-CV and SAGA.

The model of Chen et al. (2014) as the thesis has it: D = 20, τ = 3, λ ~ Gamma(1, 300), batches of 5,000, and for every
table a step size that is divided by the root mean square of its gradient (`LeafScaledSGLD`). Ratings of the first 100,
470 and 943 users, a tenth of them for testing; steps as in table A.3.3 (its h is our 2ε), constant and decreasing like
(1 + k/1000)^-0.33. What the thesis leaves open: ratings are taken less their mean, the λ are drawn from their
conditional law after every step, chains start at N(0, 0.1²).

the curves
    Mean log density of the test ratings at every tenth draw, five seeds, against passes over the ratings: SGLD and SAGA
    pay a batch for a step, SGLD-CV two, and first its optimisation and a pass for the sum at the centre; SAGA a pass to
    fill its table. SGLD-CV starts from stochastic gradient ascent, which is the same sampler at temperature 0.
the boxes
    Scores along SGLD-CV with and without zero-variance control variates. There are 55,000 parameters and a few hundred
    draws, so not every gradient can be a control variate: these are of degree 1 in eight directions, the gradient of
    the score with respect to each table, as it is and divided by the curvature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from scirocco.datasets import movielens100k
from scirocco.estimators import ControlVariates, Estimator, Minibatch
from scirocco.run import Run
from scirocco.types import Params
from scirocco_latent.factorisation.method import CompactSAGA
from scirocco_papers.base import Outcome, Settings
from scirocco_papers.bpmf_movielens.chains import THIN, Problem, box, chain, last, noise_ratio, problem, scores, start
from scirocco_papers.bpmf_movielens.claims import METHODS, judge, notes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"SGLD": "#7b3294", "SGLD-CV": "#009e73", "SAGA": "#e69f00"}
BOX = {"without": "#7b3294", "with": "#009e73"}


def draw(figure: Figure, numbers: dict[str, Any]) -> None:
    """A row of panels for each kind of steps, one for each size; boxes at the right."""
    sizes = sorted(numbers["curves"])
    decays = list(numbers["curves"][sizes[0]])
    figure.set_size_inches(3.6 * (len(sizes) + 1), 3.2 * len(decays))
    panels = figure.subplots(len(decays), len(sizes) + 1, squeeze=False)
    for row, decay in enumerate(decays):
        for axes, size in zip(panels[row], sizes, strict=False):
            _curves(axes, numbers["curves"][size][decay])
            axes.set(title=f"{size} users, {decay} steps", xlabel="passes over the ratings")
        panels[row, 0].set_ylabel("mean log density of test ratings")
    panels[0, 0].legend(fontsize=8, loc="lower right")
    for row, (name, found) in enumerate(numbers["boxes"].items()):
        if row < len(decays):
            _boxes(panels[row, -1], found)
            panels[row, -1].set(title=f"SGLD-CV, {name}", xlabel="run")
    panels[0, -1].legend(fontsize=8)


def _curves(axes: Axes, found: dict[str, list[dict[str, Any]]]) -> None:
    """A line for each seed; the axis shows where curves arrive, not where they come from."""
    arrived = []
    for name, curves in found.items():
        for number, curve in enumerate(curves):
            axes.plot(
                curve["passes"],
                curve["scores"],
                color=COLOURS[name],
                linewidth=0.8,
                alpha=0.8,
                label=None if number else name,
            )
            arrived += [np.max(curve["scores"]), np.min(curve["scores"][len(curve["scores"]) // 4 :])]
    margin = 0.1 * (max(arrived) - min(arrived))
    axes.set_ylim(min(arrived) - margin, max(arrived) + margin)


def _boxes(axes: Axes, found: list[dict[str, Any]]) -> None:
    for name, shift in (("without", -0.2), ("with", 0.2)):
        style: Any = {"color": BOX[name], "linewidth": 1.2}
        parts = ("boxprops", "whiskerprops", "capprops", "medianprops")
        axes.boxplot(
            [each[name] for each in found],
            positions=[number + shift for number in range(1, len(found) + 1)],
            widths=0.3,
            flierprops={"markersize": 2, "markeredgecolor": BOX[name]},
            **dict.fromkeys(parts, style),
        )
        axes.plot([], [], color=BOX[name], label=f"{name} zero variance")
    axes.set_xticks(range(1, len(found) + 1), [str(number) for number in range(1, len(found) + 1)])
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.margins(y=0.15)


NUM_SEEDS, NUM_STEPS, NUM_ASCENT, ZV_STEPS = 5, 2_000, 1_000, 4_000
SIZES, QUICK_SIZES = (100, 470, 943), (100, 470)
PAPER_H = {
    "SGLD": {100: 1e-3, 470: 5e-3, 943: 5e-3},
    "SGLD-CV": {100: 5e-7, 470: 1e-6, 943: 1e-6},
    "SAGA": {100: 5e-3, 470: 1e-2, 943: 1e-2},
}
ASCENT_H = 1e-2
DECAYS = {"fixed": 0.0, "decreasing": 0.33}


def curve(given: Problem, method: str, decay: str, num_steps: int, seed: int, centre: Params) -> dict[str, Any]:
    """Scores of one chain against passes over the ratings, and how noisy its gradients are."""
    size = given.batch
    step = (PAPER_H[method][given.num_users] / 2, DECAYS[decay])
    begin, estimator = start(given, seed), _estimator(method, size, centre)
    run = chain(given, begin, estimator, step, num_steps, seed)
    cost, share = (2 if method == "SGLD-CV" else 1), size / len(given.train.value)
    first = {"SGLD": 0.0, "SGLD-CV": NUM_ASCENT * share + 1.0, "SAGA": 1.0}[method]
    found = np.asarray(scores(jax.tree.map(lambda leaf: leaf[0], run.draws), given.test), np.float64)
    steps = THIN * np.arange(1, len(found) + 1)
    return {"passes": first + cost * share * steps, "scores": found, "cpu": _cpu(run)}


def _estimator(method: str, size: int, centre: Params) -> Estimator:
    if method == "SGLD":
        return Minibatch(size)
    return ControlVariates(size, centre=centre) if method == "SGLD-CV" else CompactSAGA(size)


def _cpu(run: Run) -> float:
    """Seconds for a thousand steps, without compiling."""
    part = run.timing["sampling"]
    return 1e3 * part["cpu"] / max(1, part["steps"])


def ascent(given: Problem, seed: int) -> Any:
    """Where stochastic gradient ascent ends."""
    size = given.batch
    run = chain(given, start(given, seed), Minibatch(size), (ASCENT_H / 2, 0.0), NUM_ASCENT, seed, temperature=0.0)
    return last(run)


def run(settings: Settings) -> Outcome:
    """A quick run has two sizes, two seeds and fewer steps."""
    seed, quick = settings.seed or 0, settings.quick
    sizes, num_seeds = (QUICK_SIZES, 2) if quick else (SIZES, NUM_SEEDS)
    num_steps, zv_steps = (400, 800) if quick else (NUM_STEPS, ZV_STEPS)
    data = movielens100k(settings.data_dir)
    numbers: dict[str, Any] = {"curves": {}, "noise": {}, "boxes": {}}
    for size in sizes:
        given = problem(data, size, seed)
        centres = [ascent(given, seed + k) for k in range(num_seeds)]
        numbers["curves"][size] = {
            decay: {
                method: [curve(given, method, decay, num_steps, seed + k, centres[k]) for k in range(num_seeds)]
                for method in METHODS
            }
            for decay in DECAYS
        }
        numbers["noise"][size] = _noise_at_both(given, centres[0], num_steps, seed)
    for name, h in (("thesis' step", PAPER_H["SGLD-CV"][sizes[-1]]), ("SGLD's step", PAPER_H["SGLD"][sizes[-1]])):
        numbers["boxes"][name] = [
            box(given, centres[k], zv_steps, h / 2, seed + k)
            for k in range(num_seeds)  # of the largest size
        ]
    return Outcome(judge(numbers, quick), numbers, lambda figure: draw(figure, numbers), notes(numbers))


def _noise_at_both(given: Problem, centre: Params, num_steps: int, seed: int) -> dict[str, float]:
    """At the end of SGLD-CV with the thesis' step, and at a draw of plain SGLD."""
    size = given.batch
    ends = {
        "SGLD-CV": chain(
            given,
            centre,
            ControlVariates(size, centre=centre),
            (PAPER_H["SGLD-CV"][given.num_users] / 2, 0.0),
            num_steps,
            seed,
        ),
        "SGLD": chain(
            given, start(given, seed), Minibatch(size), (PAPER_H["SGLD"][given.num_users] / 2, 0.0), num_steps, seed
        ),
    }
    return {name: noise_ratio(given, last(end), centre, seed) for name, end in ends.items()}
