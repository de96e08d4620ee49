"""Components of draws in one order: their labels may change along a chain, and differ between chains."""

from __future__ import annotations

import numpy as np

_ROUNDS = 5
"""Most rounds of assignments and averages; two are usual."""


def orders(means: np.ndarray) -> np.ndarray:
    """For each draw (draws, K, d) the order of its components that brings the means nearest to their common averages.

    Assignments and averages in turn, from the components of the last draw, sorted along the first coordinate.
    """
    from scipy.optimize import linear_sum_assignment

    reference = means[-1][np.argsort(means[-1][:, 0], kind="stable")]
    found = np.zeros(means.shape[:2], int)
    for _ in range(_ROUNDS):
        before = found.copy()
        for number, draw in enumerate(means):
            cost = np.sum((reference[:, None] - draw[None]) ** 2, axis=-1)
            found[number] = linear_sum_assignment(cost)[1]
        if np.array_equal(before, found):
            break
        reference = np.take_along_axis(means, found[..., None], axis=1).mean(axis=0)
    return found
