"""Baker et al. (2018), figure 1, and Barile & Nemeth, figure 1: boxplots of draws from a sparse Dirichlet posterior.

Dirichlet(800.1, 100.1, 100.1, 0.1, ..., 0.1) of 1,000 observations in ten categories; batches of 10, 1,000 draws after
1,000 steps. Every sampler is run at all step sizes of the SCIR paper's table 1 and with five seeds.

What the boxes show is also counted. Small values: how often component 5 is below its median. Spread: the
standard deviations of the first three components over the exact ones at h = 0.5, where the CV paper compares, from
longer chains, so that the ratios are known to about one per cent. SGRLD is shown at its best step size, because h = 0.5
is far out of its range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scirocco._extras import require
from scirocco.simplex import theory
from scirocco_papers import dirichlet_posteriors as dp
from scirocco_papers.base import Claim, Outcome, Settings, error_of, in_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POSTERIOR, BATCH, NUM_SEEDS = "sparse", 10, 5
METHODS = ("SCIR", "SCIR-CV (ii)", "SGRLD")
COMMON_STEP = 0.5
SMALL, LEADING, UNSEEN = 4, 3, 3
"""The component of the left panel, how many have data, and the first that has none (counted from 0)."""
RARELY, READILY = 0.2, (0.7, 1.4)
HIGHEST = {"SCIR": 0.11, "SCIR-CV (ii)": 0.05}
ABOUT = {"SGRLD": (0.30, 0.44), "exact": (0.022, 0.032)}
FIVE_TIMES, NEARLY_EXACT, EQUAL = (4.0, 6.0), 1.25, 1e-4
LOWEST_DRAWN = -30
_GREYS = {"exact": "white", "SCIR": "#d9d9d9", "SCIR-CV (ii)": "#8c8c8c", "SGRLD": "#4d4d4d"}


def run(settings: Settings) -> Outcome:
    """A quick run has fewer step sizes and shorter chains for the spread."""
    seed, step_sizes = settings.seed or 0, dp.QUICK_STEP_SIZES if settings.quick else dp.STEP_SIZES
    rng = np.random.default_rng([seed, 31])
    exact = dp.exact_draws(POSTERIOR, NUM_SEEDS, rng)
    sweeps = {
        method: dp.sweep(POSTERIOR, method, step_sizes[method], BATCH, seed=seed, num_chains=NUM_SEEDS)
        for method in METHODS
    }
    shown = {method: _draws(method, sweeps[method]["step"], seed) for method in METHODS}
    common = {method: _draws(method, COMMON_STEP, seed) for method in METHODS[:2]}
    floor = dp.distances(POSTERIOR, exact)
    numbers = {
        "concentration": dp.concentration(POSTERIOR).tolist(),
        "batch_size": BATCH,
        "num_seeds": NUM_SEEDS,
        "samplers": sweeps,
        "exact": {"distances": floor, "median": float(np.median(floor))},
        "below_median": {name: below_median(draws) for name, draws in {"exact": exact, **shown}.items()},
        "below_median_error": error_of([below_median(chain) for chain in shown["SCIR"]]),
        "spread": spread(seed, 16_000 if settings.quick else 40_000),
        "unseen": unseen(common["SCIR"], common["SCIR-CV (ii)"]),
    }
    boxes = {"exact": exact[0], **{method: draws[0] for method, draws in common.items()}}
    best = {"exact": exact[0], "SCIR": shown["SCIR"][0], "SGRLD": shown["SGRLD"][0]}
    boxes["SGRLD"] = best["SGRLD"]
    return Outcome(judge(numbers), numbers, lambda figure: draw(figure, numbers, best, boxes), notes(numbers))


def _draws(method: str, step_size: float, seed: int) -> np.ndarray:
    return np.asarray(
        dp.run_chains(POSTERIOR, method, step_size, BATCH, seed=seed, num_chains=NUM_SEEDS).draws, np.float64
    )


def below_median(draws: np.ndarray) -> float:
    """The share of draws in which component 5 is below its exact median; a half of exact ones are."""
    a = dp.concentration(POSTERIOR)
    special = require("scipy.special", "sparse-dirichlet")
    return float(np.mean(draws[..., SMALL] < special.betaincinv(a[SMALL], a.sum() - a[SMALL], 0.5)))


def spread(seed: int, num_draws: int) -> dict[str, Any]:
    """Standard deviations of the leading components over the exact ones at h = 0.5, chain by chain and pooled."""
    found: dict[str, Any] = {"num_draws": num_draws * NUM_SEEDS}
    a = dp.concentration(POSTERIOR)
    for method in METHODS:
        run = dp.run_chains(
            POSTERIOR, method, COMMON_STEP, BATCH, seed=seed + 1, num_chains=NUM_SEEDS, num_draws=num_draws
        )
        draws, exact = np.asarray(run.draws, np.float64), dp.standard_deviations(POSTERIOR)[:LEADING]
        each = draws[..., :LEADING].std(axis=1) / exact
        found[method] = {
            "ratios": np.sqrt(np.mean(each**2, axis=0)).tolist(),
            "errors": (each.std(axis=0, ddof=1) / NUM_SEEDS**0.5).tolist(),
            "mean_of_unseen": float(draws[..., UNSEEN].mean() * a.sum() / a[UNSEEN]),
        }
    for method, process in (("SCIR", "scir"), ("SCIR-CV (ii)", "scir_cv")):
        found[method]["theory_of_theta"] = theory_of_theta(process)
    return found


def theory_of_theta(process: str) -> list[float]:
    """The same ratios for the gamma variables θ, without simulation."""
    laws = [
        theory.Counts.hypergeometric(dp.CONCENTRATION, int(count), dp.NUM_ROWS, BATCH)
        for count in dp.COUNTS[POSTERIOR][:LEADING]
    ]
    return [theory.inflation(process, law, COMMON_STEP) ** 0.5 for law in laws]


def unseen(plain: np.ndarray, controlled: np.ndarray) -> dict[str, float]:
    """How much ω_4 differs between SCIR and SCIR-CV driven by the same random numbers, relative to its neighbours.

    θ_4 to θ_10 are the same gamma variables if control takes no action there; ω_4 over their sum does not depend on the
    other three.
    """
    shares = [draws[..., UNSEEN] / draws[..., UNSEEN:].sum(axis=-1) for draws in (plain, controlled)]
    return {
        "share_gap": float(np.max(np.abs(shares[0] - shares[1]))),
        "leading_gap": float(np.mean(np.abs(plain[..., 0] - controlled[..., 0]))),
    }


# -- judging -------------------------------------------------------------------------------------------------


def judge(numbers: dict[str, Any]) -> list[Claim]:
    """The claims, with the numbers found here."""
    return [
        _rarely(numbers),
        _readily(numbers),
        *(_distance(method, numbers) for method in (*METHODS, "exact")),
        _inflated(numbers),
        _controlled(numbers),
        _no_action(numbers),
    ]


def _rarely(numbers: dict[str, Any]) -> Claim:
    share = numbers["below_median"]["SGRLD"] / 0.5
    return Claim(
        "SGRLD rarely proposes small values of ω",
        f"component 5 is below the median of its law in {numbers['below_median']['SGRLD']:.3f} of SGRLD's draws "
        f"(h = {numbers['samplers']['SGRLD']['step']:g}); of exact draws in {numbers['below_median']['exact']:.3f}",
        f"less than {RARELY:g} times as often as under the posterior",
        bool(share < RARELY),
    )


def _readily(numbers: dict[str, Any]) -> Claim:
    share = numbers["below_median"]["SCIR"] / 0.5
    return Claim(
        "the SCIR process is able to handle smaller values of ω much more readily than SGRLD",
        f"component 5 is below the median of its law in {numbers['below_median']['SCIR']:.3f} of SCIR's draws "
        f"(h = {numbers['samplers']['SCIR']['step']:g}), of SGRLD's in {numbers['below_median']['SGRLD']:.3f}",
        f"{READILY[0]:g} to {READILY[1]:g} times as often as under the posterior",
        bool(READILY[0] < share < READILY[1]),
        margin=in_errors((min(share - READILY[0], READILY[1] - share), 2 * numbers.get("below_median_error", np.nan))),
    )


def _distance(name: str, numbers: dict[str, Any]) -> Claim:
    facts = numbers["exact"] if name == "exact" else numbers["samplers"][name]
    value = facts["median"]
    each = facts["distances"] if name == "exact" else facts["best"]
    how = f"{', '.join(f'{d:.3f}' for d in each)}"
    if name != "exact":
        how += f" at the best step of each, {', '.join(f'{h:g}' for h in facts['best_steps'])}"
    low, high = (0.0, HIGHEST[name]) if name in HIGHEST else ABOUT[name]
    rule = f"at most {high:g}" if name in HIGHEST else f"between {low:g} and {high:g}"
    return Claim(
        f"[not in the papers: the d_KS of {'exact draws' if name == 'exact' else name}]",
        f"median of five seeds {value:.3f} ({how})",
        rule,
        bool(low <= value <= high),
        ours=True,
        margin=in_errors((min(value - low, high - value), error_of(each, "median"))),
    )


def _ratios(numbers: dict[str, Any], method: str) -> str:
    facts = numbers["spread"][method]
    pairs = zip(facts["ratios"], facts["errors"], strict=True)
    return ", ".join(f"{ratio:.3f} ± {error:.3f}" for ratio, error in pairs)


def _inflated(numbers: dict[str, Any]) -> Claim:
    ratios = numbers["spread"]["SCIR"]["ratios"]
    return Claim(
        "[CV paper, figure 1: in the first three components the boxes of SCIR are far wider than the posterior's]",
        f"standard deviations over the exact ones at h = {COMMON_STEP:g}: {_ratios(numbers, 'SCIR')}",
        f"between {FIVE_TIMES[0]:g} and {FIVE_TIMES[1]:g} for each of the three",
        all(FIVE_TIMES[0] < ratio < FIVE_TIMES[1] for ratio in ratios),
    )


def _controlled(numbers: dict[str, Any]) -> Claim:
    ratios = numbers["spread"]["SCIR-CV (ii)"]["ratios"]
    return Claim(
        "this experiment highlights the benefit of using a control variate framework",
        f"standard deviations over the exact ones at h = {COMMON_STEP:g}: {_ratios(numbers, 'SCIR-CV (ii)')}",
        f"at most {NEARLY_EXACT:g} for each of the three",
        all(ratio <= NEARLY_EXACT for ratio in ratios),
        margin=in_errors(
            *zip([NEARLY_EXACT - r for r in ratios], numbers["spread"]["SCIR-CV (ii)"]["errors"], strict=True)
        ),
    )


def _no_action(numbers: dict[str, Any]) -> Claim:
    facts = numbers["unseen"]
    return Claim(
        "in a completely sparse setting … the control-variate framework naturally adapts to this setting and takes no "
        "action",
        f"with the same random numbers the share of ω_4 in the seven empty components differs by at most "
        f"{facts['share_gap']:.1e} between SCIR and SCIR-CV; ω_1 differs by {facts['leading_gap']:.3f} on average",
        f"equal within rounding, {EQUAL:g}",
        bool(facts["share_gap"] < EQUAL),
    )


def notes(numbers: dict[str, Any]) -> list[str]:
    """Findings in addition to the claims."""
    spread = numbers["spread"]
    third, error = (spread["SCIR-CV (ii)"][name][LEADING - 1] for name in ("ratios", "errors"))
    of_theta = spread["SCIR-CV (ii)"]["theory_of_theta"][LEADING - 1]
    safely = "safely below" if third + 4 * error < NEARLY_EXACT else "not safely below"
    return [
        f"Component 3 under SCIR-CV (ii) at h = {COMMON_STEP:g}: {third:.3f} ± {error:.3f} times the exact standard "
        f"deviation over {spread['num_draws']:,} draws, {safely} {NEARLY_EXACT:g}. The exact recursion gives "
        f"{of_theta:.3f} for θ_3; ω_3 = θ_3/Σθ has a little less.",
        f"The CV paper draws SGRLD at h = {COMMON_STEP:g} too. That is far out of its range: the standard deviations "
        f"of the first three components are {', '.join(f'{r:.1f}' for r in spread['SGRLD']['ratios'])} times the exact "
        f"ones, and the mean of component 4 is {spread['SGRLD']['mean_of_unseen']:.1f} times the exact one (SCIR's "
        f"{spread['SCIR']['mean_of_unseen']:.2f} times). The figure has SGRLD at h = "
        f"{numbers['samplers']['SGRLD']['step']:g}, its best in table 1.",
    ]


# -- drawing -------------------------------------------------------------------------------------------------


def draw(figure: Figure, numbers: dict[str, Any], best: dict[str, np.ndarray], boxes: dict[str, np.ndarray]) -> None:
    """Left figure 1 of the SCIR paper, then the four panels of figure 1 of the CV paper."""
    figure.set_size_inches(14.5, 4.6)
    left, *others = figure.subplots(1, 5, width_ratios=[1.15, 1, 1, 1, 1])
    steps = {method: facts["step"] for method, facts in numbers["samplers"].items()}
    labels = [name if name == "exact" else f"{name}\nh = {steps[name]:g}" for name in best]
    _boxes(left, [_logs(draws[:, SMALL]) for draws in best.values()], list(best))
    left.set_xticks(range(1, len(best) + 1), labels)
    left.set(title="Component 5, best steps", ylabel=f"log₁₀ ω₅, lower ones drawn at {LOWEST_DRAWN:g}")
    names = [
        f"{name}\nh = {steps[name] if name == 'SGRLD' else COMMON_STEP:g}" if name != "exact" else name
        for name in boxes
    ]
    for number, axes in enumerate(others):
        values = [draws[:, number] for draws in boxes.values()]
        if number == UNSEEN:
            values = [_logs(value) for value in values]
        _boxes(axes, values, list(boxes))
        axes.set_xticks(range(1, len(boxes) + 1), names, rotation=40, ha="right", rotation_mode="anchor")
        axes.set_title(f"Component {number + 1}" + (", log₁₀" if number == UNSEEN else ""))
    others[0].set_ylabel("ω")


def _logs(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.log10(np.maximum(values, 10.0**LOWEST_DRAWN)))


def _boxes(axes: Axes, values: list[np.ndarray], names: list[str]) -> None:
    parts = axes.boxplot(values, widths=0.62, patch_artist=True, flierprops={"markersize": 2, "alpha": 0.5})
    for box, name in zip(parts["boxes"], names, strict=True):
        box.set_facecolor(_GREYS[name])
    for line in parts["medians"]:
        line.set(color="#d55e00", linewidth=1.6)
