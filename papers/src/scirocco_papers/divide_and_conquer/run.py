"""Thesis, figures 2.4.1 to 2.4.4: stochastic gradients and divide-and-conquer MCMC, on four kinds of posteriors.

A heavy-tailed, a bimodal, a warped and a normal posterior (see `problems`), 20 shards, batches of 50
rows, ten runs on the same data. What is measured is KL(posterior ‖ approximation), by nearest neighbours, from 2,000
draws of each: every 50th iteration (10th for the normal law) of SGLD and SGHMC; for the others NUTS draws of the
subposteriors. A run of SGLD computes 5 million gradients of rows, one of SGHMC 15, one of all shards together 13 (161
for the mixture). Exact draws, measured like a method, show what 0 looks like.

Every method except consensus is tuned on separate runs by the divergence that is then measured, as in the thesis.
Only for the normal posterior it is tuned by the divergence of normal laws with the draws' moments: by neighbours,
chains that explore too little are below 0 in many dimensions, and tuning would look for those.

The divergence is that of all parameters. Of the mixture, that of θ₁ alone, which the contours show, is recorded too.
SGLD-CV is no method of that comparison: it shows what control variates, the default here, do in the same iterations.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import gaussian_kde

from scirocco.errors import SciroccoWarning
from scirocco.types import PyTree
from scirocco_papers.base import Outcome, Settings
from scirocco_papers.divide_and_conquer import measures
from scirocco_papers.divide_and_conquer.claims import judge, notes
from scirocco_papers.divide_and_conquer.methods import (
    JUDGED,
    SAMPLED,
    TODAY,
    Plan,
    Tuned,
    chains,
    combined,
    compare,
    divergences,
)
from scirocco_papers.divide_and_conquer.problems import (
    Draws,
    Problem,
    gaussian,
    heavy_tailed,
    mixture,
    mixture_rows,
    subposterior_draws,
    warped,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "SGLD": "#e69f00",
    "SGHMC": "#56b4e9",
    "Consensus": "#7b3294",
    "KDEMC": "#d55e00",
    "Weierstrass": "#009e73",
    "SGLD-CV": "#777777",
}
TITLES = {"t": "heavy tails", "mixture": "two modes", "warped": "warped"}
LABELS = {"t": "θ₁, θ₂", "mixture": "θ₁; KL of θ₁ and θ₂", "warped": "θ₁, θ₂"}
_MASSES, _KERNELS, _CELLS, _SMALLEST = (0.95, 0.7, 0.3), 1_000, 60, 0.01


def draw(figure: Figure, pictures: dict[str, dict[str, Any]], numbers: dict[str, Any]) -> None:
    """A row for each posterior in the plane: the first run of each method over the truth, then boxes."""
    figure.set_size_inches(15, 11)
    rows = figure.subplots(4, 6)
    for row, (problem, draws) in zip(rows, pictures.items(), strict=False):
        for axes, name in zip(row, JUDGED, strict=False):
            _contours(axes, draws, name)
        row[0].set_ylabel(f"{TITLES[problem]} ({LABELS[problem]})")
        _boxes(row[-1], numbers["problems"][problem])
    for axes, name in zip(rows[0], JUDGED, strict=False):
        axes.set_title(name, color=COLOURS[name], fontweight="bold")
    rows[0][-1].set_title("KL from the truth")
    grid = rows[3][0].get_gridspec()
    for axes in rows[3]:
        axes.remove()
    for place, (key, title) in enumerate({"kl": "by neighbours", "kl_moments": "by moments"}.items()):
        axes = figure.add_subplot(grid[3, 2 * place : 2 * place + 2])
        _dimensions(axes, numbers["gaussian"], key)
        axes.set_title(f"normal posterior, KL {title}")
    _tuning(figure.add_subplot(grid[3, 4:]), numbers["problems"])


def _contours(axes: Axes, draws: dict[str, Any], name: str) -> None:
    low, high = np.quantile(draws["truth"], [0.0005, 0.9995], axis=0)
    room = 0.15 * (high - low)
    sides = [np.linspace(a, b, _CELLS) for a, b in zip(low - room, high + room, strict=True)]
    for key, colour, width in (("truth", "black", 0.8), (name, COLOURS[name], 1.6)):
        cells = _density(draws[key], sides)
        if cells is not None:
            axes.contour(*sides, cells, levels=_levels(cells), colors=colour, linewidths=width)
    axes.set(xlim=(low - room)[0:1].tolist() + (high + room)[0:1].tolist(), ylim=(low[1] - room[1], high[1] + room[1]))
    axes.tick_params(labelsize=7)


def _density(draws: PyTree, sides: list[Any]) -> Any:
    """Heights of a kernel estimate on the grid; None where there is nothing to see."""
    if not np.all(np.isfinite(draws)):
        return None
    kept = draws[np.linspace(0, len(draws) - 1, min(len(draws), _KERNELS)).astype(int)]
    x, y = np.meshgrid(*sides)
    cells = gaussian_kde(kept.T, 0.2)(np.stack([x.ravel(), y.ravel()])).reshape(x.shape)
    return cells if cells.max() > 0 else None


def _levels(cells: Any) -> list[float]:
    """Heights whose contours enclose 95, 70 and 30 % of the mass."""
    ordered = np.sort(cells.ravel())[::-1]
    sums = np.cumsum(ordered) / ordered.sum()
    return sorted({float(ordered[np.searchsorted(sums, mass)]) for mass in _MASSES})


def _boxes(axes: Axes, found: dict[str, Any]) -> None:
    names = list(found["methods"])
    for place, name in enumerate([*names, "exact"]):
        values = found["exact"] if name == "exact" else found["methods"][name]["kl"]
        style: Any = {"color": COLOURS.get(name, "black"), "linewidth": 1.2}
        parts = ("boxprops", "whiskerprops", "capprops", "medianprops")
        shown = np.maximum(np.where(np.isfinite(values), values, np.nan), _SMALLEST)
        axes.boxplot(
            shown[np.isfinite(shown)],
            positions=[place],
            widths=0.6,
            flierprops={"markersize": 2, "markeredgecolor": style["color"]},
            **dict.fromkeys(parts, style),
        )
    axes.set_yscale("log")
    axes.set_xticks(range(len(names) + 1), [*names, "exact draws"], rotation=60, ha="right", fontsize=7)


def _dimensions(axes: Axes, by_dimension: dict[int, Any], key: str) -> None:
    sizes = sorted(by_dimension)
    for name in by_dimension[sizes[0]]["methods"]:
        colour = COLOURS[name]
        values = np.array([by_dimension[d]["methods"][name][key] for d in sizes])
        low, middle, high = np.maximum(np.quantile(values, [0.0, 0.5, 1.0], axis=1), _SMALLEST)
        axes.fill_between(sizes, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(sizes, middle, "o-", color=colour, label=name)
    floor = [np.maximum(np.median(by_dimension[d][key.replace("kl", "exact")]), _SMALLEST) for d in sizes]
    axes.plot(sizes, floor, ":", color="black", label="exact draws")
    axes.set(xscale="log", yscale="log", xlabel="dimension d")
    axes.set_xticks(sizes, [str(d) for d in sizes])
    axes.minorticks_off()
    if key == "kl":
        axes.legend(fontsize=8, ncols=2)


def _tuning(axes: Axes, problems: dict[str, Any]) -> None:
    """What the choice of a setting costs: KL over the grid, less the best, on the three posteriors."""
    places = {"t": 0, "mixture": 1, "warped": 2}
    names = [name for name in JUDGED if name != "Consensus"]
    for shift, name in enumerate(names):
        for problem, place in places.items():
            tried = np.array([value for _, value in problems[problem]["methods"][name]["tried"]])
            tried = np.maximum(tried[np.isfinite(tried)], _SMALLEST)
            at = np.full(len(tried), place + 0.18 * (shift - 1.5))
            axes.plot(at, tried, "-", color=COLOURS[name], linewidth=1)
            axes.plot(at, tried, "o", color=COLOURS[name], markersize=4, label=name if place == 0 else None)
    axes.set_xticks(list(places.values()), [TITLES[name] for name in places])
    axes.set(yscale="log", title="KL at all settings tried")
    axes.legend(fontsize=8)


PLANE = Plan(num_runs=10, num_iterations=100_000, num_draws=2_000, num_trials=3)
SPACE = Plan(num_runs=10, num_iterations=20_000, num_draws=2_000, num_trials=1)
QUICK_PLANE = Plan(num_runs=3, num_iterations=60_000, num_draws=1_000, num_trials=1, short=True)
QUICK_SPACE = Plan(num_runs=3, num_iterations=5_000, num_draws=1_000, num_trials=1, short=True)
DIMENSIONS, QUICK_DIMENSIONS = (5, 10, 20, 50, 100, 200), (20, 50)
REFERENCE, QUICK_REFERENCE = 5_000, 1_500
SEPARATED = 1.0
"""Distance of the mixture's centres at which the modes no longer overlap."""
_TRUTH, _FLOOR = 9_000, 9_100
"""Numbers of exact draws: those to compare with and those that are measured like a method."""

Found = dict[str, Any]


def study(problem: Problem, plan: Plan, seed: int, names: Sequence[str]) -> tuple[Found, dict[str, Draws]]:
    """Methods on one posterior: numbers of each, and the draws (run, draw, d); for the mixture also "published"."""
    shards = subposterior_draws(problem, plan.num_trials + plan.num_runs, plan.num_draws, seed)
    runs = compare(problem, plan, seed, names, shards)
    draws = {name: found.draws for name, (_, found) in runs.items()}
    exact = np.stack([problem.exact(plan.num_draws, _FLOOR + k) for k in range(plan.num_runs)])
    numbers: Found = {"curvature": problem.curvature, "exact": divergences(problem, exact, _TRUTH)}
    if problem.normal is not None:
        numbers["exact_moments"] = divergences(problem, exact, _TRUTH, "moments")
        diagonal = combined("diagonal", shards[-2:], (), seed).draws
        numbers["diagonal_moments"] = divergences(problem, diagonal, _TRUTH, "moments")
    numbers["methods"] = {
        name: _described(problem, tuned, found.draws) | {"combining_seconds": found.combining_seconds}
        for name, (tuned, found) in runs.items()
    }
    if problem.name == "mixture":
        draws["published"] = combined("published", shards[-2:], runs["KDEMC"][0].setting, seed).draws
    return numbers, draws


def _described(problem: Problem, tuned: Tuned, draws: Draws) -> Found:
    also = ["moments"] if problem.normal else ["back"] + ["drawn"] * (problem.shown < problem.dimension)
    return {
        "kl": divergences(problem, draws, _TRUTH),
        **{f"kl_{how}": divergences(problem, draws, _TRUTH, how) for how in also},
        "setting": tuned.setting,
        "tried": tuned.tried,
    }


def _of_mixture(problem: Problem, found: Found, draws: dict[str, Draws], plan: Plan, seed: int) -> None:
    """The modes: seen or not, also from a starting point far away and when they lie apart."""
    truth = problem.exact(10_000, _TRUTH)
    found["exact_valley"] = float(measures.valley(measures.along(truth, truth)))
    published = draws.pop("published")
    for name, each in draws.items():
        places = measures.along(each, truth)
        found["methods"][name] |= {"share": measures.share(places), "valley": measures.valley(places)}
    found["published"] = {
        "kl": divergences(problem, published, _TRUTH),
        "share": measures.share(measures.along(published, truth)),
    }
    x, start = mixture_rows(seed, SEPARATED)
    apart = dataclasses.replace(problem, x=x, start=start)
    for name in SAMPLED:
        facts = found["methods"][name]
        far = chains(problem, name, facts["setting"], plan, plan.num_runs, seed + 900, problem.far).draws
        facts["far"] = {"kl": divergences(problem, far, _TRUTH), "share": measures.share(measures.along(far, truth))}
        there = chains(apart, name, facts["setting"], plan, plan.num_runs, seed + 950).draws
        centres = np.stack([start, np.roll(start, 2)])
        facts["apart"] = {"share": measures.share(measures.along(there, centres))}


def _of_warped(problem: Problem, found: Found, draws: dict[str, Draws], plan: Plan, seed: int) -> None:
    """Tails, and a starting point far away."""
    truth = problem.exact(50_000, _TRUTH)
    for name, each in draws.items():
        found["methods"][name] |= {"reach": measures.reach(each, truth), "tail": measures.tail(each, truth)}
    for name in SAMPLED:
        facts = found["methods"][name]
        far = chains(problem, name, facts["setting"], plan, plan.num_runs, seed + 900, problem.far).draws
        facts["far"] = {"kl": divergences(problem, far, _TRUTH)}


def in_plane(problem: Problem, plan: Plan, seed: int, names: Sequence[str]) -> tuple[Found, dict[str, Draws]]:
    """Numbers for one of the first three posteriors, and what is drawn of it."""
    found, draws = study(problem, plan, seed, names)
    if problem.name == "mixture":
        _of_mixture(problem, found, draws, plan, seed)
    if problem.name == "warped":
        _of_warped(problem, found, draws, plan, seed)
    truth = problem.exact(10_000, _TRUTH)[:, :2]
    return found, {"truth": truth} | {name: each[0][:, :2] for name, each in draws.items()}


def run(settings: Settings) -> Outcome:
    """A quick run has three runs, fewer iterations and settings, d up to 50, and no SGLD-CV."""
    seed, quick = settings.seed or 0, settings.quick
    plane, space = (QUICK_PLANE, QUICK_SPACE) if quick else (PLANE, SPACE)
    names = JUDGED if quick else (*JUDGED, TODAY)
    sizes = sorted(QUICK_DIMENSIONS if quick else DIMENSIONS, reverse=True)

    def plane_of(make: Callable[[], Problem]) -> tuple[Found, dict[str, Draws]]:
        return in_plane(make(), plane, seed, names)

    def space_of(dimension: int) -> Found:
        return study(gaussian(seed, dimension), space, seed, names)[0]

    makers = (
        partial(mixture, seed, QUICK_REFERENCE if quick else REFERENCE),
        partial(heavy_tailed, seed),
        partial(warped, seed),
    )
    # two at a time: each waits for the compiler half of its time, which uses one core
    with warnings.catch_warnings(action="ignore", category=SciroccoWarning), ThreadPoolExecutor(2) as pool:
        planes = [pool.submit(plane_of, make) for make in makers]
        spaces = [pool.submit(space_of, dimension) for dimension in sizes]
        mixed, heavy, bent = (future.result() for future in planes)
        by_dimension = dict(zip(sizes, (future.result() for future in spaces), strict=True))
    three = {"t": heavy, "mixture": mixed, "warped": bent}
    numbers: Found = {
        "num_runs": plane.num_runs,
        "num_draws": plane.num_draws,
        "problems": {name: found for name, (found, _) in three.items()},
        "gaussian": {d: by_dimension[d] for d in sorted(by_dimension)},
    }
    pictures = {name: shown for name, (_, shown) in three.items()}
    return Outcome(judge(numbers, quick), numbers, lambda figure: draw(figure, pictures, numbers), notes(numbers))
