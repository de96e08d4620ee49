"""Every sampler with every estimator against NUTS, on subsets of covertype, with automatic step sizes.

Logistic regression with the columns that are not 0 in at least 1 % of the rows, N = 5,800 (all pairs) and 58,000
(minibatches and control variates), prior N(0, 2), minibatches of 500. Truth: NUTS in double precision. All chains start
at the centre of the Laplace approximation, and a fifth of the steps is burn-in, so that what is judged is the law of a
chain and how fast it mixes, not the way to the mode. Step sizes and frictions are the library's own choice
(`step_size=None`); PSGLD and SGFS choose none, and get what corresponds to 0.1 over the largest curvature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from scirocco import datasets
from scirocco.estimators import SAGA, SVRG, ControlVariates, Estimator, Full, Minibatch
from scirocco.samplers import BADODAB, BAOAB, PSGLD, SGFS, SGHMC, SGLD, SGNHT, Preconditioned, Sampler
from scirocco_papers.base import Outcome, Settings
from scirocco_papers.covertype_rows import split
from scirocco_papers.posterior_bias.claims import MATCHED, MATCHED_STEP, judge, notes
from scirocco_papers.posterior_bias.measures import KINKED, Measured, Subset, measure, subset

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAPS = (
    ("mean_bias", "error of a mean, in sds", "Reds", (0.0, 0.5), "{:.2f}"),
    ("sd_ratio", "sd / true sd", "PuOr", (0.6, 1.4), "{:.2f}"),
    ("ess_per_million", "effective draws / 10⁶ row gradients", "Greens", (-1.0, 2.5), "{:.3g}"),
)


def draw(figure: Figure, numbers: dict[str, Any]) -> None:
    """A row of maps for each number of rows."""
    tables = numbers["tables"]
    heights = [len(tables[size]) for size in tables]
    figure.set_size_inches(13, 1.6 + 0.42 * sum(heights) + 0.8 * len(heights))
    panels = figure.subplots(len(tables), len(MAPS), squeeze=False, height_ratios=heights)
    for row, size in zip(panels, tables, strict=True):
        for axes, (what, title, colours, limits, form) in zip(row, MAPS, strict=True):
            _heat(axes, tables[size], what, colours, limits, form)
            axes.set_title(f"N = {size:,}: {title}")
            if axes is not row[0]:
                axes.set_yticklabels([])


def _heat(axes: Axes, table: dict[str, Any], what: str, colours: str, limits: tuple[float, float], form: str) -> None:
    names, ways = list(table), list(next(iter(table.values())))
    values = np.array([[table[name][way][what] for way in ways] for name in names], float)
    shown = np.log10(np.maximum(values, 1e-3)) if what == "ess_per_million" else values
    axes.imshow(shown, cmap=colours, vmin=limits[0], vmax=limits[1], aspect="auto")
    axes.set_xticks(range(len(ways)), ways, rotation=20, ha="right")
    axes.set_yticks(range(len(names)), names)
    middle, half = sum(limits) / 2, (limits[1] - limits[0]) / 2
    for (i, j), value in np.ndenumerate(values):
        far = abs(shown[i, j] - middle) > 0.7 * half if what == "sd_ratio" else shown[i, j] > middle + 0.3 * half
        text = form.format(value) if np.isfinite(value) else "diverged"
        axes.text(j, i, text, ha="center", va="center", fontsize=8, color="white" if far else "black")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


BATCH, NUM_SEEDS = 500, 5
SMALL, LARGE = 5_800, 58_000
NUM_STEPS, FULL_STEPS, THIN = 20_000, 5_000, 10
NUTS_DRAWS = {SMALL: 2_000, LARGE: 600}
ROUND_STEP = 0.1
WITH_MOMENTUM = {"SGHMC": SGHMC, "SGNHT": SGNHT, "BAOAB": BAOAB, "BADODAB": BADODAB}


def samplers(at: Subset) -> dict[str, Sampler]:
    """By name; those in round coordinates have «round» in theirs."""
    plain: dict[str, Any] = {"SGLD": SGLD} | WITH_MOMENTUM
    return (
        {name: make() for name, make in plain.items()}
        | {"PSGLD": PSGLD(_rms_step(at)), "SGFS": SGFS(ROUND_STEP, jnp.asarray(at.factor @ at.factor.T))}
        | {f"{name}, round": Preconditioned(make()) for name, make in plain.items()}
        | {MATCHED: Preconditioned(SGLD(MATCHED_STEP))}
    )


def _rms_step(at: Subset) -> float:
    """For PSGLD, whose metric is about the deviations s: 0.1 s̄/λ with λ the largest of diag(s) H diag(s)."""
    covariance = np.asarray(at.factor @ at.factor.T, np.float64)
    sd = np.sqrt(np.diag(covariance))
    smallest = np.linalg.eigvalsh(covariance / np.outer(sd, sd))[0]
    return float(ROUND_STEP * np.median(sd) * smallest)


def estimators() -> dict[str, Estimator]:
    """By name."""
    return {
        "Full": Full(),
        "Minibatch": Minibatch(BATCH),
        "ControlVariates": ControlVariates(BATCH),
        "SVRG": SVRG(BATCH),
        "SAGA": SAGA(BATCH),
    }


def table(
    at: Subset, names: Any, which: Any, shorten: int, num_seeds: int, seed: int
) -> dict[str, dict[str, Measured]]:
    """A row a sampler, a column an estimator."""
    chosen, ways = samplers(at), estimators()
    return {
        name: {
            way: measure(
                at,
                chosen[name],
                ways[way],
                (FULL_STEPS if way == "Full" else NUM_STEPS) // shorten,
                THIN,
                num_seeds,
                seed,
            )
            for way in which
        }
        for name in names or [each for each in chosen if each != MATCHED]
    }


def run(settings: Settings) -> Outcome:
    """A quick run has three samplers, three estimators, the small subset, four seeds and a quarter of the steps."""
    seed, quick = settings.seed or 0, settings.quick
    num_seeds, shorten = (4, 4) if quick else (NUM_SEEDS, 1)
    train, _ = split(datasets.covertype(settings.data_dir), seed)
    small = subset(train, SMALL, NUTS_DRAWS[SMALL] // shorten, seed)
    names = ("SGLD", "SGLD, round", "BAOAB, round") if quick else None
    ways = ("Full", "Minibatch", "ControlVariates") if quick else tuple(estimators())
    tables = {SMALL: table(small, names, ways, shorten, num_seeds, seed)}
    truth = {SMALL: _described(small)}
    kinked = None
    if not quick:
        large = subset(train, LARGE, NUTS_DRAWS[LARGE], seed)
        truth[LARGE] = _described(large)
        round_ones = [name for name in samplers(large) if name.endswith("round")] + [MATCHED]
        tables[LARGE] = table(large, round_ones, ("Minibatch", "ControlVariates"), 1, num_seeds, seed)
        sharp = subset(train, SMALL, NUTS_DRAWS[SMALL] // 2, seed, KINKED)
        kinked = table(sharp, ("SGLD, round",), ("Full",), 1, num_seeds, seed)["SGLD, round"]["Full"]
    numbers: dict[str, Any] = {"truth": truth, "tables": _plain(tables)}
    if kinked is not None:
        numbers["kinked"] = kinked._asdict()
    return Outcome(judge(numbers), numbers, lambda figure: draw(figure, numbers), notes(numbers))


def _described(at: Subset) -> dict[str, float]:
    return {
        "num_columns": len(at.mean),
        "independent": at.independent,
        "condition": at.condition,
        "least_ess": at.truth_ess,
    }


def _plain(tables: dict[int, dict[str, dict[str, Measured]]]) -> Any:
    return {
        size: {
            name: {way: found._asdict() | {"ess_per_million": found.ess_per_million} for way, found in row.items()}
            for name, row in rows.items()
        }
        for size, rows in tables.items()
    }
