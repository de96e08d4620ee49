"""What is measured of draws in `divide-and-conquer` in addition to their divergence from the truth.

sides, valley (mixture)
    θ₁ is projected on the line through the two modes, scaled so that they are at ±1. `share`: of the draws on the side
    with fewer, ½ when both modes are explored evenly, 0 when one is never seen. `valley`: draws within ⅓ of the middle
    over draws within ⅓ of a mode, the mean of the two; 1 or more means that there are no two modes.
reach, tail (warped)
    Standard deviation of θ₂ over the true one; and the share of draws with θ₁ below the true 5 % quantile, over 5 %.
"""

from __future__ import annotations

import numpy as np

from scirocco_papers.divide_and_conquer.problems import Draws

NEAR, TAIL = 1 / 3, 0.05


def along(theta: Draws, truth: Draws) -> Draws:
    """The first of two centres on the line through the modes, which are at ±1; draws (..., 4)."""
    difference = truth[:, :2] - truth[:, 2:]
    axis = np.linalg.eigh(difference.T @ difference)[1][:, -1]
    middle = 0.5 * (truth[:, :2] + truth[:, 2:]).mean(axis=0)
    size = np.mean(np.abs((truth[:, :2] - middle) @ axis))
    return np.asarray((theta[..., :2] - middle) @ axis / size)


def share(places: Draws) -> Draws:
    """The share of the side with fewer draws, in each run (run, draw)."""
    right = (places > 0).mean(axis=-1)
    return np.asarray(np.minimum(right, 1 - right))


def valley(places: Draws) -> Draws:
    """Draws in the middle over draws at a mode, in each run."""
    middle = (np.abs(places) < NEAR).mean(axis=-1)
    modes = 0.5 * (np.abs(np.abs(places) - 1) < NEAR).mean(axis=-1)
    return np.asarray(middle / np.maximum(modes, 1e-3))


def reach(theta: Draws, truth: Draws) -> Draws:
    """Of θ₂, in each run."""
    return np.asarray(theta[..., 1].std(axis=-1) / truth[:, 1].std())


def tail(theta: Draws, truth: Draws) -> Draws:
    """Of θ₁, in each run."""
    return np.asarray((theta[..., 0] < np.quantile(truth[:, 0], TAIL)).mean(axis=-1) / TAIL)
