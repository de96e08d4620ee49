"""Thesis figure 4.2.1: accuracy and run time of SGLD-CV and of NUTS as the number of observations grows.

Data x_i ~ N(θ, 1) with prior θ ~ N(0, 10): the posterior is N(Σx/λ, 1/λ) with λ = N + 1/10, so the divergence is known.
The data are the paper's own: R's `set.seed(2); rnorm(10^6)`, of which the first N are used.

Settings as in the authors' script (their h is our 2ε): 1,000 draws, batch 1,000 (5,000 from N = 500,000 on), Stan with
1,000 iterations of warm-up and 1,000 draws. The divergence, too: KL(posterior ‖ normal with mean and variance of the
draws).

Two ways to choose ε:

the paper's
    h from the script's table `PAPER_H`: hλ/2 = ελ runs from 0.015 at N = 10³ to 0.15 at N = 10⁶.
the rule
    For a Gaussian the control variates are exact (the gradient is linear), so SGLD-CV is an AR(1) process with
    coefficient 1 - ρ, ρ = ελ. M draws of it have an expected divergence of about 3/(2Mρ) from the Monte Carlo error
    plus ρ²/16 from the step (`expected_kl`); ρ = (12/M)^(1/3) makes the sum smallest: ε = 0.23/λ for M = 1,000.

Times are CPU seconds of this process, so that other work on the machine disturbs them little. "Compiled anew" starts
from empty JAX caches, as the paper recompiles for each run; the other time is that of later runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.estimators import ControlVariates
from scirocco.model import Model
from scirocco.run import sample
from scirocco.run.progress import Clock
from scirocco.samplers import SGLD
from scirocco.types import Array
from scirocco_papers.base import Claim, Outcome, Settings, error_of, in_errors
from scirocco_papers.nuts import Nuts
from scirocco_papers.r_stream import RStream

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PRIOR_VARIANCE = 10.0
NUM_DRAWS = 1_000
PAPER_H = {1_000: 3e-5, 5_000: 1e-5, 10_000: 7e-6, 50_000: 5e-6, 100_000: 3e-6, 500_000: 1e-6, 1_000_000: 3e-7}
QUICK_SIZES = (1_000, 10_000, 100_000)
NUM_RUNS = 40
NUM_NUTS_RUNS, NUM_NUTS_RUNS_QUICK = 5, 8
"""More in a quick run: the divergence of one run varies by as much as itself, and the largest N is smaller."""
ANEW = "seconds_compiled_anew"
EXACT_SAMPLE = 1.0 / NUM_DRAWS
"""Expected divergence of M independent draws from the posterior: 1/2M from their mean and 1/2M from their variance."""

MODEL = Model(lambda theta, x: -0.5 * (x - theta) ** 2, lambda theta: -0.5 * theta**2 / PRIOR_VARIANCE)


def log_density(theta: Array, x: Array) -> Any:
    """The whole log posterior, for NUTS."""
    return -0.5 * theta**2 / PRIOR_VARIANCE - 0.5 * jnp.sum((x - theta) ** 2)


def precision(x: np.ndarray) -> float:
    """λ, the posterior precision."""
    return len(x) + 1.0 / PRIOR_VARIANCE


def kl_divergence(draws: np.ndarray, x: np.ndarray) -> float:
    """KL(posterior ‖ normal with the mean and variance of the draws)."""
    draws = np.asarray(draws, np.float64)
    variance = 1.0 / precision(x)
    mean = variance * float(np.sum(x, dtype=np.float64))
    fitted = draws.var(ddof=1)
    return float(0.5 * np.log(fitted / variance) + (variance + (mean - draws.mean()) ** 2) / (2 * fitted) - 0.5)


def best_rho(num_draws: int) -> float:
    """ρ = ελ with the smallest expected divergence."""
    return float((12.0 / num_draws) ** (1 / 3))


def expected_kl(rho: float, num_draws: int) -> float:
    """Divergence to be expected of `num_draws` draws of SGLD-CV with ελ = ρ, to leading order."""
    return 1.5 / (num_draws * rho) + rho**2 / 16


def batch_size(num_rows: int) -> int:
    """As in the authors' script."""
    return 1_000 if num_rows < 500_000 else 5_000


def run(settings: Settings) -> Outcome:
    """Every size in turn: SGLD-CV at both step sizes, and NUTS."""
    sizes = QUICK_SIZES if settings.quick else tuple(PAPER_H)
    seed = settings.seed or 0
    x = RStream(2).normal(max(sizes))
    nuts_runs = NUM_NUTS_RUNS_QUICK if settings.quick else NUM_NUTS_RUNS
    rows = [_one_size(x[:size], nuts_runs, seed + 1_000 * k) for k, size in enumerate(sizes)]
    numbers = {"sizes": list(sizes), "exact_sample_kl": EXACT_SAMPLE, "rho": best_rho(NUM_DRAWS), "results": rows}
    return Outcome(judge(rows), numbers, lambda figure: draw(figure, rows), notes(rows))


def _one_size(x: np.ndarray, nuts_runs: int, seed: int) -> dict[str, Any]:
    lam = precision(x)
    paper, rule = PAPER_H[len(x)] / 2, best_rho(NUM_DRAWS) / lam
    compiled = _sgld_cv(x, paper, seed, anew=True)
    runs = [_sgld_cv(x, paper, seed + k) for k in range(1, NUM_RUNS + 1)]
    ruled = [_sgld_cv(x, rule, seed + k) for k in range(1, NUM_RUNS + 1)]
    nuts = _nuts(x, nuts_runs, seed)
    return {
        "num_rows": len(x),
        "sgld_cv": _describe([r["kl"] for r in runs], compiled["seconds"], [r["seconds"] for r in runs])
        | {"step_size": paper, "rho": paper * lam, "expected_kl": expected_kl(paper * lam, NUM_DRAWS)},
        "sgld_cv_rule": {"kl": float(np.mean([r["kl"] for r in ruled])), "step_size": rule},
        "nuts": nuts,
    }


def _sgld_cv(x: np.ndarray, step_size: float, seed: int, anew: bool = False) -> dict[str, Any]:
    if anew:
        jax.clear_caches()
    clock = Clock()
    result = sample(
        MODEL,
        x.astype(np.float32),
        jnp.zeros(()),
        sampler=SGLD(step_size),
        estimator=ControlVariates(batch_size(len(x))),
        num_samples=NUM_DRAWS,
        seed=seed,
        progress=False,
    )
    return {"kl": kl_divergence(result.draws[0], x), "seconds": clock.read()}


def _nuts(x: np.ndarray, num_runs: int, seed: int) -> dict[str, Any]:
    jax.clear_caches()
    nuts = Nuts(log_density, np.zeros(()), x, num_warmup=NUM_DRAWS, num_draws=NUM_DRAWS)
    runs = [nuts.run(seed + k) for k in range(num_runs)]
    seconds = [r.seconds for r in runs]
    compiled = {kind: nuts.compile_seconds[kind] + seconds[0][kind] for kind in seconds[0]}
    return _describe([kl_divergence(r.draws, x) for r in runs], compiled, seconds)


def _describe(kl: list[float], compiled: dict[str, float], seconds: list[dict[str, float]]) -> dict[str, Any]:
    middle = {kind: float(np.median([s[kind] for s in seconds])) for kind in ("wall", "cpu")}
    return {
        "kl": float(np.mean(kl)),
        "kl_error": error_of(kl),
        "kl_quartiles": np.quantile(kl, [0.25, 0.75]),
        ANEW: compiled,
        "seconds": middle,
        "log_seconds_error": error_of(np.log([s["cpu"] for s in seconds]), "median"),
    }


def judge(rows: list[dict[str, Any]]) -> list[Claim]:
    """The claims, with the numbers found here."""
    return [*_judge_times(rows), *_judge_divergences(rows)]


def _judge_times(rows: list[dict[str, Any]]) -> list[Claim]:
    by_size = {row["num_rows"]: row for row in rows}
    first, last = rows[0]["num_rows"], rows[-1]["num_rows"]

    def seconds(method: str, size: int, kind: str = "seconds") -> float:
        return by_size[size][method][kind]["cpu"]

    def growth(method: str, since: int) -> float:
        return seconds(method, last) / seconds(method, since)

    def times(method: str) -> str:
        shown = ", ".join(f"{seconds(method, size):.2g} s" for size in (first, last // 10, last))
        anew = ", ".join(f"{seconds(method, size, ANEW):.2g} s" for size in (first, last // 10, last))
        return f"{shown} at N = {first:,}, {last // 10:,}, {last:,} (compiled anew {anew})"

    return [
        Claim(
            "We can see the run time of Stan increasing rapidly as the number of observations is increased,",
            f"NUTS {times('nuts')}",
            "without compiling, × √10 or more over the last tenfold growth of N",
            growth("nuts", last // 10) >= 10**0.5,
            margin=in_errors(
                (
                    np.log(growth("nuts", last // 10) / 10**0.5),
                    np.hypot(*(by_size[n]["nuts"].get("log_seconds_error", np.nan) for n in (last // 10, last))),
                )
            ),
        ),
        Claim(
            "while the run time of the sgmcmc algorithm increases more slowly.",
            f"SGLD-CV {times('sgld_cv')}",
            "without compiling, grows from the smallest to the largest N by less than half the factor of NUTS",
            growth("sgld_cv", first) < 0.5 * growth("nuts", first),
        ),
        Claim(
            "The Stan run time is much quicker for the small observation models if precompiled.",
            f"NUTS at N = {first:,}: {seconds('nuts', first):.2g} s instead of {seconds('nuts', first, ANEW):.2g} s",
            "less than half the time",
            seconds("nuts", first) < 0.5 * seconds("nuts", first, ANEW),
        ),
    ]


def _judge_divergences(rows: list[dict[str, Any]]) -> list[Claim]:
    sizes = [rows[0]["num_rows"], rows[-1]["num_rows"]]
    ours, nuts = ([row[method]["kl"] for row in (rows[0], rows[-1])] for method in ("sgld_cv", "nuts"))
    # relative errors of the four; for the first claim the distance from the limit is many of them
    errors = [
        row[method].get("kl_error", np.nan) / row[method]["kl"]
        for row in (rows[0], rows[-1])
        for method in ("sgld_cv", "nuts")
    ]
    return [
        Claim(
            "The KL divergence of the sgmcmc algorithm is poor compared with Stan for a small number of observations.",
            f"N = {sizes[0]:,}, the paper's step: SGLD-CV {ours[0]:.2g}, NUTS {nuts[0]:.2g} (independent draws "
            f"{EXACT_SAMPLE:.2g})",
            "more than 5 times that of NUTS",
            ours[0] > 5 * nuts[0],
        ),
        Claim(
            "As the dataset size increases the KL divergence becomes much more reasonable compared with Stan.",
            f"SGLD-CV {ours[0]:.2g} → {ours[1]:.2g}, NUTS {nuts[0]:.2g} → {nuts[1]:.2g}, from N = {sizes[0]:,} to "
            f"{sizes[1]:,}",
            "the ratio of the two falls to less than half",
            ours[1] / nuts[1] < 0.5 * ours[0] / nuts[0],
            margin=in_errors((np.log(0.5 * ours[0] / nuts[0] * nuts[1] / ours[1]), np.linalg.norm(errors))),
        ),
    ]


def notes(rows: list[dict[str, Any]]) -> list[str]:
    """Findings in addition to the claims."""
    rule = [row["sgld_cv_rule"]["kl"] for row in rows]
    paper = [row["sgld_cv"] for row in rows]
    return [
        "The poor divergence at small N comes from the paper's step sizes, not from N: ελ runs from "
        f"{paper[0]['rho']:.3g} to {paper[-1]['rho']:.3g}, so the chain at small N is short in its own time (theory "
        f"{paper[0]['expected_kl']:.2g} and {paper[-1]['expected_kl']:.2g}). With ε = (12/M)^(1/3)/λ the divergence is "
        f"{min(rule):.2g} to {max(rule):.2g} at every N (theory {expected_kl(best_rho(NUM_DRAWS), NUM_DRAWS):.2g}).",
        "For this model the control variates cancel the minibatch noise altogether: the gradient is linear in θ.",
    ]


def draw(figure: Figure, rows: list[dict[str, Any]]) -> None:
    """The figure of the experiment."""
    figure.set_size_inches(10, 4)
    left, right = figure.subplots(1, 2)
    sizes = [row["num_rows"] for row in rows]
    colours = {"nuts": "black", "sgld_cv": "#d55e00"}
    labels = {"nuts": "NUTS", "sgld_cv": "SGLD-CV, the paper's step"}
    for method in ("sgld_cv", "nuts"):
        colour = colours[method]
        quartiles = np.array([row[method]["kl_quartiles"] for row in rows]).T
        left.fill_between(sizes, *quartiles, color=colour, alpha=0.15, linewidth=0)
        left.plot(sizes, [row[method]["kl"] for row in rows], "o-", color=colour, label=labels[method])
        for kind, line in ((ANEW, "o-"), ("seconds", "o:")):
            name = labels[method].partition(",")[0] + (", compiled anew" if kind != "seconds" else ", not counting it")
            right.plot(sizes, [row[method][kind]["cpu"] for row in rows], line, color=colour, label=name)
    left.plot(sizes, [row["sgld_cv_rule"]["kl"] for row in rows], "s--", color="#0072b2", label="SGLD-CV, ε = 0.23/λ")
    label = f"{NUM_DRAWS:,} independent draws"
    left.axhline(EXACT_SAMPLE, color="grey", linewidth=0.8, label=label)
    left.set(title="KL divergence from the exact posterior (mean, quartiles)", ylabel="KL")
    right.set(title="Run time", ylabel="CPU seconds")
    for axes in (left, right):
        axes.set(xscale="log", yscale="log", xlabel="number of observations N")
        axes.legend()
