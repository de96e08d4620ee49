"""Draws of several chains: states or components in one order, and a warning if the chains have not converged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from scirocco import _checks
from scirocco.diagnostics import rhat

_LEAST_DRAWS, _LIMIT = 20, 1.1
_ROUNDS = 5
_CHANCE = 12.0  # half-chains of n independent draws exceed R-hat² = 1 + 12 / n in one of 2,000 parameters


def warn_if_unmixed(draws: Mapping[str, Any], who: str, advice: str) -> None:
    """Warn about the parameter whose chains disagree most, or of one chain the halves; not where it may be chance."""
    worst, name, limit = 1.0, "", _LIMIT
    for key, values in draws.items():
        array = np.asarray(values)
        if array.shape[1] < _LEAST_DRAWS:
            return
        if len(array) == 1:  # its halves are compared
            half = array.shape[1] // 2
            array = array[0, : 2 * half].reshape(2, half, *array.shape[2:])
        limit = max(_LIMIT, (1 + _CHANCE / (array.shape[1] // 2)) ** 0.5)
        found = rhat(array, method="split")
        largest = float(
            np.max(found, where=np.isfinite(found), initial=1.0)
        )  # not finite: a chain is constant
        if largest > worst:
            worst, name = largest, key
    if worst > limit:
        _checks.warn(
            f"the chains of this {who} have not converged: R-hat of `{name}` is {worst:.2f}, and the intervals are "
            f"unreliable. {advice}"
        )


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
