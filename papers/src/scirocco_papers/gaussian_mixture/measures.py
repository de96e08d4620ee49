"""How the chains of `gaussian-mixture` are measured against the reference draws.

Exchanging θ₁ and θ₂ leaves the posterior as it is, so θ₁ has two equal components, around θ̂₁ and θ̂₂.

share
    Draw a disc around each of θ̂₁ and θ̂₂ that holds a quarter of the reference draws of θ₁. Of a chain's draws in the
    discs, the share in the disc with fewer: ½ when both components are explored evenly, 0 when one is never seen.
spread
    Root of the total variance of θ₁ over that of the reference; likewise for the draws nearer to θ̂₁ (one component),
    for the sum θ₁ + θ₂, and for the difference θ₁ - θ₂ after turning all draws to the same side.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from scirocco_papers.base import error_of

Pair = dict[str, np.ndarray]
"""θ₁ and θ₂ under the names of the model's parameters; (2,), (draw, 2) or (chain, draw, 2)."""


class Yardstick(NamedTuple):
    """The mode and draws (draw, 2) from the posterior that chains are compared with."""

    mode: Pair
    reference: Pair
    radii: tuple[float, ...]

    @classmethod
    def of(cls, mode: Pair, reference: Pair) -> Yardstick:
        """With each disc as large as a quarter of the reference draws of θ₁ needs."""
        radii = [np.quantile(np.linalg.norm(reference["theta1"] - centre, axis=1), 0.25) for centre in mode.values()]
        return cls(mode, reference, tuple(float(radius) for radius in radii))

    def measure(self, draws: Pair) -> dict[str, Any]:
        """Everything about chains (chain, draw, 2) that a claim needs."""
        theta, reference = draws["theta1"], self.reference["theta1"]
        shares = self._shares(theta)
        spreads = _spread(theta) / _spread(reference)
        return {
            "share": float(shares.mean()),
            "share_error": error_of(shares),
            "shares": shares,
            "spread": float(spreads.mean()),
            "spreads": spreads,
            "spread_of_component": float(self._component_spread(theta) / self._component_spread(reference)),
            "spread_of_component_error": self._component_error(theta),
            "spread_of_sum": float(np.mean(_spread(_sum(draws))) / _spread(_sum(self.reference))),
            "spread_of_difference": float(
                np.mean(_spread(self._turned(draws))) / _spread(self._turned(self.reference))
            ),
            "sd_ratio": theta.std(axis=1).mean(axis=0) / reference.std(axis=0),
            "mean_offset_in_sd": (theta.mean(axis=(0, 1)) - reference.mean(axis=0)) / reference.std(axis=0),
        }

    def _shares(self, theta: np.ndarray) -> np.ndarray:
        discs = zip(self.mode.values(), self.radii, strict=True)
        first, second = ((np.linalg.norm(theta - centre, axis=2) < radius).mean(axis=1) for centre, radius in discs)
        return np.minimum(first, second) / np.maximum(first + second, 1e-12)

    def _component_spread(self, theta: np.ndarray) -> np.ndarray:
        theta = theta.reshape(-1, 2)
        first, second = (np.linalg.norm(theta - centre, axis=1) for centre in self.mode.values())
        return _spread(theta[first < second])

    def _component_error(self, theta: np.ndarray) -> float:
        """Relative standard error of that ratio: over the chains, and over ten stretches of the reference."""
        stretches = np.array_split(self.reference["theta1"], 10)
        parts = ([np.log(self._component_spread(e)) for e in each] for each in (theta, stretches))
        return math.hypot(*map(error_of, parts))

    def _turned(self, pair: Pair) -> np.ndarray:
        difference = pair["theta1"] - pair["theta2"]
        side = difference @ (self.mode["theta1"] - self.mode["theta2"])
        return np.where(side[..., None] < 0, -difference, difference)


def _spread(draws: np.ndarray) -> np.ndarray:
    """Root of the total variance over the draws."""
    return np.sqrt(draws.var(axis=-2).sum(axis=-1))


def _sum(pair: Pair) -> np.ndarray:
    return pair["theta1"] + pair["theta2"]
