"""Automatic warning if the chains of a fit have not converged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from scirocco import _checks
from scirocco.diagnostics import rhat

_LEAST_DRAWS, _LIMIT = 20, 1.1
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
