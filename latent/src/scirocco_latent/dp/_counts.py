"""Compiled arithmetic of clusters of count rows: x ~ Multinomial(L, θ_k), θ_k ~ Dir(a), with θ integrated out.

Given the rows of cluster k, a row x has in it the probability (without the multinomial coefficient)

    ∏_w (a + S_wk)(a + S_wk + 1)...(a + S_wk + x_w - 1) / (Va + n_k)(Va + n_k + 1)...(Va + n_k + L - 1).

`data` are the arrays of a CSR matrix. `clusters` are sizes m_k, totals n_k, the table S_wk (contiguous over
clusters for each category), and [a].
"""

from __future__ import annotations

import math

import numpy as np
from numpy import uint64

from scirocco.diffusions.host._random import called, inlined, stream
from scirocco.diffusions.host._variates import factors, gamma
from scirocco.simplex._moves import moved
from scirocco_latent.dp._common import Arrays, How, Known

Array = np.ndarray

TOGETHER = 16  # factors that are multiplied before magnitudes are checked: 10⁹ to this power is a double
_SMALL = 1e-100  # weights below are scaled up before they underflow
LONG = 48  # longer rows use logarithms: in fewer events a cluster cannot make up a factor of 10⁻³⁰⁰


@inlined
def weigh(row: int, data: Arrays, clusters: Arrays, num: int, weights: Array, space: Array) -> None:
    """Multiply weights[k], k < num, by the probability of a row in each cluster; up to a common factor."""
    indptr, indices, counts = data
    totals, table, prior = clusters[1], clusters[2], clusters[3][0]
    above, below = space[0], space[1]
    whole = prior * table.shape[0]
    begin, end = indptr[row], indptr[row + 1]
    total = 0
    for entry in range(begin, end):
        total += counts[entry]
    if total > LONG:
        weigh_by_logarithms(row, total, data, clusters, num, weights, space)
        return
    for k in range(num):
        above[uint64(k)] = below[uint64(k)] = 1.0
    together, length = 0, 0
    for entry in range(begin, end):
        w = uint64(indices[entry])
        for repeat in range(counts[entry]):
            for k in range(num):
                above[uint64(k)] *= prior + repeat + table[w, uint64(k)]
                below[uint64(k)] *= whole + length + totals[uint64(k)]
            length += 1
            together += 1
            if together == TOGETHER:
                settle_at(num, weights, above, below)
                together = 0
    if together:
        settle_at(num, weights, above, below)


@inlined
def settle_at(num: int, weights: Array, above: Array, below: Array) -> None:
    highest = 0.0
    for k in range(num):
        weights[uint64(k)] *= above[uint64(k)] / below[uint64(k)]
        above[uint64(k)] = below[uint64(k)] = 1.0
        highest = max(highest, weights[uint64(k)])
    if 0.0 < highest < _SMALL:
        for k in range(num):
            weights[k] /= highest


@called
def weigh_by_logarithms(
    row: int, length: int, data: Arrays, clusters: Arrays, num: int, weights: Array, space: Array
) -> None:
    """`weigh` for long rows, whose intermediate products may underflow for the most probable cluster."""
    indptr, indices, counts = data
    totals, table, prior = clusters[1], clusters[2], clusters[3][0]
    whole, above, logs = prior * table.shape[0], space[0], space[1]
    for k in range(num):
        above[k] = 1.0
        logs[k] = math.lgamma(whole + totals[k]) - math.lgamma(whole + totals[k] + length)
    together = 0
    for entry in range(indptr[row], indptr[row + 1]):
        w, count = indices[entry], counts[entry]
        if count > TOGETHER:
            for k in range(num):
                shape = prior + table[w, k]
                logs[k] += math.lgamma(shape + count) - math.lgamma(shape)
            continue
        for repeat in range(count):
            for k in range(num):
                above[uint64(k)] *= prior + repeat + table[uint64(w), uint64(k)]
            together += 1
            if together == TOGETHER:
                together = 0
                for k in range(num):
                    logs[k] += math.log(above[k])
                    above[k] = 1.0
    highest = -np.inf
    for k in range(num):
        logs[k] += math.log(above[k])
        if weights[k] > 0.0:
            highest = max(highest, logs[k])
    for k in range(num):
        weights[k] *= math.exp(min(0.0, logs[k] - highest))


@inlined
def move(row: int, data: Arrays, clusters: Arrays, k: int, sign: int) -> None:
    """Add a row to a cluster (sign 1) or remove it (-1)."""
    indptr, indices, counts = data
    clusters[0][k] += sign
    for entry in range(indptr[row], indptr[row + 1]):
        clusters[1][k] += sign * counts[entry]
        clusters[2][indices[entry], k] += sign * counts[entry]


@called
def copy(source: Arrays, k: int, target: Arrays, slot: int) -> None:
    """Copy cluster k of `source` to cluster `slot` of `target`."""
    target[0][slot], target[1][slot] = source[0][k], source[1][k]
    for w in range(source[2].shape[0]):
        target[2][w, slot] = source[2][w, k]


@called
def clear(clusters: Arrays, k: int) -> None:
    """Mark slot k as free."""
    clusters[0][k] = clusters[1][k] = 0
    for w in range(clusters[2].shape[0]):
        clusters[2][w, k] = 0


@called
def clear_first(clusters: Arrays, num: int) -> None:
    """Mark the slots k < num as free."""
    clusters[0][:num] = 0
    clusters[1][:num] = 0
    for w in range(clusters[2].shape[0]):
        for k in range(num):
            clusters[2][uint64(w), uint64(k)] = 0


@called
def evidence(clusters: Arrays, k: int) -> float:
    """log probability of all rows of a cluster (without the multinomial coefficients)."""
    table, prior = clusters[2], clusters[3][0]
    whole, total = prior * table.shape[0], 0.0
    for w in range(table.shape[0]):
        if table[w, k]:
            total += math.lgamma(prior + table[w, k]) - math.lgamma(prior)
    return total + math.lgamma(whole) - math.lgamma(whole + clusters[1][k])


# -- compiled moves and densities of the probabilities θ_k of categories, kept as unnormalised gamma variables
#
# `parameters` are those variables, (categories, clusters), and their normalised probabilities.


_FLOOR = 1e-300  # avoids log 0 and division by 0


@called
def advance(parameters: Arrays, known: Known, how: How, first: int, last: int) -> None:
    """Move the variables of clusters k < num in the categories `first` to `last`; the shapes are a + scale * S_wk.

    SGRLD has the pull n x/Σx of all n counts of a cluster: no count then changes Σx, which x/Σx does not depend on. The
    variance of a count in a batch is at most `scale` times its expectation.
    """
    (clusters, scale, reference, reference_scale), (num, method, step, seed) = known, how
    gammas, shares, table, prior = parameters[0], parameters[1], clusters[2], clusters[3][0]
    totals, others = clusters[1], reference[2]
    plain = factors(max(step, 1e-300), 1.0)
    for w in range(first, last):
        s0, s1 = stream(seed[0], seed[1], uint64(w))
        for k in range(num):
            x, shape, count = gammas[w, k], prior + scale * table[w, k], reference_scale * others[w, k]
            drift = shape - x - scale * totals[k] * shares[w, k]
            wanted = prior + count if count > 0.0 else 0.0
            s0, s1, gammas[w, k] = moved(s0, s1, x, shape, drift, wanted, scale * count, method, step, 1.0, plain)


@called
def rescale(parameters: Arrays, clusters: Arrays, num: int, seed: Array) -> None:
    """Redraw the sums over categories, ~ Gamma(Va + n_k): they depend on the current n_k but not on θ."""
    gammas, totals, prior = parameters[0], clusters[1], clusters[3][0]
    for k in range(num):
        s0, s1 = stream(seed[0], seed[1], uint64(gammas.shape[0] + k))
        total = 0.0
        for w in range(gammas.shape[0]):
            total += gammas[w, k]
        s0, s1, wanted = gamma(s0, s1, prior * gammas.shape[0] + totals[k])
        if total > 0.0:
            for w in range(gammas.shape[0]):
                gammas[w, k] *= wanted / total


@called
def born(parameters: Arrays, clusters: Arrays, k: int, seed: Array) -> None:
    """Draw component k from the prior."""
    gammas, prior = parameters[0], clusters[3][0]
    s0, s1 = stream(seed[0], seed[1], uint64(k))
    for w in range(gammas.shape[0]):
        s0, s1, gammas[w, k] = gamma(s0, s1, prior)


@called
def settle(parameters: Arrays, first: int, last: int) -> None:
    """Normalise the probabilities of the clusters `first` to `last`."""
    gammas, shares = parameters[0], parameters[1]
    totals = np.zeros(last)
    for w in range(gammas.shape[0]):
        for k in range(first, last):
            totals[uint64(k)] += gammas[uint64(w), uint64(k)]
    for k in range(first, last):
        totals[k] = 1.0 / totals[k] if totals[k] > 0.0 else 0.0
    for w in range(gammas.shape[0]):
        for k in range(first, last):
            shares[uint64(w), uint64(k)] = gammas[uint64(w), uint64(k)] * totals[uint64(k)]
    for k in range(first, last):
        if totals[k] == 0.0 or totals[k] == np.inf:  # all underflowed: flat
            for w in range(gammas.shape[0]):
                shares[w, k] = 1.0 / gammas.shape[0]


@called
def density_by_logarithms(row: int, data: Arrays, parameters: Arrays, num: int, weights: Array, space: Array) -> None:
    """Multiply weights[k], k < num, by f(x | θ_k), up to a factor: for long rows, and where products have become 0."""
    indptr, indices, counts = data
    shares, logs, highest = parameters[1], space[0], -np.inf
    for k in range(num):
        logs[k] = 0.0
    for entry in range(indptr[row], indptr[row + 1]):
        for k in range(num):
            logs[k] += counts[entry] * math.log(max(shares[indices[entry], k], _FLOOR))
    for k in range(num):
        if weights[k] > 0.0:
            highest = max(highest, logs[k])
    for k in range(num):
        weights[k] *= math.exp(min(0.0, logs[k] - highest))
