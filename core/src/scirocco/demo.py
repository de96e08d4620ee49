"""`scirocco demo`: a logistic regression posterior on 100,000 rows, and a check of every number against the exact mode.

The data are simulated from a seed. With so many rows the posterior is close to normal, so its mode and curvature, found
by Newton's method in double precision, are the reference for the sampler.
"""

from __future__ import annotations

import importlib
import io
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from scirocco import diagnostics, report
from scirocco._console import make_folder, print_table
from scirocco._extras import require
from scirocco.errors import MissingExtraError
from scirocco.estimators import ControlVariates
from scirocco.model import Model
from scirocco.models.regression.approximation import Rows, laplace
from scirocco.run import Run, sample
from scirocco.samplers import SGLD
from scirocco.types import Array, Params

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame


__all__ = ["Demo", "compare", "run_demo"]

NUM_ROWS = 100_000  # with so many, the posterior is close to normal
NUM_CHAINS, NUM_SAMPLES, THIN = 4, 2_000, 25  # steps from one draw to the next last
BATCH_SIZE = 500  # rows per step
NUM_FEATURES = 12  # one of them the intercept
PRIOR_VARIANCE = 10.0  # of each coefficient


def log_likelihood(params: Params, row: dict[str, Array]) -> Array:
    """Log likelihood of ONE row: Bernoulli with logit xᵀβ."""
    logit = row["x"] @ params["beta"]
    return row["y"] * logit - jnp.logaddexp(0.0, logit)


def log_prior(params: Params) -> Array:
    """Log prior: N(0, 10) for every coefficient."""
    return -0.5 * jnp.sum(params["beta"] ** 2) / PRIOR_VARIANCE


@dataclass(frozen=True)
class DemoProblem:
    """Simulated rows, their true coefficients, and the exact mode with its normal approximation."""

    data: dict[str, np.ndarray]
    truth: np.ndarray
    mode: np.ndarray
    sd: np.ndarray


def make_problem(num_rows: int, seed: int) -> DemoProblem:
    """Simulate correlated features, an intercept, and coefficients of many sizes (three of them 0)."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((num_rows, 1))
    features = np.sqrt(0.7) * rng.standard_normal((num_rows, NUM_FEATURES - 1)) + np.sqrt(0.3) * shared
    x = np.concatenate([np.ones((num_rows, 1)), features], axis=1).astype(np.float32)
    truth = rng.normal(0.0, 0.5, NUM_FEATURES)
    truth[0], truth[-3:] = -1.0, 0.0
    y = (rng.random(num_rows) < 1.0 / (1.0 + np.exp(-x @ truth))).astype(np.float32)
    found = laplace(Rows(x, y, 2, False), PRIOR_VARIANCE)
    return DemoProblem({"x": x, "y": y}, truth, found.here.at, np.sqrt(np.sum(found.factor**2, axis=1)))


@dataclass(frozen=True)
class Demo:
    """The result of the demo."""

    problem: DemoProblem
    run: Run
    table: DataFrame
    """`run.summary()`, with `offset` = (mean - mode)/sd and `sd_ratio` = sd over the normal approximation's."""
    picture: Path | None
    page: Path
    seconds: float


def run_demo(
    out_dir: Path = Path("results"),
    seed: int = 0,
    *,
    num_rows: int = NUM_ROWS,
    num_samples: int = NUM_SAMPLES,
    progress: bool = True,
) -> Demo:
    """Simulate the data, sample, compare, plot; print the progress."""
    require("pandas", "`scirocco demo`")
    make_folder(out_dir)
    begin = time.perf_counter()
    print(f"{num_rows:,} rows, {NUM_FEATURES} coefficients, 0/1 outcomes; exact mode by Newton's method ...")
    problem = make_problem(num_rows, seed)
    print(f"SGLD with control variates: {NUM_CHAINS} chains × {num_samples:,} draws, {THIN} steps each ...")
    run = sample(
        Model(log_likelihood, log_prior),
        problem.data,
        {"beta": np.zeros(NUM_FEATURES, np.float32)},
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
    page, picture = save(run, problem, out_dir)
    seconds = time.perf_counter() - begin
    _say_what_next(page, picture, seconds)
    return Demo(problem, run, table, picture, page, seconds)


def compare(run: Run, problem: DemoProblem) -> DataFrame:
    """The summary with two more columns: how far the mean and the sd are from the normal approximation."""
    table = run.summary(digits=None)
    table["offset"] = (table["mean"].to_numpy() - problem.mode) / problem.sd
    table["sd_ratio"] = table["sd"].to_numpy() / problem.sd
    return table


def _show(run: Run, table: DataFrame, problem: DemoProblem) -> None:
    columns = ["", "truth", "mean", "sd", "90 % interval", "ESS", "R-hat"]
    columns += ["exact\nmode", "mean-mode\nin sd", "sd over\nexact"]
    rows = []
    for number, row in enumerate(table.to_dict("records")):
        known = [f"{problem.truth[number]:.3f}", f"{row['mean']:.4f}", f"{row['sd']:.4f}"]
        found = [f"{row['5%']:.3f}, {row['95%']:.3f}", f"{row['ess_bulk']:,.0f}", f"{row['r_hat']:.3f}"]
        check = [f"{problem.mode[number]:.4f}", f"{row['offset']:+.2f}", f"{row['sd_ratio']:.2f}"]
        rows.append([f"β{subscript(number)}", *known, *found, *check])
    print_table("Posterior of the coefficients", columns, rows, right=range(1, len(columns)))
    steps = run.num_chains * sum(run.timing[part]["steps"] for part in ("first_chunk", "sampling"))
    wall = sum(run.timing[part]["wall"] for part in ("first_chunk", "sampling"))
    print(
        f"  {steps:,} steps of {BATCH_SIZE} rows in {wall:.1f} s (including compilation).\n"
        f"  Step size {run.configuration['sampler']['step_size']:.3g}, chosen from the curvature. "
        f"The mode took {run.preparation['passes']:.1f} passes."
    )


def save(run: Run, problem: DemoProblem, out_dir: Path) -> tuple[Path, Path | None]:
    """Write the report and, with matplotlib, the figure; both appear when both are finished."""
    with tempfile.TemporaryDirectory(prefix=".demo-", dir=out_dir) as name:
        drafts = Path(name)
        made = [report.write(run, drafts / "demo.html")]
        try:
            require("matplotlib", "the figure of `scirocco demo`")
            save_figure(lambda figure: draw(figure, run.draws["beta"], problem), drafts / "demo.png")
            made.append(drafts / "demo.png")
        except MissingExtraError as error:
            print(f"  no figure: {error}")
        page, *pictures = [each.replace(out_dir / each.name) for each in made]
    return page, pictures[0] if pictures else None


def _say_what_next(page: Path, picture: Path | None, seconds: float) -> None:
    also = f", the figure in {picture}" if picture else ""
    print(f"\n{seconds:.0f} s in total; the report is in {page}{also}")
    print(f"Open it with: python -m webbrowser -t {page.resolve().as_uri()}")
    print("\nWhat to type next:")
    for command, purpose in (
        ("scirocco reproduce --list", "the papers' figures"),
        ("scirocco reproduce gaussian-mixture --quick", "one of them, in a minute"),
        ("scirocco sample --example logistic > job.toml", "your own data, from a file"),
        ('python -c "import scirocco as sc; help(sc.sample)"', "your own model, in Python"),
    ):
        print(f"  {command:<51} {purpose}")


_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
_MAX_LAG = 40  # of the autocorrelation


def draw(figure: Figure, draws: np.ndarray, problem: DemoProblem) -> None:
    """Plot intervals against the truth, and trace, autocorrelation and marginal of the slowest coefficient."""
    figure.set_size_inches(11.5, 6.2)
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[1.15, 1])[0]
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
        title=f"β{subscript(slowest)}, the slowest: trace of the four chains",
        xlabel="draw",
        xlim=(0, chains.shape[1]),
    )
    lags.set(title="its autocorrelation", xlabel="lag in draws", xlim=(-1, _MAX_LAG))
    marginal.set(title="its marginal, chain by chain", xlabel=f"β{subscript(slowest)}", yticks=[])


def _draw_intervals(axes: Axes, draws: np.ndarray, problem: DemoProblem) -> None:
    """Plot intervals relative to the truth, as they are narrow compared with the coefficients."""
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
    names = [f"β{subscript(k)} = {value:+.2f}" for k, value in enumerate(problem.truth)]
    axes.set_yticks(rows, names)
    axes.set(title="Posterior intervals against the truth", xlabel="coefficient - truth")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3)


def subscript(number: int) -> str:
    """A number in subscript digits."""
    return "".join("₀₁₂₃₄₅₆₇₈₉"[int(digit)] for digit in str(number))


def autocorrelation(chains: np.ndarray, num_lags: int = _MAX_LAG) -> np.ndarray:
    """Mean over the chains (chain, draw) of their autocorrelations at lags 0, 1, ..."""
    return diagnostics.autocorrelation(chains, num_lags).mean(axis=0)


def save_figure(draw: Callable[[Figure], None], path: Path) -> None:
    """Create an empty figure, let `draw` fill it, save it; works without a display and does not use pyplot.

    Saves 256 colours, which is enough for such figures and takes a third of the bytes.
    """
    matplotlib = require("matplotlib", "drawing a figure")
    figure_class = importlib.import_module("matplotlib.figure").Figure
    style = {"axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 11, "font.size": 9.5}
    with matplotlib.rc_context({**style, "legend.frameon": False, "savefig.dpi": 115}):
        figure = figure_class(layout="constrained")
        draw(figure)
        drawn = io.BytesIO()
        figure.savefig(drawn, format="png")
    images = importlib.import_module("PIL.Image")  # matplotlib cannot be installed without it
    with images.open(drawn) as image:
        few = image.convert("RGB").quantize(256, method=images.Quantize.MEDIANCUT, dither=images.Dither.NONE)
    few.save(path, format="PNG", optimize=True)
