"""Piecewise deterministic samplers and scalable Metropolis-Hastings beside SGLD-CV, BAOAB-CV and NUTS, as N grows.

The logistic regression of `cost-in-n`, whose posterior is known by quadrature at any N. Two measurements for each
sampler and N:

z       the largest |z| of six moments (mean and variance of three parameters), with standard errors from the spread of
        the averages of independent chains, each started at the mode and burnt in;
rows    that are read for an effective draw of the worst parameter, without the set-up (a few passes, once).

The rules, sizes and lengths were fixed before the first run.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from scirocco.diagnostics.measures import ess
from scirocco.estimators import ControlVariates
from scirocco.model import Model
from scirocco.run import sample
from scirocco.samplers import BAOAB, NUTS, SGLD, SMH, BouncyParticle, Preconditioned, Sampler, ZigZag
from scirocco_papers.base import Claim, Outcome, Settings
from scirocco_papers.cost_in_n.counted import MODEL, Truth, count, exact, simulate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES, QUICK_SIZES = (1_000, 10_000, 100_000, 1_000_000), (1_000, 100_000)
NUM_CHAINS, NUM_DRAWS = 64, 250
LARGEST_Z = 4.5
"""In a full run 72 numbers of t distributions with 63 degrees of freedom exceed it with probability 0.002."""
RHO, BATCH, STEPS = 0.2, 10, 3_000
"""Of SGLD-CV: the step times the largest curvature, rows in a batch, and steps."""
NUTS_DRAWS, NUTS_ROWS = 200, 2e7
BOUNDED = Model(
    MODEL.log_likelihood,
    MODEL.log_prior,
    curvature_bound=lambda direction, row: 0.5 * jnp.dot(row, direction),
    third_bound=8 / (6 * math.sqrt(3)),
)
EXACT = {"zigzag": ZigZag(), "bouncy": BouncyParticle(), "smh": SMH()}
LABELS = {
    "zigzag": "zig-zag",
    "bouncy": "bouncy particle",
    "smh": "SMH",
    "sgld_cv": "SGLD-CV",
    "baoab_cv": "BAOAB-CV",
    "nuts": "NUTS",
}


def largest_z(draws: np.ndarray[Any, np.dtype[Any]], truth: Truth) -> float:
    """Of means and variances of draws (chain, draw, 3), from the spread of the chains."""
    unit = (draws.astype(np.float64) - truth.mean) / truth.sd
    values = np.concatenate([unit.mean(axis=1), (unit**2).mean(axis=1) - 1.0], axis=1)
    return float(np.max(np.abs(values.mean(axis=0) / (values.std(axis=0, ddof=1) / math.sqrt(len(values))))))


def measured(draws: Any, truth: Truth, rows_per_draw: float) -> dict[str, float]:
    """The two measurements."""
    draws = np.asarray(draws)
    effective = float(np.min(ess(draws))) / (draws.shape[0] * draws.shape[1])
    unit = (draws.reshape(-1, 3).astype(np.float64) - truth.mean) / truth.sd
    return {
        "z": largest_z(draws, truth),
        "rows": rows_per_draw / effective,
        "rows_per_draw": rows_per_draw,
        "variance": float(np.max(unit.var(axis=0))),
    }


def one_size(num_rows: int, seed: int) -> dict[str, Any]:
    """All samplers on data of one size."""
    rows = simulate(num_rows, seed)
    truth = exact(count(rows))
    common: dict[str, Any] = {"num_chains": NUM_CHAINS, "chain_method": "vmap", "seed": seed, "progress": False}
    start = jnp.asarray(truth.mode, jnp.float32)
    found: dict[str, dict[str, float]] = {}
    for name, sampler in EXACT.items():
        run = sample(BOUNDED, rows, start, sampler=sampler, num_samples=NUM_DRAWS, num_burnin=10, **common)
        found[name] = measured(run.draws, truth, 1.0 + float(np.mean(run.stats["n_rows"])))
    batches = ControlVariates(min(BATCH, num_rows))
    langevin = SGLD(RHO / float(truth.curvatures[-1]))
    approximate: tuple[tuple[str, Sampler, int], ...] = (
        ("sgld_cv", langevin, STEPS),
        ("baoab_cv", Preconditioned(BAOAB()), STEPS // 3),
    )
    for name, method, length in approximate:
        run = sample(
            MODEL, rows, start, sampler=method, estimator=batches, num_samples=length, num_burnin=200, **common
        )
        found[name] = measured(run.draws, truth, float(2 * BATCH))
    draws = int(np.clip(NUTS_ROWS / num_rows, 40, NUTS_DRAWS))
    run = sample(
        MODEL, rows, start, sampler=NUTS(), num_samples=draws, num_burnin=100, num_chains=4, seed=seed, progress=False
    )
    found["nuts"] = measured(run.draws, truth, num_rows * float(np.mean(run.stats["n_steps"])))
    return {"num_rows": num_rows} | found


def judge(table: list[dict[str, Any]]) -> list[Claim]:
    """One sentence of the thesis, and three of our own."""
    first, last = table[0], table[-1]

    def worst(names: tuple[str, ...]) -> float:
        return max(row[name]["z"] for row in table for name in names)

    def shown(name: str) -> str:
        return f"{LABELS[name]} {first[name]['rows']:.1f} and {last[name]['rows']:.1f}"

    processes, all_exact = ("zigzag", "bouncy"), tuple(EXACT)
    least = min(last[name]["rows"] for name in all_exact)
    return [
        Claim(
            "The gradient can be replaced by an estimate, and π remains the stationary solution (of piecewise "
            "deterministic processes).",
            f"largest |z| of means and variances, all N: {worst(processes):.1f}",
            f"at most {LARGEST_Z}",
            worst(processes) <= LARGEST_Z,
        ),
        Claim(
            "(ours) Scalable Metropolis-Hastings has exactly the posterior as its stationary distribution.",
            f"largest |z|, all N: {worst(('smh',)):.1f}",
            f"at most {LARGEST_Z}",
            worst(("smh",)) <= LARGEST_Z,
            ours=True,
        ),
        Claim(
            "(ours) An effective draw of the exact samplers costs no more rows for more data.",
            f"rows at N = {first['num_rows']:,} and {last['num_rows']:,}: " + ", ".join(map(shown, all_exact)),
            "at the largest N at most as many as at the smallest, for each",
            all(last[name]["rows"] <= first[name]["rows"] for name in all_exact),
            ours=True,
        ),
        Claim(
            "(ours) With a step of 0.2 over the largest curvature SGLD-CV has a bias that these runs detect, and NUTS "
            "needs 100 times the rows.",
            f"at N = {last['num_rows']:,}: |z| of SGLD-CV {last['sgld_cv']['z']:.1f}; rows for an effective draw "
            f"{last['nuts']['rows']:,.0f} (NUTS), {least:.1f} (the best exact one)",
            f"|z| above {LARGEST_Z}, and a factor of at least 100",
            last["sgld_cv"]["z"] > LARGEST_Z and last["nuts"]["rows"] >= 100 * least,
            ours=True,
        ),
    ]


def notes(table: list[dict[str, Any]]) -> list[str]:
    """What is nobody's claim."""
    last = table[-1]
    return [
        f"At N = {last['num_rows']:,}: variances of SGLD-CV are up to {last['sgld_cv']['variance']:.3f}, of BAOAB-CV "
        f"(its own choices) up to {last['baoab_cv']['variance']:.3f} times those of the posterior (largest |z| "
        f"{last['baoab_cv']['z']:.1f}), for {last['sgld_cv']['rows']:.0f} and {last['baoab_cv']['rows']:.0f} rows per "
        "effective draw.",
        "The thesis also mentions that control variates improve the zig-zag sampler. The library has no version "
        "without them, so that is not compared.",
    ]


def draw(figure: Figure, table: list[dict[str, Any]]) -> None:
    """Rows on the left, z on the right."""
    figure.set_size_inches(10, 4)
    left, right = figure.subplots(1, 2)
    sizes = [row["num_rows"] for row in table]
    colours = ("#0072b2", "#56b4e9", "#009e73", "black", "#d55e00", "grey")
    for (name, label), colour in zip(LABELS.items(), colours, strict=True):
        how = {"color": colour, "label": label, "linestyle": "-" if name in EXACT else "--"}
        left.plot(sizes, [row[name]["rows"] for row in table], marker="o", **how)
        if name != "nuts":  # four chains have no standard error
            right.plot(sizes, [row[name]["z"] for row in table], marker="o", **how)
    right.axhline(LARGEST_Z, color="black", linewidth=0.6, linestyle=":")
    left.set(title="Rows read for an effective draw", yscale="log")
    right.set(title="Largest |z| of means and variances", ylim=(0, None))
    for axes in (left, right):
        axes.set(xscale="log", xlabel="number of observations N")
    left.legend(loc="upper left")


def run(settings: Settings) -> Outcome:
    """The experiment."""
    seed = 0 if settings.seed is None else settings.seed
    table = [one_size(size, seed) for size in (QUICK_SIZES if settings.quick else SIZES)]
    return Outcome(judge(table), {"results": table}, lambda figure: draw(figure, table), notes(table))
