"""The loops over rows of counts; `_normal_rows` has those over real rows.

They are inlined because passing arrays to a compiled function updates reference counts with atomic operations, which
for a row of three events take longer than the arithmetic.
"""

from __future__ import annotations

import numpy as np
from numpy import uint64

from scirocco.diffusions.host._random import stream, uniform
from scirocco_latent.dp._common import Arrays, kept
from scirocco_latent.dp._counts import (
    LONG,
    TOGETHER,
    clear_first,
    density_by_logarithms,
    settle_at,
    weigh_by_logarithms,
)
from scirocco_latent.dp._slices import BLOCK, VECTOR

Array = np.ndarray

_SMALL = 1e-200  # below this a product is inaccurate


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
    """See `_normal_rows.sweep`."""
    indptr, indices, counts = data
    sizes, totals, table, prior = clusters[0], clusters[1], clusters[2], clusters[3][0]
    above, below, weights = space[0], space[1], space[2]
    whole = prior * table.shape[0]
    s0, s1 = words[0], words[1]
    for place in range(begin, rows.size):
        if used + 1 >= sizes.size:
            words[0], words[1] = s0, s1
            return place, used
        row = rows[place]
        first, last = uint64(indptr[row]), uint64(indptr[row + 1])
        was, length = labels[row], 0
        for entry in range(first, last):
            length += counts[uint64(entry)]
        if was >= 0:
            sizes[was] -= 1
            totals[was] -= length
            for entry in range(first, last):
                table[uint64(indices[uint64(entry)]), uint64(was)] -= counts[uint64(entry)]
        # A few extra free slots with weight 0, so that loops consist of whole vectors.
        wide = min((used + VECTOR) // VECTOR * VECTOR, sizes.size)
        for k in range(wide):
            weights[uint64(k)] = sizes[uint64(k)]
        weights[used] = alpha
        if length > LONG:
            weigh_by_logarithms(row, length, data, clusters, wide, weights, space)
        else:
            for k in range(wide):
                above[uint64(k)] = below[uint64(k)] = 1.0
            done = 0
            for entry in range(first, last):
                w = uint64(indices[uint64(entry)])
                for repeat in range(counts[uint64(entry)]):
                    more, shift = prior + repeat, whole + done
                    for k in range(wide):
                        above[uint64(k)] *= more + table[w, uint64(k)]
                        below[uint64(k)] *= shift + totals[uint64(k)]
                    done += 1
                    if done % TOGETHER == 0:
                        settle_at(wide, weights, above, below)
            for k in range(wide):
                weights[uint64(k)] *= above[uint64(k)] / below[uint64(k)]
        total = 0.0
        for k in range(wide):
            total += weights[uint64(k)]
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
        sizes[chosen] += 1
        totals[chosen] += length
        for entry in range(first, last):
            table[uint64(indices[uint64(entry)]), uint64(chosen)] += counts[uint64(entry)]
    while used > 0 and sizes[used - 1] == 0:
        used -= 1
    words[0], words[1] = s0, s1
    return rows.size, used


@kept
def tally(rows: Array, data: Arrays, labels: Array, clusters: Arrays, num: int) -> None:
    """See `_normal_rows.tally`."""
    indptr, indices, counts = data
    sizes, totals, table = clusters[0], clusters[1], clusters[2]
    clear_first(clusters, num)
    for place in range(rows.size):
        row = rows[place]
        k = uint64(labels[row])
        sizes[k] += 1
        for entry in range(indptr[row], indptr[row + 1]):
            count = counts[uint64(entry)]
            totals[k] += count
            table[uint64(indices[uint64(entry)]), k] += count


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
    """See `_normal_rows.allocate`."""
    indptr, indices, counts = data
    shares = parameters[1]
    num = min((num + VECTOR - 1) // VECTOR * VECTOR, components.size)
    space, weights = np.empty((2, num)), np.empty(num)
    for block in range(first, last):
        s0, s1 = stream(seed[0], seed[1], uint64(block))
        for place in range(block * BLOCK, min((block + 1) * BLOCK, rows.size)):
            row, bound, total, length = rows[place], bounds[place], 0.0, 0
            if row < 0:
                s0, s1, u = uniform(s0, s1)
                continue
            for j in range(num):
                weights[uint64(j)] = 1.0 if components[uint64(j)] > bound else 0.0
            for entry in range(indptr[row], indptr[row + 1]):
                length += counts[uint64(entry)]
            if length <= LONG:
                for entry in range(indptr[row], indptr[row + 1]):
                    w = uint64(indices[uint64(entry)])
                    for _ in range(counts[uint64(entry)]):
                        for j in range(num):
                            weights[uint64(j)] *= shares[w, uint64(j)]
                for j in range(num):
                    total += weights[uint64(j)]
            if not total > _SMALL:
                for j in range(num):
                    weights[j] = 1.0 if components[j] > bound else 0.0
                density_by_logarithms(row, data, parameters, num, weights, space)
                total = 0.0
                for j in range(num):
                    total += weights[j]
            s0, s1, u = uniform(s0, s1)
            left, j = u * total, 0
            while j < num and left > 0.0:
                left -= weights[uint64(j)]
                j += 1
            while j > 0 and weights[j - 1] == 0.0:  # rounding passed the last one
                j -= 1
            chosen[place] = j - 1 if j > 0 else before[row]
