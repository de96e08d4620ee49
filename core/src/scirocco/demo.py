"""`scirocco demo`: the plain call on 100,000 rows, each number checked against the exact posterior; then three models.

The data are simulated from a seed. With so many rows the posterior is close to normal, so its mode and curvature, found
by Newton's method in double precision, are the reference for the draws. `demo/models.py` has the three models.
"""

from __future__ import annotations

import importlib
import io
import tempfile
import time
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np

from scirocco import diagnostics, models, report
from scirocco._console import make_folder, print_table
from scirocco._extras import require
from scirocco.errors import MissingExtraError
from scirocco.model import Model
from scirocco.models.regression.approximation import DesignRows, laplace
from scirocco.run import Run, sample
from scirocco.types import Array, Params

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

__all__ = ["Demo", "compare", "run_demo", "show_models"]

NUM_ROWS = 100_000  # with so many, the posterior is close to normal
CALL = "run = sc.sample(sc.Model(log_likelihood, log_prior), rows, start)"
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
    found = laplace(DesignRows(x, y, 2, False), PRIOR_VARIANCE)
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
    open_page: bool = False,
    progress: bool = True,
) -> Demo:
    """Simulate the data, sample, compare, write and open the report; print what is done."""
    require("pandas", "`scirocco demo`")
    make_folder(out_dir)
    begin = time.perf_counter()
    print(f"{num_rows:,} rows with answers 0 or 1, {NUM_FEATURES} coefficients, and the log likelihood of a row:")
    print(f"\n  {CALL}\n", flush=True)
    problem = make_problem(num_rows, seed)
    start = {"beta": np.zeros(NUM_FEATURES, np.float32)}
    run = sample(Model(log_likelihood, log_prior), problem.data, start, seed=seed, progress=progress)
    table = compare(run, problem)
    _show(run, table, problem)
    page, picture = save(run, problem, out_dir)
    seconds = time.perf_counter() - begin
    print(f"\n{seconds:.0f} s in total; the report is in {page}" + (f", the figure in {picture}" if picture else ""))
    if not (open_page and webbrowser.open(page.resolve().as_uri())):
        print(f"Open it with: python -m webbrowser -t {page.resolve().as_uri()}")
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
    wall = sum(run.timing[part]["wall"] for part in ("setup", "first_chunk", "sampling"))
    print(f"  {run.num_chains} chains of {run.num_draws:,} draws: {steps:,} steps in {wall:.1f} s, with compiling.")
    print(f"  Chosen: {run.preparation['chosen']}\n  Certificate: {run.certificate}")


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


class ShownModel(NamedTuple):
    """A model that is shown."""

    line: str
    """What a user types."""
    fit: Callable[[np.random.Generator], str]
    """Simulates data, fits, and says what was found."""


def fit_formula(rng: np.random.Generator) -> str:
    """Sales fall with the price, and less so at weekends."""
    import pandas as pd

    price, weekend = rng.uniform(1.0, 3.0, 4_000), rng.integers(0, 2, 4_000)
    mean = 10.0 - 2.0 * price + 1.5 * weekend * price
    table = pd.DataFrame({"price": price, "weekend": weekend, "sales": mean + rng.normal(0.0, 1.0, 4_000)})
    model = models.LinearRegression.from_formula("sales ~ price * weekend", table, progress=False)
    low, high = model.coef_interval_(0.9)
    return f"price: {model.coef_[0]:.2f} (90 %: {low[0]:.2f} to {high[0]:.2f}; the data have -2)"


def fit_texts(rng: np.random.Generator) -> str:
    """Texts about the sky or a farm."""
    words = np.array([["sun", "moon", "star", "comet"], ["cow", "horse", "sheep", "goat"]])
    texts = [" ".join(rng.choice(words[which % 2], 12)) for which in range(300)]
    model = models.LDA(2).fit(texts, progress=False)
    return "; ".join(" ".join(topic) for topic in model.top_words(4))


def fit_network(rng: np.random.Generator) -> str:
    """A hundred nodes in two blocks, inside of which there are more edges."""
    block = np.arange(100) % 2
    chance = np.where(block[:, None] == block[None, :], 0.3, 0.03)
    edges = np.argwhere(np.triu(rng.random((100, 100)) < chance, 1))
    model = models.StochasticBlockModel().fit(edges, progress=False)
    sizes = " and ".join(str(nodes) for nodes in model.blocks()["nodes"])
    return f"{len(edges)} edges of 100 nodes: blocks of {sizes}"


MODELS = (
    ShownModel('sc.models.LinearRegression.from_formula("sales ~ price * weekend", table)', fit_formula),
    ShownModel("sc.models.LDA(2).fit(texts)", fit_texts),
    ShownModel("sc.models.StochasticBlockModel().fit(edges)", fit_network),
)


def show_models(seed: int = 0, models: Sequence[ShownModel] | None = None) -> None:
    """Fit three models; print the line that each takes, what it found, and what to type next."""
    print("\nModels have one line each:")
    for model in MODELS if models is None else models:
        print(f"\n  {model.line}", flush=True)
        begin = time.perf_counter()
        try:
            found = model.fit(np.random.default_rng(seed))
        except MissingExtraError as error:
            print(f"    {error}")
        else:
            print(f"    {found}  ({time.perf_counter() - begin:.0f} s)")
    print("\nWhat to type next:")
    for command, purpose in (
        ("scirocco sample --example logistic > job.toml", "your own data, from a file"),
        ('python -c "import scirocco as sc; help(sc.sample)"', "your own model, in Python"),
        ("scirocco topics fit --help", "topics of your texts"),
        ("scirocco reproduce --list", "the papers' figures"),
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
        title=f"β{subscript(slowest)}, the slowest: trace of the four chains", xlabel="draw", xlim=(0, chains.shape[1])
    )
    lags.set(title="its autocorrelation", xlabel="lag in draws", xlim=(-1, _MAX_LAG))
    marginal.set(title="its marginal, chain by chain", xlabel=f"β{subscript(slowest)}", yticks=[])


def _draw_intervals(axes: Axes, draws: np.ndarray, problem: DemoProblem) -> None:
    """Plot intervals relative to the truth, as they are narrow compared with the coefficients."""
    flat = draws.reshape(-1, draws.shape[-1]).astype(np.float64) - problem.truth
    rows = np.arange(flat.shape[1])[::-1]
    for (low, high), width, alpha in (((0.05, 0.95), 2.2, 0.55), ((0.25, 0.75), 5.5, 1.0)):
        axes.hlines(rows, *np.quantile(flat, [low, high], axis=0), color="#0072b2", linewidth=width, alpha=alpha)
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
