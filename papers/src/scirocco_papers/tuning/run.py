"""`step_size="auto"` against grid search, on ten posteriors of very different scale, dimension and correlation.

For each of `small_posteriors`, SGLD with control variates, four chains of 10,000 draws from the mode:

auto
    `sc.SGLD(step_size="auto")`: 32 step sizes tried side by side, in coordinates in which the posterior is round.
grid
    The same sampler in the same coordinates, with each of twelve step sizes in turn.
plain
    SGLD in the user's own units, with each of twelve step sizes: a grid search as it is usually made.
guess
    `sc.SGLD()`: the step size of the largest curvature, in the user's units.

Step sizes of a grid go from 1/25 to 12 times the first guess, as those that `auto` tries; the best by the kernel Stein
discrepancy of its run counts. Everything is measured against NUTS (`measures`). Times are CPU seconds of the
twelve runs and their discrepancies, and of `sc.analysis.tune`, all compiled before. The sentences are the library's own
promises.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from scirocco import _tree
from scirocco.analysis.tuning import tune
from scirocco.run.choose.tuning import Tuning
from scirocco.run.progress import Clock
from scirocco.samplers import SGLD, Preconditioned, Sampler
from scirocco.samplers.base import rebuilt
from scirocco_papers.base import Outcome, Settings
from scirocco_papers.small_posteriors.problems import NAMES, SmallPosterior, small_posterior
from scirocco_papers.small_posteriors.truth import truth
from scirocco_papers.tuning.claims import MEAN_BAR, SD_BAR, judge, notes
from scirocco_papers.tuning.measures import Measured, Yardstick, estimator, quiet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLES = {
    "auto": ("o", "#d55e00", "auto"),
    "grid": ("|", "black", "best of a grid, same coordinates"),
    "plain": ("s", "#0072b2", "best of a grid, the user's units"),
    "guess": ("^", "#999999", "first guess, the user's units"),
}
_LEAST = 1e-3
"""Ratios below this are drawn at it."""


def draw(figure: Figure, rows: list[dict[str, Any]]) -> None:
    """Errors of means, ratios of sds, curves."""
    figure.set_size_inches(13, 4.6)
    means, sds, curves = figure.subplots(1, 3, width_ratios=(1, 1, 1.15))
    sds.sharey(means)
    places = np.arange(len(rows))[::-1]
    for axes, key in ((means, "mean_error"), (sds, "sd_ratio")):
        for method, (marker, colour, label) in list(STYLES.items())[::-1]:
            values = np.maximum([row[method][key] for row in rows], _LEAST)
            size = 11 if marker == "|" else 6
            how = {"color": colour, "markersize": size, "markeredgewidth": 1.6 if marker == "|" else 0.5}
            axes.plot(values, places, marker, label=label, **how)
        axes.set(xscale="log", ylim=(-0.6, len(rows) - 0.4))
        axes.grid(axis="y", linewidth=0.4)
    means.set_xlim(0.01, max(1.0, 1.2 * means.get_xlim()[1]))
    means.axvspan(0.01, MEAN_BAR, color="#009e73", alpha=0.12, linewidth=0)
    sds.axvspan(1 - SD_BAR, 1 + SD_BAR, color="#009e73", alpha=0.12, linewidth=0)
    means.set_yticks(places, [f"{row['name']} ({row['num_params']})" for row in rows])
    sds.tick_params(labelleft=False)
    means.set(title="worst error of a mean, in sds", xlabel="wanted: the green part")
    sds.set(title="sd over NUTS', the farthest from 1", xlabel=f"below {_LEAST:g}: drawn there")
    _draw_curves(curves, rows)
    handles, labels = means.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside lower left", ncols=4, fontsize=8.5)


def _draw_curves(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """One curve a posterior, in the coordinates of `auto`; a dot where `auto` is."""
    for number, row in enumerate(rows):
        grid, auto, colour = row["grid"], row["auto"], f"C{number % 10}"
        axes.plot(grid["step_sizes"], np.array(grid["ksds"]) / row["nuts_ksd"], "-", color=colour, linewidth=1)
        axes.plot(auto["step_size"], auto["ksd"] / row["nuts_ksd"], "o", color=colour, label=row["name"])
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set(
        xscale="log",
        yscale="log",
        title="Stein discrepancy over that of NUTS' draws",
        xlabel="step size; lines: a grid, dots: auto",
    )
    axes.legend(fontsize=7.5, ncols=2)


QUICK_NAMES = ("linear", "hierarchical", "tiny")
NUM_SAMPLES = 10_000
NUM_POINTS, QUICK_POINTS = 12, 5
NUM_AGAIN = 5
"""Runs with other seeds at the step of `auto` and at the best of the grid, for the standard errors of a quick run. The
runs of the grid cannot serve: the best of them is the luckiest, too."""
LOWEST, HIGHEST = 1 / 25, 12.0
"""Ends of a grid, in units of the first guess."""


def run(settings: Settings) -> Outcome:
    """Every posterior in turn."""
    names, points, again = (QUICK_NAMES, QUICK_POINTS, NUM_AGAIN) if settings.quick else (NAMES, NUM_POINTS, 0)
    rows = [one_posterior(small_posterior(name), points, settings.seed or 0, num_again=again) for name in names]
    numbers = {"num_samples": NUM_SAMPLES, "posteriors": rows}
    return Outcome(judge(rows), numbers, lambda figure: draw(figure, rows), notes(rows))


def one_posterior(
    posterior: SmallPosterior, num_points: int, seed: int, num_samples: int = NUM_SAMPLES, num_again: int = 0
) -> dict[str, Any]:
    """All methods on one posterior, as plain numbers."""
    known = truth(posterior)
    yardstick = Yardstick(posterior, known)
    nuts = yardstick.nuts()
    clock = Clock()
    auto, report = yardstick.measure(SGLD(step_size="auto"), num_samples, seed)
    seconds = clock.read()
    clock = Clock()
    tuning = _tune(posterior, "halving", "auto", seed)
    search = clock.read()
    plain = _tune(posterior, "curvature", None, seed)
    guess = first_guess(plain)
    grid = _grid(yardstick, tuning.sampler, first_guess(tuning), num_points, num_samples, seed)
    again = {
        name: [
            yardstick.measure(with_step(tuning.sampler, step), num_samples, seed + 1_000 * k)[0]._asdict()
            for k in range(1, num_again + 1)
        ]
        for name, step in (("auto", auto.step_size), ("grid", grid["step_size"]))
        if not math.isnan(step)
    }
    return {
        "name": posterior.name,
        "num_params": _tree.size(posterior.start),
        "num_rows": len(jax.tree.leaves(posterior.data)[0]),
        "condition": known.condition,
        "nuts_ksd": nuts,
        "auto": _described(auto, seconds),
        "search": {
            "seconds": search,
            "num_settings": len(tuning.trials),
            "preconditioned": isinstance(tuning.sampler, Preconditioned),
            "same_choice": bool(report) and tuning.best.settings == report["tuning"]["chosen"],
        },
        "grid": grid,
        "plain": _grid(yardstick, plain.sampler, guess, num_points, num_samples, seed),
        "guess": _described(yardstick.measure(SGLD(guess), num_samples, seed)[0]),
    } | ({"again": again} if num_again else {})


def _tune(posterior: SmallPosterior, method: str, preconditioner: str | None, seed: int) -> Tuning:
    with quiet():
        return tune(
            posterior.model,
            posterior.data,
            posterior.start,
            estimator=estimator(posterior),
            method=method,
            preconditioner=preconditioner,
            seed=seed,
        )


def first_guess(tuning: Tuning) -> float:
    """The step size that the curvature alone suggests."""
    return float(next(trial.settings["step_size"] for trial in tuning.trials if trial.first_guess))


def with_step(sampler: Sampler, step_size: float) -> Sampler:
    """Another step size, in the same coordinates."""
    if isinstance(sampler, Preconditioned):
        return rebuilt(sampler, inner=SGLD(step_size))
    return SGLD(step_size)


def _grid(
    yardstick: Yardstick, sampler: Sampler, guess: float, num_points: int, num_samples: int, seed: int
) -> dict[str, Any]:
    """A run for each step size, one after the other."""
    clock = Clock()
    sizes = guess * np.geomspace(LOWEST, HIGHEST, num_points)
    found = [yardstick.measure(with_step(sampler, float(size)), num_samples, seed)[0] for size in sizes]
    return _described(best(found), clock.read()) | {
        "num_settings": num_points,
        "step_sizes": sizes,
        "ksds": [point.ksd for point in found],
        "num_diverged": sum(point.diverged for point in found),
    }


def best(found: list[Measured]) -> Measured:
    """The smallest discrepancy; runs that diverged come last."""
    return min(found, key=lambda point: math.inf if point.diverged else point.ksd)


def _described(point: Measured, seconds: dict[str, float] | None = None) -> dict[str, Any]:
    out = point._asdict() | {"diverged": point.diverged}
    return out if seconds is None else out | {"seconds": seconds}
