"""Thesis, figures 3.5.1, 3.5.2, 4.5.1, 4.6.2 and A.3.1: logistic regression on covertype by every sampler of it.

the sizes
    SGLD, SGLD-CV and SAGA on 1 %, 10 % and all of the training rows, steps fixed and decreasing
    (`logistic_covertype_sizes`).
the six
    sgld, sghmc, sgnht and the three with control variates (`logistic_covertype_six`).
the boxes
    SGLD-CV with and without zero-variance control variates (`zero_variance`).

Scores are those of 10⁴ rows that were held out; 10⁴ others choose the steps of the six. Five seeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import datasets
from scirocco_papers.base import Outcome, Settings
from scirocco_papers.covertype_rows import Rows, first, split
from scirocco_papers.logistic_covertype import six
from scirocco_papers.logistic_covertype import sizes as by_size
from scirocco_papers.logistic_covertype.claims import judge, notes
from scirocco_papers.logistic_covertype.six import CONTROLLED, PLAIN
from scirocco_papers.logistic_covertype.sizes import HALF, OWN
from scirocco_papers.zero_variance.run import box, mode

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "SGLD": "#7b3294",
    "SGLD-CV": "#009e73",
    OWN: "#0072b2",
    "SAGA": "#e69f00",
    HALF: "#d55e00",
    "sgld": "#7b3294",
    "sghmc": "#0072b2",
    "sgnht": "#e69f00",
}
COLOURS |= {f"{name}cv": COLOURS[name] for name in PLAIN}
BELOW, ABOVE = 0.02, 0.002
"""How much of the score is shown around the best of a panel."""


def draw(figure: Figure, numbers: dict[str, Any]) -> None:
    """Rows of panels: fixed steps, decreasing steps, six samplers and boxes."""
    sizes = numbers["sizes"]
    order = sorted(sizes)
    figure.set_size_inches(12.5, 10.5)
    panels = figure.subplots(3, 3, squeeze=False)
    for row, kind in zip(panels, ("fixed", "decreasing"), strict=False):
        for axes, size in zip(row, order, strict=False):
            _curves(axes, sizes[size][kind])
            axes.set_title(f"{size:,} rows, {kind} steps")
        row[0].set_ylabel("log predictive density")
    for axes in panels[1]:
        axes.set_xlabel("passes over the rows, set-up included")
    panels[0, 0].legend(fontsize=7.5, loc="lower right")
    for axes, names, title in ((panels[2, 0], PLAIN, "standard"), (panels[2, 1], CONTROLLED, "with control variates")):
        _losses(axes, numbers["six"], names)
        axes.set(title=f"six samplers: {title}", xlabel="steps after burn-in or ascent", ylabel="log loss")
    _boxes(panels[2, 2], numbers["boxes"])


def _curves(axes: Axes, found: dict[str, Any]) -> None:
    """The mean over the seeds and their range."""
    for name, curve in found.items():
        passes, mean = np.asarray(curve["passes"]), np.asarray(curve["mean"])
        axes.fill_between(passes, curve["low"], curve["high"], color=COLOURS[name], alpha=0.2, linewidth=0)
        axes.plot(passes, mean, color=COLOURS[name], linewidth=1.2, label=name)
    best = max(curve["late_mean"] for curve in found.values())
    axes.set_ylim(best - BELOW, best + ABOVE)


def _losses(axes: Axes, six: dict[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        found = six[name]
        places = np.asarray(found["iterations"]) * found["inner"]
        axes.plot(places, found["first_chain"], color=COLOURS[name], linewidth=0.9, label=name)
    axes.legend(fontsize=8)


def _boxes(axes: Axes, boxes: list[dict[str, Any]]) -> None:
    for name, shift, colour in (("without", -0.2, COLOURS["sgld"]), ("with", 0.2, COLOURS["SGLD-CV"])):
        style: Any = {"color": colour, "linewidth": 1.2}
        axes.boxplot(
            [each[name] for each in boxes],
            positions=[number + shift for number in range(1, len(boxes) + 1)],
            widths=0.3,
            flierprops={"markersize": 2, "markeredgecolor": colour},
            **dict.fromkeys(("boxprops", "whiskerprops", "capprops", "medianprops"), style),
        )
        axes.plot([], [], color=colour, label=f"{name} zero variance")
    axes.set_xticks(range(1, len(boxes) + 1), [str(number) for number in range(1, len(boxes) + 1)])
    axes.set(title="SGLD-CV along the chain", xlabel="run", ylabel="log predictive density")
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.margins(y=0.15)
    axes.legend(fontsize=8, loc="upper left")


NUM_STEPS, NUM_SEEDS, NUM_TEST = 10_000, 5, 10_000
BOX_DRAWS = 500
_SHOWN = 250


def sizes_of(train: Rows, test: Rows, shares: list[float], num_steps: int, num_seeds: int, seed: int) -> Any:
    """Curves and their summaries, by the number of rows."""
    found = {}
    for share in shares:
        rows = first(train, share)
        curves = by_size.curves(rows, test, share, num_steps, num_seeds, seed)
        found[len(rows.y)] = {
            kind: {name: _summary(curve) for name, curve in each.items()} for kind, each in curves.items()
        }
    return found


def _summary(curve: by_size.Curve) -> dict[str, Any]:
    late = curve.scores[:, curve.scores.shape[1] // 2 :]
    few = slice(None, None, max(1, curve.scores.shape[1] // _SHOWN))
    return {
        "passes": curve.passes[few],
        "mean": curve.scores.mean(axis=0)[few],
        "low": curve.scores.min(axis=0)[few],
        "high": curve.scores.max(axis=0)[few],
        "first_passes": curve.first_passes,
        "late_mean": float(late.mean()),
        "late_sd": float(np.sqrt(late.var(axis=1).mean())),
    }


def stability(train: Rows, shares: list[float]) -> dict[int, dict[str, float]]:
    """2/λ at the start, where every row has the curvature xxᵀ/4, and SAGA's ε."""
    found = {}
    for share in shares:
        x = first(train, share).x
        largest = float(np.linalg.eigvalsh(np.asarray(x.T @ x, np.float64))[-1]) / 4
        found[len(x)] = {"limit": 2 / largest, "saga": by_size.STEPS[share]["SAGA"] / 2}
    return found


def six_of(rows: Rows, test: Rows, validation: Rows, grid: Any, num_iterations: int, num_seeds: int, seed: int) -> Any:
    """Each method with its best step size."""
    keys = jax.random.split(jax.random.key(seed), 2)
    start = {"bias": jax.random.normal(keys[0]), "beta": jax.random.normal(keys[1], (rows.x.shape[1],))}
    methods = six.Six(rows, start, num_iterations, seed)
    found = {}
    for name in six.NAMES:
        tried = methods.tuned(name, validation, grid)
        step = min(tried, key=lambda h: tried[h])
        chains = methods.run(name, step, test, num_seeds, seed)
        means = chains.losses.mean(axis=1)
        found[name] = {
            "step": step,
            "tried": tried,
            "inner": six.LEAPFROG if "hmc" in name else 1,
            "iterations": chains.iterations,
            "first_chain": chains.losses[0],
            "mean": float(means.mean()),
            "error": float(means.std(ddof=1) / np.sqrt(len(means))),
            "sd": float(np.sqrt(chains.losses.var(axis=1).mean())),
            "burnin": six.burnin(chains),
        }
    return found


def _part(rows: Rows, begin: int, end: int) -> Rows:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[begin:end]), rows)


def run(settings: Settings) -> Outcome:
    """A quick run has a tenth of the rows at most, two seeds and a fifth of the steps."""
    seed, quick = settings.seed or 0, settings.quick
    num_steps, num_seeds = (NUM_STEPS // 5, 2) if quick else (NUM_STEPS, NUM_SEEDS)
    grid = six.GRID[1::2] if quick else six.GRID
    shares = [share for share in by_size.STEPS if share <= (0.1 if quick else 1.0)]
    train, held_out = split(datasets.covertype(settings.data_dir), seed)
    count = min(NUM_TEST, len(held_out.y) // 2)
    test, validation = _part(held_out, 0, count), _part(held_out, count, 2 * count)
    rows = first(train, shares[-1])
    centre, step = mode(rows), by_size.STEPS[shares[-1]]["SGLD-CV"] / 2
    draws = BOX_DRAWS // 2 if quick else BOX_DRAWS
    smallest = first(train, shares[0])
    numbers: dict[str, Any] = {
        "num_training": len(train.y),
        "num_test": len(test.y),
        "sizes": sizes_of(train, test, shares, num_steps, num_seeds, seed),
        "listed_ascent": by_size.listed_ascent(smallest, test, num_steps, num_seeds, seed),
        "stability": stability(train, shares),
        "boxes": [box(rows, test, centre, step, draws, seed + k) for k in range(num_seeds)],
        "six": six_of(rows, test, validation, grid, num_steps, num_seeds, seed),
    }
    return Outcome(judge(numbers, quick), numbers, lambda figure: draw(figure, numbers), notes(numbers))
