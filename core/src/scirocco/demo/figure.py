"""The figure of the demonstration, and how a figure is saved."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from scirocco import diagnostics
from scirocco._extras import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scirocco.demo import Problem

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
_MAX_LAG = 40


def draw(figure: Figure, draws: np.ndarray, problem: Problem) -> None:
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


def _draw_intervals(axes: Axes, draws: np.ndarray, problem: Problem) -> None:
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
