"""Exact draws from a density in the plane, by its values on a grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

CELLS = 400
Draws = np.ndarray[Any, np.dtype[Any]]


def grid_draws(
    log_density: Callable[[Any], Any], low: Any, high: Any, cells: int = CELLS
) -> Callable[[int, int], Draws]:
    """Draws from a density in the plane: a cell by its probability, a point uniformly in the cell."""
    axes = [(np.arange(cells) + 0.5) * (b - a) / cells + a for a, b in zip(low, high, strict=True)]
    with jax.enable_x64(True):
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        values = np.asarray(jax.jit(lambda at: jax.lax.map(log_density, at, batch_size=500))(points))
    heights = np.exp(values - values.max())
    chances = heights / heights.sum()
    width = (np.asarray(high) - np.asarray(low)) / cells

    def draws(count: int, seed: int) -> Draws:
        rng = np.random.default_rng([seed, count])
        chosen = rng.choice(len(points), size=count, p=chances)
        return np.asarray(points[chosen] + (rng.random((count, 2)) - 0.5) * width)

    return draws
