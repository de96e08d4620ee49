"""The figure of `dp-msweb`: scores by iterations, as in the paper, and by processor time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scirocco_papers.dp_msweb.claims import DEFAULT, KEPT, tail
from scirocco_papers.lda_runs import plot_band

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {
    "SCIR": "#d55e00",
    "SCIR-CV": "#009e73",
    "SGRLD": "#7b3294",
    "Gibbs": "#666666",
    DEFAULT: "#0072b2",
    KEPT: "#56b4e9",
}


def draw(figure: Figure, numbers: dict[str, Any]) -> None:
    """Means and bands of the seeds."""
    figure.set_size_inches(13, 4.4)
    left, middle, right = figure.subplots(1, 3)
    curves, one = numbers["curves"], numbers["one_component"]
    for name in curves:
        if name != "Gibbs":
            plot_band(left, curves[name], "steps", "now", label=name, color=COLOURS[name])
    gibbs = tail(curves["Gibbs"])
    left.axhspan(gibbs.min(), gibbs.max(), color=COLOURS["Gibbs"], alpha=0.5, linewidth=1, label="Gibbs, end")
    left.set(title="single states, by iterations", xlabel="minibatches of 1,000 users", xlim=(0, None))
    left.set_ylabel("-log predictive of a test user")
    for axes, score, title in (
        (middle, "now", "single states, by time"),
        (right, "averaged", "p averaged over states, by time"),
    ):
        for name, each in curves.items():
            plot_band(axes, each, "seconds", score, label=name, color=COLOURS[name])
        axes.set(title=title, xlabel="processor time of one thread, s", xscale="log")
    lowest = min(np.min([curve["averaged"] for curve in each]) for each in curves.values())
    for axes in (left, middle, right):
        axes.axhline(one, color="black", linewidth=0.8, linestyle=":")
        axes.set_ylim(lowest - 0.02, one + 0.1)
        axes.legend(fontsize=8, loc="upper right", bbox_to_anchor=(1, 0.85))
    left.annotate(
        "one component", (1, one), (0, 2), ("axes fraction", "data"), "offset points", ha="right", fontsize=8
    )
