"""Step sizes on the host."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.samplers.schedules import Schedule

_AHEAD = 1024


class StepSizes:
    """Numbers of a schedule, many at a time: a call of one costs as much as a whole step of a chain."""

    def __init__(self, schedule: Schedule):
        self.schedule = schedule
        self._first, self._known = -1, np.empty(0)

    def __call__(self, step: int) -> float:
        """The step size of a step."""
        block, place = divmod(step, _AHEAD)
        if block != self._first:
            numbers = jnp.arange(block * _AHEAD, (block + 1) * _AHEAD)
            values: Any = jax.vmap(self.schedule)(numbers)
            self._first, self._known = block, np.asarray(values, np.float64)
        return float(self._known[place])
