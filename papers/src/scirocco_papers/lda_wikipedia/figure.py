"""The figure of `lda-wikipedia`: a panel for each paper, and one by processor time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scirocco_papers.lda_runs import plot_band
from scirocco_papers.lda_wikipedia.claims import BAKER, BARILE, OURS, read

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "SCIR": "#d55e00",
    "SCIR-CV": "#009e73",
    "SCIR-CV, as SCIR": "#009e73",
    "SGRLD": "#7b3294",
    "SGRLD, prior of SCIR": "#b38bc4",
    "Gibbs": "#666666",
    "LDA()": "#0072b2",
    "LDA(sampler='gibbs')": "#56b4e9",
}

_TICKS = (500, 700, 1000, 1200, 1300, 1400, 1600, 1800, 2000, 2500, 3000, 4000)


def draw(figure: Figure, numbers: dict[str, Any]) -> None:
    """p averaged over the marks so far: means and bands of the seeds; dotted: the topics as they are."""
    figure.set_size_inches(13, 4.4)
    left, middle, right = figure.subplots(1, 3, sharey=True)
    curves = numbers["curves"]
    for axes, group in ((left, BAKER), (middle, BARILE)):
        for name, each in curves[group].items():
            if name != "Gibbs":
                _plot(axes, each, "documents", name)
        axes.set(title=f"settings of {group}", xlabel="documents read, references included", xscale="log")
    gibbs = [curve["averaged"][-1] for curve in curves[BAKER]["Gibbs"]]
    left.axhspan(
        min(gibbs),
        max(gibbs),
        color=COLOURS["Gibbs"],
        alpha=0.5,
        linewidth=1,
        label="Gibbs, later half of its run",
    )
    for group in (BAKER, OURS):
        for name, each in curves[group].items():
            _plot(right, each, "seconds", name)
    right.set(title="by time, one thread each", xlabel="processor time, s", xscale="log")
    left.set(ylabel="perplexity (dotted: of the topics as they are)", yscale="log")
    low, high = left.get_ylim()
    ticks = [
        tick
        for tick in (500, 700, 1000, 1200, 1300, 1400, 1600, 1800, 2000, 2500, 3000, 4000)
        if low <= tick <= high
    ]
    left.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
    left.minorticks_off()
    for axes in (left, middle, right):
        axes.legend(fontsize=8)


def _plot(axes: Axes, curves: Any, x: str, name: str) -> None:
    style = {"color": COLOURS[name], "linestyle": "--" if "," in name else "-"}
    if x == "documents":
        curves = [curve | {x: read(curve, name.startswith("SCIR-CV"))} for curve in curves]
    plot_band(axes, curves, x, "from_start", label=name, **style)
    if x == "documents":
        now = np.mean([curve["now"] for curve in curves], axis=0)
        axes.plot(curves[0][x], now, color=COLOURS[name], linestyle=":", linewidth=1)
