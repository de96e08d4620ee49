"""The loops over real rows; those over rows of counts, which are inlined, are in `_counts_rows`."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy import uint64

from scirocco.diffusions.host._random import stream, uniform
from scirocco_latent.dp._common import Arrays, kept
from scirocco_latent.dp._normal import clear, density, move, weigh
from scirocco_latent.dp._slices import BLOCK, VECTOR

Array = np.ndarray

# allows vectorised sums
_reordered = njit(nogil=True, error_model="numpy", forceinline=True, fastmath={"reassoc", "contract"})


@_reordered
def total_of(weights: Array, num: int) -> float:
    """Σ_k weights[k], k < num; vectorised, always in the same order."""
    total = 0.0
    for k in range(num):
        total += weights[uint64(k)]
    return total


@kept
def sweep(
    rows: Array,
    begin: int,
    data: Arrays,
    labels: Array,
    clusters: Arrays,
    alpha: float,
    used: int,
    space: Array,
    words: Array,
) -> tuple[int, int]:
    """Draw the labels of rows[begin:] one after another: m_k f(x | rows of k) for cluster k, α f(x) for a new one.

    Returns the position at which it ran out of slots (or the end), and the slots used. `words` hold the state of the
    generator between calls. A row without a label (-1) gets its first one.
    """
    sizes, weights = clusters[0], space[2]
    s0, s1 = words[0], words[1]
    for place in range(begin, rows.size):
        if used + 1 >= sizes.size:
            words[0], words[1] = s0, s1
            return place, used
        row = rows[place]
        if labels[row] >= 0:
            move(row, data, clusters, labels[row], -1)
        # A few extra free slots with weight 0, so that loops consist of whole vectors.
        wide = min((used + 8) // 8 * 8, sizes.size)
        for k in range(wide):
            weights[uint64(k)] = sizes[uint64(k)]
        weights[used] = alpha
        weigh(row, data, clusters, wide, weights, space)
        total = total_of(weights, wide)
        s0, s1, u = uniform(s0, s1)
        left, chosen = u * total, 0
        while chosen < used and left > weights[uint64(chosen)]:
            left -= weights[uint64(chosen)]
            chosen += 1
        if chosen == used:
            chosen = 0
            while sizes[chosen] > 0:
                chosen += 1
            used = max(used, chosen + 1)
        labels[row] = chosen
        move(row, data, clusters, chosen, 1)
    while used > 0 and sizes[used - 1] == 0:
        used -= 1
    words[0], words[1] = s0, s1
    return rows.size, used


@kept
def tally(rows: Array, data: Arrays, labels: Array, clusters: Arrays, num: int) -> None:
    """Compute the sums of a batch of rows by component."""
    for k in range(num):
        clear(clusters, k)
    for place in range(rows.size):
        move(rows[place], data, clusters, labels[rows[place]], 1)


@kept
def allocate(
    rows: Array,
    data: Arrays,
    parameters: Arrays,
    components: Array,
    bounds: Array,
    before: Array,
    chosen: Array,
    num: int,
    seed: Array,
    first: int,
    last: int,
) -> None:
    """Draw labels: component j with probability proportional to f(x_i | θ_j) among those with ω_j > u_i.

    Blocks `first` to `last` of the batch. If every density underflows to 0, a row keeps its label. A row -1 is skipped;
    this does not change the draws of the others.
    """
    # A few extra components with weight 0, so that loops consist of whole vectors.
    num = min((num + VECTOR - 1) // VECTOR * VECTOR, components.size)
    space, weights = np.empty((2, num)), np.empty(num)
    for block in range(first, last):
        s0, s1 = stream(seed[0], seed[1], uint64(block))
        for place in range(block * BLOCK, min((block + 1) * BLOCK, rows.size)):
            row = rows[place]
            if row < 0:
                s0, s1, u = uniform(s0, s1)
                continue
            bound = bounds[place]
            for j in range(num):
                weights[uint64(j)] = 1.0 if components[uint64(j)] > bound else 0.0
            density(row, data, parameters, num, weights, space)
            total = space[0, 0]
            s0, s1, u = uniform(s0, s1)
            left, j = u * total, 0
            while j < num and left > 0.0:
                left -= weights[uint64(j)]
                j += 1
            while j > 0 and weights[j - 1] == 0.0:  # rounding passed the last one
                j -= 1
            chosen[place] = j - 1 if j > 0 else before[row]
