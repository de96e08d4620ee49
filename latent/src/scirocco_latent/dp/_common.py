"""Random row order: a pass over all rows in a random order that is computed, not stored."""

from __future__ import annotations

import numpy as np
from numpy import uint64

from scirocco.diffusions.host._random import cached_for, inlined, stream
from scirocco.simplex import _moves

_ROUNDS = 5  # of the Feistel network
_LEAST = 5  # bits of half a number: smaller networks generate only few of the permutations


kept = cached_for(__file__, _moves.__file__)
Arrays = tuple[np.ndarray, ...]
Known = tuple[Arrays, float, Arrays, float]
"""Clusters of a batch and the factor to all rows, clusters of the rows of a reference and the factor to all rows."""
How = tuple[int, int, float, np.ndarray]
"""How parameters move: the number of clusters, the method, the step, the seed."""


@inlined
def _shuffled(position: uint64, half: uint64, keys: np.ndarray) -> uint64:
    """A bijection of the numbers of 2 * half bits: a Feistel network, whose rounds need not be invertible."""
    mask = (uint64(1) << half) - uint64(1)
    left, right = position >> half, position & mask
    for number in range(_ROUNDS):
        word = (right + keys[number]) * uint64(0x9E3779B97F4A7C15)
        word = (word ^ (word >> uint64(29))) * uint64(0xBF58476D1CE4E5B9)
        left, right = right, left ^ ((word >> uint64(32)) & mask)
    return (left << half) | right


@kept
def rows_at(first: int, num_rows: int, chunk: int, seed0: uint64, seed1: uint64, out: np.ndarray) -> None:
    """Fill `out` with the rows at the positions `first`, `first` + 1, ... of a random order.

    Chunks of neighbouring rows stay together, because they are read faster than single rows; the rows of an incomplete
    chunk come last. A number beyond the last chunk is shuffled again until it is a valid chunk (cycle walking), which
    keeps the map a permutation.
    """
    num_chunks = num_rows // chunk
    half = uint64(_LEAST)
    while (uint64(1) << (uint64(2) * half)) < uint64(num_chunks):
        half += uint64(1)
    keys = np.empty(_ROUNDS, np.uint64)
    for number in range(_ROUNDS):
        keys[number], _ = stream(seed0, seed1, uint64(number))
    last, found = -1, uint64(0)
    for place in range(out.size):
        position = first + place
        wanted = position // chunk
        if wanted >= num_chunks:
            out[place] = position
            continue
        if wanted != last:
            last = wanted
            found = _shuffled(uint64(wanted), half, keys)
            while found >= uint64(num_chunks):
                found = _shuffled(found, half, keys)
        out[place] = np.int64(found) * chunk + position % chunk
