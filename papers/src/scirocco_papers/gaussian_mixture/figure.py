"""Densities on a grid and the six panels of `gaussian-mixture`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import gaussian_kde

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GRID = (np.linspace(-0.7, 1.1, 70), np.linspace(-0.7, 1.2, 74))
_KERNELS = 2_000
_MASSES = (0.9, 0.7, 0.5, 0.3, 0.1)
_COLOURS = {"sgld": "#e69f00", "sghmc": "#56b4e9", "sgnht": "#009e73"}


@dataclass(frozen=True)
class Density:
    """A kernel density estimate of 2-D draws on the common grid, as probabilities of its cells."""

    cells: np.ndarray

    @classmethod
    def of(cls, draws: np.ndarray) -> Density:
        """From draws (draw, 2), thinned to the same number for every sampler so that all are smoothed equally."""
        kept = draws[np.linspace(0, len(draws) - 1, _KERNELS).astype(int)]
        x, y = np.meshgrid(*_GRID)
        values = gaussian_kde(kept.T)(np.stack([x.ravel(), y.ravel()])).reshape(x.shape)
        return cls(values / values.sum())

    def levels(self) -> list[float]:
        """Heights whose contours enclose 90, 70, 50, 30 and 10 % of the mass."""
        ordered = np.sort(self.cells.ravel())[::-1]
        return [float(ordered[np.searchsorted(np.cumsum(ordered), mass)]) for mass in _MASSES]


def total_variation(a: Density, b: Density) -> float:
    """½ Σ |a - b| over the grid's cells."""
    return float(0.5 * np.abs(a.cells - b.cells).sum())


def draw(figure: Figure, densities: dict[str, Density], numbers: dict[str, Any]) -> None:
    """2 × 3 panels: the first chain of each sampler in colour over the black contours of NUTS."""
    figure.set_size_inches(10.5, 7.2)
    panels = figure.subplots(2, 3, sharex=True, sharey=True)
    names = [name for name in densities if name != "nuts"]
    for axes, name in zip(panels.ravel(), names, strict=True):
        colour = _COLOURS[name.removesuffix("cv")]
        for key, shade, width in (("nuts", "black", 0.9), (name, colour, 1.7)):
            axes.contour(
                *_GRID, densities[key].cells, levels=densities[key].levels(), colors=shade, linewidths=width
            )
        facts = numbers["samplers"][name]
        step = f"h = {facts['h']:g}" + (" (thesis' h diverges)" if facts["h"] != facts["thesis_h"] else "")
        axes.set_title(f"{name}, {step}", color="black", loc="left")
        axes.text(
            0.97,
            0.03,
            f"share {facts['share']:.2f}   spread {facts['spread']:.2f}   TV {facts['tv']:.2f}",
            transform=axes.transAxes,
            ha="right",
            fontsize=8.5,
            color="#444444",
        )
    for axes in panels[1]:
        axes.set_xlabel("first coordinate of θ₁")
    for axes in panels[:, 0]:
        axes.set_ylabel("second coordinate of θ₁")
    figure.suptitle("θ₁ of the Gaussian mixture: one chain of each sampler (colour) over NUTS (black)")
