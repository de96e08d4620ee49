"""The figure of `choosing.py`: what the step size does."""

from __future__ import annotations

from typing import Any

COLOURS = {"SGLD, ControlVariates": "#009e73", "SGLD, Minibatch": "#d55e00", "BAOAB, ControlVariates": "#0072b2"}
WIDEST, WORST = 3.0, 1.0
"""Where the axes end; what lies beyond has an arrow at the edge."""


def draw(figure: Any, numbers: dict[str, Any]) -> None:
    """Left: spread over the true one; right: error of the mean. Both against the step size."""
    figure.set_size_inches(9.0, 3.6)
    spread, error = figure.subplots(1, 2)
    for name, swept in numbers["step_sizes"].items():
        lines = [line for line in swept["lines"] if "diverged" not in line]
        _curve(spread, lines, "sd_ratio", name, WIDEST)
        _curve(error, lines, "mean_error", name, WORST)
    ticks = {1 / 16: "1/16", 1 / 4: "1/4", 1: "1", 4: "4", 16: "16"}
    for axes in (spread, error):
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(ticks), list(ticks.values()))
        axes.axvline(1.0, color="#999999", linewidth=0.8, linestyle=":")
        axes.set_xlabel("step size over the default with control variates")
    spread.axhline(1.0, color="#999999", linewidth=0.8)
    spread.set_ylim(0.9, WIDEST)
    error.set_yscale("log")
    error.set_ylim(0.015, WORST)
    error.set_yticks([0.02, 0.05, 0.1, 0.2, 0.5, 1.0], ["0.02", "0.05", "0.1", "0.2", "0.5", "1"])
    error.minorticks_off()
    spread.set_title("standard deviation of the draws over the true one")
    error.set_title("error of a chain's mean, in posterior sds")
    error.legend(loc="upper center")


def _curve(axes: Any, lines: list[dict[str, Any]], key: str, name: str, top: float) -> None:
    at, values, errors = ([line[which] for line in lines] for which in ("multiple", key, f"{key}_se"))
    colour = COLOURS[name]
    axes.errorbar(at, values, errors, marker="o", markersize=3.5, color=colour, label=name)
    for place, value in zip(at, values, strict=True):
        if value > top:
            axes.plot([place], [top], marker="^", markersize=6, color=colour, clip_on=False)
