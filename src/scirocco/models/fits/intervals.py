"""Central intervals: their probabilities, and predictions that have one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from scirocco import _checks
from scirocco.errors import InvalidValueError


class Predicted(NamedTuple):
    """A prediction with a central interval."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def tails_of(interval: Any) -> tuple[float, float]:
    """The probabilities of the two ends of a central interval."""
    if not _checks.is_number(interval) or not 0 < interval < 1:
        raise InvalidValueError(f"`interval` must be between 0 and 1, got {interval!r}.")
    return (1 - interval) / 2, (1 + interval) / 2
