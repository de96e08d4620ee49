"""The columns of a regression as its chains see them, and the way back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scirocco.models.inputs import float_type

_CHUNK = 16_384


class Units(NamedTuple):
    """Columns as the chain sees them: (x - mean) / deviation.

    With an intercept they are always centred. Its prior then speaks of a row in the middle of the table; at x = 0,
    which may be far away (a year), it would pull slopes to 0. Rounding to float32 comes last: what matters of a
    column far from 0 are its last digits.
    """

    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, standardise: bool, centre: bool) -> Units:
        """Of a table; the user's own where nothing is to be changed."""
        mean, deviation = np.zeros(x.shape[1]), np.ones(x.shape[1])
        moving = x.max(axis=0) > x.min(axis=0)  # rounding gives a constant column a deviation
        if centre:
            # a constant column that is kept shares what it says with the intercept; centred it would say nothing
            mean = np.where(moving, x.mean(axis=0, dtype=np.float64), 0.0)
        if standardise:
            deviation = np.where(moving, x.std(axis=0, dtype=np.float64), 1.0)
        return cls(mean, deviation)

    @property
    def plain(self) -> bool:
        """Whether they are the user's own."""
        return not self.mean.any() and bool(np.all(self.deviation == 1.0))

    def apply(self, x: np.ndarray) -> np.ndarray:
        """The table in these units, in JAX's precision; differences are those of the table's own precision."""
        dtype = float_type(x.dtype)
        if self.plain:
            return x.astype(dtype, copy=False)
        out = np.empty(x.shape, dtype)
        for first in range(0, len(x), _CHUNK):
            out[first : first + _CHUNK] = (x[first : first + _CHUNK] - self.mean) / self.deviation
        return out

    def undo(self, draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Coefficients and intercept in the user's units, in float64: far from 0 the two nearly cancel."""
        if self.plain:
            return draws
        coef = np.asarray(draws["coef"], np.float64) / self.deviation
        changed = {**draws, "coef": coef}
        if "intercept" in draws:
            changed["intercept"] = np.asarray(draws["intercept"], np.float64) - coef @ self.mean
        return changed
