"""What arrays on the disk have in common, wherever their chunks are."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from scirocco import _checks


class LazyArray(abc.ABC):
    """An array with axes (chain, draw, ...) that is read when it is asked for."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, were all of it read."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a stored array cannot be used without a copy: it is on the disk.")
        values = self[...]
        return values if dtype is None else values.astype(dtype, copy=False)

    @abc.abstractmethod
    def __getitem__(self, index: Any) -> Any: ...

    def blocks(self, num_draws: int) -> Iterator[np.ndarray]:
        """All draws in order, `num_draws` at a time (fewer in the last), for sums that need not hold them all."""
        num_draws = _checks.positive_int(num_draws, "num_draws")
        for start in range(0, self.shape[1], num_draws):
            yield self[:, start : start + num_draws]
