"""The figure of `bnn-mnist`: the thesis' traces, and what averaging does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scirocco_papers.bnn_mnist.claims import METHODS, STANDARD

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = dict(zip(STANDARD, ("#7b3294", "#0072b2", "#d55e00"), strict=True))


def draw(figure: Figure, numbers: dict[str, Any]) -> None:
    """Left, middle: the log loss along the chains. Right: draws and their average."""
    figure.set_size_inches(13.0, 4.2)
    left, middle, right = figure.subplots(1, 3)
    found, every = numbers["methods"], numbers["every"]
    middle.sharey(left)
    for axes, suffix, title in ((left, "", "standard"), (middle, "cv", "with control variates")):
        for name in STANDARD:
            losses = np.array([each["losses"] for each in found[name + suffix]])
            steps = every * np.arange(1, losses.shape[1] + 1)
            axes.plot(steps, losses.T, color=COLOURS[name], alpha=0.25, linewidth=0.8)
            axes.plot(steps, losses.mean(axis=0), color=COLOURS[name], label=name + suffix)
        axes.set(title=title, xlabel="gradient steps after burn-in or optimisation")
        axes.legend(fontsize=8)
    left.set_ylabel(f"log loss of {numbers['num_test']:,} test images")
    places = np.arange(len(METHODS))
    for shift, part, marker in ((-0.12, "single", "o"), (0.12, "average", "s")):
        for place, name in zip(places, METHODS, strict=True):
            values = [each[part]["log_loss"] for each in found[name]]
            colour = COLOURS[name.removesuffix("cv")]
            face = colour if part == "average" else "white"
            right.plot(
                [place + shift] * len(values),
                values,
                marker,
                color=colour,
                markerfacecolor=face,
                markersize=5,
            )
    for part, marker, face in (("last draw", "o", "white"), ("average over draws", "s", "grey")):
        right.plot([], [], marker, color="grey", markerfacecolor=face, label=part)
    right.set_xticks(places, METHODS, rotation=30)
    right.set(title="a draw, and the average over draws", ylabel="log loss")
    right.legend(fontsize=8)
