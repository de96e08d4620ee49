"""Compiled moves and densities of means and precisions of clusters, the exact diffusions of a normal-gamma law.

`parameters` are means μ of centred rows, precisions τ, both (coordinates, clusters), and Σ_d ½ log(τ_d/2π).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy import uint64

from scirocco.diffusions.host._random import called, normal, stream
from scirocco.diffusions.host._variates import factors, gamma, transition
from scirocco.models.dp._gammas import GIBBS


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
    """Coordinates `first` to `last` of clusters k < num, whose sums are scale times those of `clusters`.

    With κ', μ', a', b' as in `_normal`: bτ follows a CIR process to Gamma(a'), μ an Ornstein-Uhlenbeck process to
    N(μ', 1/(κ'τ)), both of unit rate over the time `step`; GIBBS draws from the limits.
    """
    means, precisions = parameters[0], parameters[1]
    sizes, sums, squares, prior, rates = clusters[0], clusters[1], clusters[2], clusters[6], clusters[7]
    ratio, length = factors(max(step, 1e-300), 1.0)
    stays = 0.0 if method == GIBBS else math.exp(-step)
    for d in range(first, last):
        s0, s1 = stream(seed[0], seed[1], uint64(d))
        for k in range(num):
            kappa, shape = prior[0] + scale * sizes[k], prior[1] + 0.5 * scale * sizes[k]
            mean = scale * sums[d, k] / kappa
            rate = rates[d] + max(0.0, 0.5 * (scale * squares[d, k] - kappa * mean * mean))
            if method == GIBBS:
                s0, s1, g = gamma(s0, s1, shape)
            else:
                s0, s1, g = transition(s0, s1, precisions[d, k] * rate, shape, ratio, length)
            precision = max(g / rate, 1e-300)
            s0, s1, z = normal(s0, s1)
            spread = math.sqrt((1.0 - stays * stays) / (kappa * precision))
            # the old mean belongs to the old precision: what is standard normal of it is carried over
            away = 0.0
            if stays > 0.0:
                away = (means[d, k] - mean) * math.sqrt(precisions[d, k] / precision)
            means[d, k] = mean + away * stays + spread * z
            precisions[d, k] = precision


@called
def rescale(parameters: Any, clusters: Any, num: int, seed: Any) -> None:
    """Nothing is left over in these parameters."""


@called
def born(parameters: Any, clusters: Any, k: int, seed: Any) -> None:
    """A component from the prior."""
    means, precisions = parameters[0], parameters[1]
    prior, rates = clusters[6], clusters[7]
    s0, s1 = stream(seed[0], seed[1], uint64(k))
    for d in range(means.shape[0]):
        s0, s1, g = gamma(s0, s1, prior[1])
        s0, s1, z = normal(s0, s1)
        precisions[d, k] = max(g / rates[d], 1e-300)
        means[d, k] = z / math.sqrt(prior[0] * precisions[d, k])


@called
def settle(parameters: Any, first: int, last: int) -> None:
    """Constants of the clusters `first` to `last`."""
    precisions, constants = parameters[1], parameters[2]
    for k in range(first, last):
        total = 0.0
        for d in range(precisions.shape[0]):
            total += 0.5 * math.log(precisions[d, k] / (2.0 * math.pi))
        constants[k] = total


@called
def density(row: int, data: Any, parameters: Any, num: int, weights: Any, space: Any) -> None:
    """Multiply weights[k], k < num, by f(x | μ_k, τ_k); up to a common factor."""
    values = data[0]
    means, precisions, constants = parameters
    logs, highest, total = space[1], -np.inf, 0.0
    for k in range(num):
        logs[uint64(k)] = 0.0
    for d in range(values.shape[1]):
        x = values[uint64(row), uint64(d)]
        for k in range(num):
            away = x - means[uint64(d), uint64(k)]
            logs[uint64(k)] += precisions[uint64(d), uint64(k)] * (away * away)
    for k in range(num):
        logs[k] = constants[k] - 0.5 * logs[k]
        if weights[k] > 0.0:
            highest = max(highest, logs[k])
    for k in range(num):
        if weights[k] > 0.0:
            weights[k] *= math.exp(min(0.0, logs[k] - highest))
            total += weights[k]
    space[0, 0] = total
