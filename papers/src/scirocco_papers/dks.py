"""Baker et al. (2018), figure 2: Kolmogorov-Smirnov distances to sparse and dense Dirichlet posteriors by batch size.

Posteriors, step sizes and numbers of draws are those of `dirichlet_posteriors`; batches are 0.001 to 0.5 of the data,
without replacement. For each of five seeds the step size of table 1 with the least distance counts, as in the paper.
SCIR-CV is added. The floor is what as many independent exact draws give.

Choosing the best of seven distances makes a distance smaller even where the step size does not matter. How much, is
measured on exact draws.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scirocco_papers import dirichlet_posteriors as dp
from scirocco_papers.base import Claim, Outcome, Settings, error_of, in_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROPORTIONS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5)
QUICK_PROPORTIONS = (0.01, 0.1, 0.5)
NUM_SEEDS = 5
BAR_AT = 0.1
MUCH_BETTER, NEAR_EXACT, SIMILAR = 0.5, 2.5, (0.5, 2.0)
LEVEL, HIGHEST = (0.07, 0.14), 0.05
_SHOWN = ("SGRLD", "SCIR", "SCIR-CV (ii)")


def run(settings: Settings) -> Outcome:
    """A quick run has three batch sizes, fewer step sizes and no SCIR-CV (i)."""
    seed, quick = settings.seed or 0, settings.quick
    proportions = QUICK_PROPORTIONS if quick else PROPORTIONS
    step_sizes = dp.QUICK_STEP_SIZES if quick else dp.STEP_SIZES
    methods = [method for method in dp.METHODS if not (quick and method == "SCIR-CV (i)")]
    numbers: dict[str, Any] = {"proportions": list(proportions), "num_seeds": NUM_SEEDS, "posteriors": {}}
    rng = np.random.default_rng([seed, 32])
    for posterior in dp.COUNTS:
        exact = dp.distances(posterior, dp.exact_draws(posterior, NUM_SEEDS, rng))
        numbers["posteriors"][posterior] = {
            "exact": {"distances": exact, "median": float(np.median(exact))},
            "samplers": {
                method: [
                    dp.sweep(posterior, method, step_sizes[method], size, seed=seed, num_chains=NUM_SEEDS)
                    for size in batch_sizes(proportions)
                ]
                for method in methods
            },
        }
    numbers["selection"] = selection(20 if quick else 100, len(dp.STEP_SIZES["SCIR"]), rng)
    return Outcome(judge(numbers), numbers, lambda figure: draw(figure, numbers), notes(numbers))


def batch_sizes(proportions: tuple[float, ...]) -> list[int]:
    """n = proportion × N."""
    return [round(proportion * dp.NUM_ROWS) for proportion in proportions]


def selection(num_repeats: int, num_tries: int, rng: np.random.Generator) -> dict[str, float]:
    """Median distance of exact draws from the sparse posterior, of one set and of the best of several."""
    found = [dp.distances("sparse", dp.exact_draws("sparse", num_tries, rng)) for _ in range(num_repeats)]
    return {
        "num_tries": num_tries,
        "one": float(np.median([each[0] for each in found])),
        "best": float(np.median([min(each) for each in found])),
    }


# -- judging -------------------------------------------------------------------------------------------------


def judge(numbers: dict[str, Any]) -> list[Claim]:
    """The claims, with the numbers found here."""
    return [
        _much_better(numbers),
        _converging(numbers),
        _similar(numbers),
        *(_control_is_best(posterior, numbers) for posterior in dp.COUNTS),
        _level(numbers),
    ]


def _medians(numbers: dict[str, Any], posterior: str, method: str) -> np.ndarray:
    return np.array([each["median"] for each in numbers["posteriors"][posterior]["samplers"][method]])


def _errors(numbers: dict[str, Any], posterior: str, method: str) -> np.ndarray:
    """Standard errors of these medians over the seeds."""
    found = numbers["posteriors"][posterior]["samplers"][method]
    return np.array([error_of(each["best"], "median") for each in found])


def _series(numbers: dict[str, Any], values: np.ndarray, form: str = ".3f") -> str:
    pairs = zip(numbers["proportions"], values, strict=True)
    return ", ".join(f"{value:{form}} ({share:g})" for share, value in pairs)


def _much_better(numbers: dict[str, Any]) -> Claim:
    scir, sgrld = (_medians(numbers, "sparse", method) for method in ("SCIR", "SGRLD"))
    return Claim(
        "[sparse] the SCIR process is achieving much better results than SGRLD",
        f"medians of d_KS by proportion: SCIR {_series(numbers, scir)}; SGRLD {_series(numbers, sgrld)}",
        f"SCIR's at most {MUCH_BETTER:g} of SGRLD's at every proportion",
        bool(np.all(scir <= MUCH_BETTER * sgrld)),
    )


def _converging(numbers: dict[str, Any]) -> Claim:
    scir, floor = _medians(numbers, "sparse", "SCIR"), numbers["posteriors"]["sparse"]["exact"]["median"]
    errors = _errors(numbers, "sparse", "SCIR")
    floor_error = error_of(numbers["posteriors"]["sparse"]["exact"]["distances"], "median")
    return Claim(
        "[sparse] … and converging towards the exact sampler at larger minibatch sizes",
        f"SCIR {scir[0]:.3f} at the smallest, {scir[-1]:.3f} at the largest; exact draws {floor:.3f}",
        f"less at the largest proportion than at the smallest, and at most {NEAR_EXACT:g} times the exact draws'",
        bool(scir[-1] < scir[0] and scir[-1] <= NEAR_EXACT * floor),
        margin=in_errors(
            (scir[0] - scir[-1], np.hypot(errors[0], errors[-1])),
            (NEAR_EXACT * floor - scir[-1], np.hypot(errors[-1], NEAR_EXACT * floor_error)),
        ),
    )


def _similar(numbers: dict[str, Any]) -> Claim:
    names = ("SCIR", "SGRLD")
    medians = {name: _medians(numbers, "dense", name) for name in names}
    ratios = medians["SCIR"] / medians["SGRLD"]
    errors = np.hypot(*(_errors(numbers, "dense", name) / medians[name] for name in names))
    logs = np.log(ratios)
    return Claim(
        "[dense] as we move to the dense setting the samplers have similar properties",
        f"median d_KS of SCIR over SGRLD's: {_series(numbers, ratios, '.2f')}",
        f"between {SIMILAR[0]:g} and {SIMILAR[1]:g} at every proportion",
        bool(np.all((ratios >= SIMILAR[0]) & (ratios <= SIMILAR[1]))),
        margin=in_errors(*zip(np.minimum(logs - np.log(SIMILAR[0]), np.log(SIMILAR[1]) - logs), errors, strict=True)),
    )


def _control_is_best(posterior: str, numbers: dict[str, Any]) -> Claim:
    own = _medians(numbers, posterior, "SCIR-CV (ii)")
    best = np.minimum(_medians(numbers, posterior, "SCIR"), _medians(numbers, posterior, "SGRLD"))
    errors = [_errors(numbers, posterior, name) for name in ("SCIR", "SCIR-CV (ii)")]
    return Claim(
        f"[not in the paper, {posterior}: SCIR-CV (ii) is nearer to the posterior than both]",
        f"its median d_KS {_series(numbers, own)}; of the better of the two {_series(numbers, best)}",
        "less at every proportion",
        bool(np.all(own < best)),
        ours=True,
        margin=in_errors(*zip(best - own, np.hypot(*errors), strict=True)),
    )


def _level(numbers: dict[str, Any]) -> Claim:
    at = numbers["proportions"].index(BAR_AT)
    values = {method: float(_medians(numbers, "dense", method)[at]) for method in _SHOWN}
    errors = {method: float(_errors(numbers, "dense", method)[at]) for method in _SHOWN}
    room = {method: min(values[method] - LEVEL[0], LEVEL[1] - values[method]) for method in _SHOWN}
    room["SCIR-CV (ii)"] = HIGHEST - values["SCIR-CV (ii)"]
    level = all(LEVEL[0] <= values[method] <= LEVEL[1] for method in ("SCIR", "SGRLD"))
    return Claim(
        f"[dense, minibatch {BAR_AT:g} of the data: SCIR and SGRLD level, SCIR-CV (ii) near exact draws]",
        f"median d_KS: {', '.join(f'{name} {value:.3f}' for name, value in values.items())}; exact draws "
        f"{numbers['posteriors']['dense']['exact']['median']:.3f}",
        f"SCIR and SGRLD between {LEVEL[0]:g} and {LEVEL[1]:g}, SCIR-CV (ii) at most {HIGHEST:g}",
        bool(level and values["SCIR-CV (ii)"] <= HIGHEST),
        ours=True,
        margin=in_errors(*((room[method], errors[method]) for method in _SHOWN)),
    )


def notes(numbers: dict[str, Any]) -> list[str]:
    """Findings in addition to the claims."""
    chosen = numbers["selection"]
    notes = [
        f"Picking by the distance itself flatters: the median d_KS of exact draws is {chosen['one']:.4f}, and of the "
        f"best of {chosen['num_tries']} sets of exact draws {chosen['best']:.4f}, {chosen['best'] / chosen['one']:.2f} "
        "times as much."
    ]
    for posterior, facts in numbers["posteriors"].items():
        if "SCIR-CV (i)" in facts["samplers"]:
            notes.append(f"SCIR-CV (i), {posterior}: {_series(numbers, _medians(numbers, posterior, 'SCIR-CV (i)'))}.")
    return notes


# -- drawing -------------------------------------------------------------------------------------------------


def draw(figure: Figure, numbers: dict[str, Any]) -> None:
    """Dots for the seeds, a line through their medians; a band for exact draws."""
    figure.set_size_inches(11, 4.6)
    panels = figure.subplots(1, 2, sharey=True)
    proportions = np.array(numbers["proportions"])
    for axes, (posterior, facts) in zip(panels, numbers["posteriors"].items(), strict=True):
        for place, method in enumerate(_SHOWN):
            colour, beside = dp.COLOURS[method], 1.06 ** (place - 1)
            dots = np.array([each["best"] for each in facts["samplers"][method]])
            for column in dots.T:
                axes.plot(proportions * beside, column, "o", color=colour, markersize=3.5, alpha=0.6)
            axes.plot(proportions * beside, np.median(dots, axis=1), color=colour, label=method)
        exact = facts["exact"]["distances"]
        axes.axhspan(min(exact), max(exact), color="black", alpha=0.15, linewidth=0, label="exact draws")
        axes.set(title=f"{posterior} posterior", xlabel="minibatch, share of the data", xscale="log")
        axes.set_xticks(proportions, [f"{share:g}" for share in proportions], fontsize=8.5)
        axes.minorticks_off()
    panels[0].set(ylabel="d_KS at the best step size", ylim=(0, None))
    panels[1].legend()
