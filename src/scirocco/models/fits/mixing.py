"""Whether the chains of a fit agree, said without being asked."""

from __future__ import annotations

from typing import Any

import numpy as np

from scirocco import _checks

_LEAST_DRAWS, _LIMIT = 200, 1.1


def split_r_hat(values: np.ndarray) -> np.ndarray:
    """Of draws (chain, draw, ...): √(total variance / variance within half-chains), 1 where all agree."""
    half = values.shape[1] // 2
    parts = np.concatenate([values[:, :half], values[:, half : 2 * half]]).astype(np.float64)
    within = parts.var(axis=1, ddof=1).mean(axis=0)
    between = parts.mean(axis=1).var(axis=0, ddof=1)
    safe = np.where(within > 0, within, 1.0)
    found: np.ndarray = np.where(within > 0, np.sqrt((half - 1) / half + between / safe), 1.0)
    return found


def warn_if_unmixed(draws: dict[str, Any], who: str, advice: str) -> None:
    """Warn of the parameter whose chains disagree most; short runs are left in peace, they say nothing either way."""
    worst, name = 1.0, ""
    for key, values in draws.items():
        array = np.asarray(values)
        if array.shape[0] < 2 or array.shape[1] < _LEAST_DRAWS:
            return
        largest = float(np.max(split_r_hat(array)))
        if largest > worst:
            worst, name = largest, key
    if worst > _LIMIT:
        _checks.warn(
            f"the chains of this {who} have not mixed: R-hat of `{name}` is {worst:.2f}, and intervals are not to be "
            f"trusted. {advice}"
        )
