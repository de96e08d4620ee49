"""`scirocco demo`: a logistic regression posterior on 100,000 rows, and a check of every number against the exact mode.

The data are made here from a seed. The posterior of so many rows is close to normal, so its mode and curvature, found
by Newton's method in double precision, say what the sampler should find.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from scirocco._extras import require
from scirocco.errors import MissingExtraError
from scirocco.estimators import ControlVariates
from scirocco.experiments.base import make_folder, save_figure
from scirocco.experiments.tables import print_table
from scirocco.model import Model
from scirocco.run import Run, sample
from scirocco.samplers import SGLD

NUM_ROWS, NUM_FEATURES = 100_000, 12
NUM_CHAINS, NUM_SAMPLES, THIN = 4, 2_000, 25
BATCH_SIZE = 500
PRIOR_VARIANCE = 10.0
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
_MAX_LAG = 40


def log_likelihood(beta: Any, row: Any) -> Any:
    """Bernoulli with logit xᵀβ: of ONE row."""
    logit = row["x"] @ beta
    return row["y"] * logit - jnp.logaddexp(0.0, logit)


def log_prior(beta: Any) -> Any:
    """N(0, 10) for every coefficient."""
    return -0.5 * jnp.sum(beta**2) / PRIOR_VARIANCE


@dataclass(frozen=True)
class Problem:
    """Simulated rows, the coefficients they were made with, and the exact mode with its normal approximation."""

    data: dict[str, np.ndarray]
    truth: np.ndarray
    mode: np.ndarray
    sd: np.ndarray


@dataclass(frozen=True)
class Demo:
    """What the demo found."""

    problem: Problem
    run: Run
    table: Any
    """`run.summary()`, with `offset` = (mean - mode)/sd and `sd_ratio` = sd over the normal approximation's."""
    picture: Path | None
    seconds: float


def make_problem(num_rows: int, seed: int) -> Problem:
    """Correlated features, an intercept, and coefficients of many sizes (three of them 0)."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((num_rows, 1))
    features = np.sqrt(0.7) * rng.standard_normal((num_rows, NUM_FEATURES - 1)) + np.sqrt(0.3) * shared
    x = np.concatenate([np.ones((num_rows, 1)), features], axis=1).astype(np.float32)
    truth = rng.normal(0.0, 0.5, NUM_FEATURES)
    truth[0], truth[-3:] = -1.0, 0.0
    y = (rng.random(num_rows) < 1.0 / (1.0 + np.exp(-x @ truth))).astype(np.float32)
    mode, sd = laplace(x, y)
    return Problem({"x": x, "y": y}, truth, mode, sd)


def laplace(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mode by Newton's method, and the standard deviations of the normal approximation there, in float64."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    mode = np.zeros(x.shape[1])
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(-x @ mode))
        gradient = x.T @ (y - p) - mode / PRIOR_VARIANCE
        hessian = (x * (p * (1.0 - p))[:, None]).T @ x + np.eye(len(mode)) / PRIOR_VARIANCE
        move = np.linalg.solve(hessian, gradient)
        mode = mode + move
        if np.abs(move).max() < 1e-12:
            break
    return mode, np.sqrt(np.diag(np.linalg.inv(hessian)))


def run_demo(
    out_dir: Path = Path("results"),
    seed: int = 0,
    *,
    num_rows: int = NUM_ROWS,
    num_samples: int = NUM_SAMPLES,
    progress: bool = True,
) -> Demo:
    """Make the data, sample, compare, draw; prints as it goes."""
    for package in ("arviz", "pandas"):
        require(package, "`scirocco demo`")
    make_folder(out_dir)
    begin = time.perf_counter()
    print(f"{num_rows:,} rows, {NUM_FEATURES} coefficients, 0/1 outcomes; exact mode by Newton's method ...")
    problem = make_problem(num_rows, seed)
    print(f"SGLD with control variates: {NUM_CHAINS} chains × {num_samples:,} draws, {THIN} steps each ...")
    run = sample(
        Model(log_likelihood, log_prior),
        problem.data,
        np.zeros(NUM_FEATURES, np.float32),
        sampler=SGLD(),
        estimator=ControlVariates(batch_size=BATCH_SIZE),
        num_samples=num_samples,
        thin=THIN,
        num_chains=NUM_CHAINS,
        seed=seed,
        progress=progress,
    )
    table = compare(run, problem)
    _show(run, table, problem)
    picture = _save(run, problem, out_dir)
    seconds = time.perf_counter() - begin
    _say_what_next(picture, seconds)
    return Demo(problem, run, table, picture, seconds)


def compare(run: Run, problem: Problem) -> Any:
    """The summary with two columns more: how far the mean and the sd are from what the mode says."""
    table = run.summary(digits=None)
    table["offset"] = (table["mean"].to_numpy() - problem.mode) / problem.sd
    table["sd_ratio"] = table["sd"].to_numpy() / problem.sd
    return table


def _show(run: Run, table: Any, problem: Problem) -> None:
    columns = ["", "truth", "mean", "sd", "90 % interval", "ESS", "R-hat"]
    columns += ["exact\nmode", "mean-mode\nin sd", "sd over\nexact"]
    rows = []
    for number, row in enumerate(table.to_dict("records")):
        known = [f"{problem.truth[number]:.3f}", f"{row['mean']:.4f}", f"{row['sd']:.4f}"]
        found = [f"{row['5%']:.3f}, {row['95%']:.3f}", f"{row['ess_bulk']:,.0f}", f"{row['r_hat']:.3f}"]
        check = [f"{problem.mode[number]:.4f}", f"{row['offset']:+.2f}", f"{row['sd_ratio']:.2f}"]
        rows.append([f"β{_subscript(number)}", *known, *found, *check])
    print_table("Posterior of the coefficients", columns, rows, right=range(1, len(columns)))
    steps = run.num_chains * sum(run.timing[part]["steps"] for part in ("first_chunk", "sampling"))
    wall = sum(run.timing[part]["wall"] for part in ("first_chunk", "sampling"))
    print(
        f"  {steps:,} steps of {BATCH_SIZE} rows in {wall:.1f} s (compiling included); step size "
        f"{run.configuration['sampler']['step_size']:.3g}, chosen from the curvature; the mode was found in "
        f"{run.preparation['passes']:.1f} passes over the data."
    )


def _save(run: Run, problem: Problem, out_dir: Path) -> Path | None:
    try:
        require("matplotlib", "the figure of `scirocco demo`")
    except MissingExtraError as error:
        print(f"  no figure: {error}")
        return None
    picture = out_dir / "demo.png"
    save_figure(lambda figure: _draw(figure, run.draws, problem), picture)
    return picture


def _draw(figure: Any, draws: np.ndarray, problem: Problem) -> None:
    """Left: intervals against the truth. Right: trace, autocorrelation and marginal of the slowest coefficient."""
    figure.set_size_inches(11.5, 6.2)
    left, right = figure.subfigures(1, 2, width_ratios=[1.15, 1])
    _draw_intervals(left.subplots(), draws, problem)
    slowest = int(np.argmax([autocorrelation(draws[..., k])[1] for k in range(draws.shape[-1])]))
    trace, lags, marginal = right.subplots(3, 1)
    chains = draws[..., slowest]
    for chain, colour in zip(chains, _COLOURS, strict=True):
        trace.plot(chain, color=colour, linewidth=0.4, alpha=0.8)
        marginal.hist(chain, bins=40, density=True, histtype="step", color=colour, linewidth=1)
    lags.vlines(range(_MAX_LAG), 0, autocorrelation(chains), color="#0072b2", linewidth=2)
    lags.axhline(0, color="black", linewidth=0.6)
    grid = np.linspace(chains.min(), chains.max(), 200)
    mode, sd = problem.mode[slowest], problem.sd[slowest]
    normal = np.exp(-0.5 * ((grid - mode) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))
    marginal.plot(grid, normal, color="black", linestyle="--", label="normal at the exact mode")
    marginal.legend(loc="upper left", fontsize=8)
    trace.set(
        title=f"β{_subscript(slowest)}, the slowest: trace of the four chains",
        xlabel="draw",
        xlim=(0, chains.shape[1]),
    )
    lags.set(title="its autocorrelation", xlabel="lag in draws", xlim=(-1, _MAX_LAG))
    marginal.set(title="its marginal, chain by chain", xlabel=f"β{_subscript(slowest)}", yticks=[])


def _draw_intervals(axes: Any, draws: np.ndarray, problem: Problem) -> None:
    """Intervals are narrow next to the coefficients, so they are shown around the truth, in their own units."""
    flat = draws.reshape(-1, draws.shape[-1]).astype(np.float64) - problem.truth
    rows = np.arange(flat.shape[1])[::-1]
    for (low, high), width, alpha in (((0.05, 0.95), 2.2, 0.55), ((0.25, 0.75), 5.5, 1.0)):
        axes.hlines(
            rows, *np.quantile(flat, [low, high], axis=0), color="#0072b2", linewidth=width, alpha=alpha
        )
    axes.plot(
        flat.mean(axis=0),
        rows,
        "o",
        color="white",
        markeredgecolor="#0072b2",
        markersize=6,
        label="posterior mean, 50 %, 90 %",
    )
    axes.plot(problem.mode - problem.truth, rows, "|", color="black", markersize=13, label="exact mode")
    axes.axvline(0, color="#d55e00", linewidth=1.2, label="truth")
    names = [f"β{_subscript(k)} = {value:+.2f}" for k, value in enumerate(problem.truth)]
    axes.set_yticks(rows, names)
    axes.set(title="Posterior intervals against the truth", xlabel="coefficient - truth")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3)


def _subscript(number: int) -> str:
    return "".join("₀₁₂₃₄₅₆₇₈₉"[int(digit)] for digit in str(number))


def autocorrelation(chains: np.ndarray, num_lags: int = _MAX_LAG) -> np.ndarray:
    """Mean over the chains (chain, draw) of their autocorrelations at lags 0, 1, ..."""
    centred = chains.astype(np.float64) - chains.mean(axis=1, keepdims=True)
    length = chains.shape[1]
    spectrum = np.abs(np.fft.rfft(centred, 2 * length, axis=1)) ** 2
    covariance = np.fft.irfft(spectrum, axis=1)[:, :num_lags]
    return (covariance / covariance[:, :1]).mean(axis=0)


def _say_what_next(picture: Path | None, seconds: float) -> None:
    print(f"\n  {seconds:.0f} s in all" + (f"; the figure is in {picture}" if picture else ""))
    print("\nWhat to type next:")
    for command, purpose in (
        ("scirocco reproduce --list", "the papers' figures that can be made again"),
        ("scirocco reproduce gaussian-mixture --quick", "one of them, in under a minute"),
        ('python -c "import scirocco as sc; help(sc.sample)"', "sampling your own model and data"),
    ):
        print(f"  {command:<52} {purpose}")
