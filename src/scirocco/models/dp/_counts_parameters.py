"""Compiled moves and densities of the probabilities θ_k of categories, kept as gamma numbers not yet divided.

`parameters` are those numbers, (categories, clusters), and the probabilities made of them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy import uint64

from scirocco.diffusions.host._random import called, stream
from scirocco.diffusions.host._variates import factors, gamma
from scirocco.models.dp._gammas import moved

_FLOOR = 1e-300


@called
def advance(
    parameters: Any,
    clusters: Any,
    scale: float,
    reference: Any,
    reference_scale: float,
    num: int,
    method: int,
    step: float,
    seed: Any,
    first: int,
    last: int,
) -> None:
    """The numbers of clusters k < num, in the categories `first` to `last`: shapes are a + scale * S_wk."""
    gammas, shares, table, prior = parameters[0], parameters[1], clusters[2], clusters[3][0]
    totals, others = clusters[1], reference[2]
    plain = factors(max(step, 1e-300), 1.0)
    for w in range(first, last):
        s0, s1 = stream(seed[0], seed[1], uint64(w))
        for k in range(num):
            shape, wanted = prior + scale * table[w, k], prior + reference_scale * others[w, k]
            pull = scale * totals[k] * shares[w, k]
            s0, s1, gammas[w, k] = moved(s0, s1, gammas[w, k], shape, wanted, pull, method, step, plain)


@called
def rescale(parameters: Any, clusters: Any, num: int, seed: Any) -> None:
    """Sums over categories drawn anew, ~ Gamma(Va + n_k): nothing of θ, but of the present n_k."""
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
def born(parameters: Any, clusters: Any, k: int, seed: Any) -> None:
    """A component from the prior."""
    gammas, prior = parameters[0], clusters[3][0]
    s0, s1 = stream(seed[0], seed[1], uint64(k))
    for w in range(gammas.shape[0]):
        s0, s1, gammas[w, k] = gamma(s0, s1, prior)


@called
def settle(parameters: Any, first: int, last: int) -> None:
    """Probabilities of the clusters `first` to `last`."""
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
def density_by_logarithms(row: int, data: Any, parameters: Any, num: int, weights: Any, space: Any) -> None:
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
