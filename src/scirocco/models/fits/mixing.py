"""Automatic warning if the chains of a fit have not mixed."""

from __future__ import annotations

from typing import Any

import numpy as np

from scirocco import _checks
from scirocco.diagnostics import rhat

_LEAST_DRAWS, _LIMIT = 200, 1.1


def warn_if_unmixed(draws: dict[str, Any], who: str, advice: str) -> None:
    """Warn about the parameter whose chains disagree most; short runs, which are inconclusive, give no warning."""
    worst, name = 1.0, ""
    for key, values in draws.items():
        array = np.asarray(values)
        if array.shape[0] < 2 or array.shape[1] < _LEAST_DRAWS:
            return
        found = rhat(array, method="split")
        largest = float(
            np.max(found, where=np.isfinite(found), initial=1.0)
        )  # not finite: a chain is constant
        if largest > worst:
            worst, name = largest, key
    if worst > _LIMIT:
        _checks.warn(
            f"the chains of this {who} have not mixed: R-hat of `{name}` is {worst:.2f}, and the intervals are "
            f"unreliable. {advice}"
        )
