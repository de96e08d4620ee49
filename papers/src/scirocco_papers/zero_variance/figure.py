"""The figure of `zero-variance`: boxes as in the thesis, and what becomes of the reduction as the data grow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scirocco_papers.zero_variance.claims import KINDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"without": "#7b3294", "with": "#009e73"}
COLOURS |= dict(zip(KINDS, ("#0072b2", "#009e73", "#7b3294"), strict=True))


def draw(figure: Figure, numbers: dict[str, Any]) -> None:
    """A pair of boxes for each run; medians and quartiles of the coefficients."""
    shown = sorted(numbers["boxes"], reverse=True)
    figure.set_size_inches(4.4 * (len(shown) + 1), 4.2)
    *panels, right = figure.subplots(1, len(shown) + 1)
    for axes, size in zip(panels, shown, strict=True):
        found = numbers["boxes"][size]
        for name, shift in (("without", -0.2), ("with", 0.2)):
            places = [number + shift for number in range(1, len(found) + 1)]
            style = {"color": COLOURS[name], "linewidth": 1.2}
            parts = ("boxprops", "whiskerprops", "capprops", "medianprops")
            axes.boxplot(
                [each[name] for each in found],
                positions=places,
                widths=0.3,
                flierprops={"markersize": 2, "markeredgecolor": COLOURS[name]},
                **dict.fromkeys(parts, style),
            )
            axes.plot([], [], color=COLOURS[name], label=f"{name} zero variance")
        axes.set(title=f"SGLD-CV along the chain, {size:,} rows", xlabel="run")
        axes.set_xticks(range(1, len(found) + 1), [str(number) for number in range(1, len(found) + 1)])
        axes.ticklabel_format(axis="y", useOffset=False)
        axes.margins(y=0.15)
        axes.legend(fontsize=8, loc="upper left", ncols=2)
    panels[0].set_ylabel("mean log predictive density of the test rows")
    scaling = numbers["scaling"]
    sizes = sorted(scaling)
    for name in KINDS:
        each = [scaling[size][name] for size in sizes]
        right.fill_between(
            sizes, *np.array([e["quartiles"] for e in each]).T, color=COLOURS[name], alpha=0.15, linewidth=0
        )
        right.plot(sizes, [e["reduction"] for e in each], "o-", color=COLOURS[name], label=name)
    right.axhline(1.0, color="grey", linewidth=0.8)
    right.set(
        xscale="log", yscale="log", xlabel="rows N", title="variance of a coefficient's mean, divided by"
    )
    right.legend(title="gradients from", fontsize=8, title_fontsize=8)
