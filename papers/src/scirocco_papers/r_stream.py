"""R's random numbers, so that an experiment can have the very data of a paper that was computed in R.

R seeds a Mersenne Twister by a congruential generator and turns uniforms into normals by inversion of two words; both
are documented in R's help page `Random`. `sample` is R's rule before version 3.6 ("Rounding"), which the papers used.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

_SCRAMBLES = 50
_STATE_WORDS = 624
_WORD = 2.3283064365386963e-10  # 2^-32, as R rounds it
_INVERSION = 134_217_728  # 2^27


class RStream:
    """The stream after `set.seed(seed)`.

    Examples
    --------
    >>> RStream(42).normal(3).round(7)
    array([ 1.3709584, -0.5646982,  0.3631284])
    """

    def __init__(self, seed: int):
        word, words = seed & 0xFFFFFFFF, []
        for number in range(_SCRAMBLES + 1 + _STATE_WORDS):
            word = (69_069 * word + 1) & 0xFFFFFFFF
            if number > _SCRAMBLES:  # the word at _SCRAMBLES is R's position counter, overwritten at once
                words.append(word)
        self._twister = np.random.RandomState()
        self._twister.set_state(("MT19937", np.array(words, np.uint32), _STATE_WORDS, 0, 0.0))

    def uniform(self, count: int) -> np.ndarray:
        """`runif(count)`: never exactly 0 or 1."""
        words = self._twister.randint(0, 1 << 32, size=count, dtype=np.uint32)
        return np.clip(words * _WORD, 0.5 * _WORD, 1.0 - 0.5 * _WORD)

    def normal(self, count: int) -> np.ndarray:
        """`rnorm(count)`: inversion, two words a normal."""
        first, second = self.uniform(2 * count).reshape(count, 2).T
        return ndtri((np.floor(_INVERSION * first) + second) / _INVERSION)

    def sample(self, num_values: int, count: int) -> np.ndarray:
        """`sample(num_values, count, replace = TRUE)`, counted from 0."""
        return np.floor(num_values * self.uniform(count)).astype(np.int64)
