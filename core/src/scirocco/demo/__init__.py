"""`scirocco demo`: the plain call on 100,000 rows, each number checked against the exact posterior; then three models.

The data are simulated from a seed. With so many rows the posterior is close to normal, so its mode and curvature, found
by Newton's method in double precision, are the reference for the draws. `demo/models.py` has the three models.
"""

from __future__ import annotations

import tempfile
import time
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from scirocco import report
from scirocco._console import make_folder, print_table
from scirocco._extras import require
from scirocco.demo.figure import draw, save_figure, subscript
from scirocco.demo.models import MODELS
from scirocco.errors import MissingExtraError
from scirocco.model import Model
from scirocco.models.regression.approximation import Rows, laplace
from scirocco.run import Run, sample
from scirocco.types import Array, Params

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Demo", "compare", "run_demo", "show_models"]

NUM_ROWS = 100_000
CALL = "run = sc.sample(sc.Model(log_likelihood, log_prior), rows, start)"
NUM_FEATURES = 12
PRIOR_VARIANCE = 10.0


def log_likelihood(params: Params, row: dict[str, Array]) -> Array:
    """Log likelihood of ONE row: Bernoulli with logit xᵀβ."""
    logit = row["x"] @ params["beta"]
    return row["y"] * logit - jnp.logaddexp(0.0, logit)


def log_prior(params: Params) -> Array:
    """Log prior: N(0, 10) for every coefficient."""
    return -0.5 * jnp.sum(params["beta"] ** 2) / PRIOR_VARIANCE


@dataclass(frozen=True)
class Problem:
    """Simulated rows, their true coefficients, and the exact mode with its normal approximation."""

    data: dict[str, np.ndarray]
    truth: np.ndarray
    mode: np.ndarray
    sd: np.ndarray


def make_problem(num_rows: int, seed: int) -> Problem:
    """Simulate correlated features, an intercept, and coefficients of many sizes (three of them 0)."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((num_rows, 1))
    features = np.sqrt(0.7) * rng.standard_normal((num_rows, NUM_FEATURES - 1)) + np.sqrt(0.3) * shared
    x = np.concatenate([np.ones((num_rows, 1)), features], axis=1).astype(np.float32)
    truth = rng.normal(0.0, 0.5, NUM_FEATURES)
    truth[0], truth[-3:] = -1.0, 0.0
    y = (rng.random(num_rows) < 1.0 / (1.0 + np.exp(-x @ truth))).astype(np.float32)
    found = laplace(Rows(x, y, 2, False), PRIOR_VARIANCE)
    return Problem({"x": x, "y": y}, truth, found.here.at, np.sqrt(np.sum(found.factor**2, axis=1)))


@dataclass(frozen=True)
class Demo:
    """The result of the demo."""

    problem: Problem
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
    print(
        f"{num_rows:,} rows with answers 0 or 1, {NUM_FEATURES} coefficients, and the log likelihood of a row:"
    )
    print(f"\n  {CALL}\n", flush=True)
    problem = make_problem(num_rows, seed)
    start = {"beta": np.zeros(NUM_FEATURES, np.float32)}
    run = sample(Model(log_likelihood, log_prior), problem.data, start, seed=seed, progress=progress)
    table = compare(run, problem)
    _show(run, table, problem)
    page, picture = _save(run, problem, out_dir)
    seconds = time.perf_counter() - begin
    print(
        f"\n{seconds:.0f} s in total; the report is in {page}"
        + (f", the figure in {picture}" if picture else "")
    )
    if not (open_page and webbrowser.open(page.resolve().as_uri())):
        print(f"Open it with: python -m webbrowser -t {page.resolve().as_uri()}")
    return Demo(problem, run, table, picture, page, seconds)


def compare(run: Run, problem: Problem) -> DataFrame:
    """The summary with two more columns: how far the mean and the sd are from the normal approximation."""
    table = run.summary(digits=None)
    table["offset"] = (table["mean"].to_numpy() - problem.mode) / problem.sd
    table["sd_ratio"] = table["sd"].to_numpy() / problem.sd
    return table


def _show(run: Run, table: DataFrame, problem: Problem) -> None:
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
    print(
        f"  {run.num_chains} chains of {run.num_draws:,} draws: {steps:,} steps in {wall:.1f} s, with compiling."
    )
    print(f"  Chosen: {run.preparation['chosen']}\n  Certificate: {run.certificate}")


def _save(run: Run, problem: Problem, out_dir: Path) -> tuple[Path, Path | None]:
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


def show_models(seed: int = 0) -> None:
    """Fit three models; print the line that each takes, what it found, and what to type next."""
    print("\nModels have one line each:")
    for model in MODELS:
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
