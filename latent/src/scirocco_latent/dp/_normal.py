"""Compiled arithmetic of clusters of real rows: x_d ~ N(μ_kd, 1/τ_kd), normal-gamma prior, with μ and τ integrated out.

μ | τ ~ N(0, 1/(κτ)), τ ~ Gamma(shape a, rate b_d), independent over coordinates; rows are centred at the prior mean.
Given m rows of a cluster with sums s and q of x and x²,

    κ' = κ + m,  μ' = s/κ',  a' = a + m/2,  b' = b + (q - κ' μ'²)/2,

and a further x has the density ∏_d Γ(a'+½)/Γ(a') (r_d/π)^½ (1 + r_d (x - μ'_d)²)^-(a'+½),  r_d = κ'/(2 b'_d (κ'+1)).

`data` is (values,). `clusters` are sizes, sums, squares, and the quantities derived from them (μ', r, and for each
cluster the log constant and a' + ½), then [κ, a] and b. Arrays are contiguous over clusters for each coordinate.
"""

from __future__ import annotations

import math

import numpy as np
from numpy import uint64

from scirocco.diffusions.host._random import called, inlined, normal, stream
from scirocco.diffusions.host._variates import factors, gamma
from scirocco.simplex._moves import GIBBS, moved
from scirocco_latent.dp._common import Arrays, How, Known

Array = np.ndarray

_TOGETHER = 8  # factors that are multiplied before a logarithm is taken
_HALF_LOG_PI = 0.5 * math.log(math.pi)  # of the Student density


@inlined
def weigh(row: int, data: Arrays, clusters: Arrays, num: int, weights: Array, space: Array) -> None:
    """Multiply weights[k], k < num, by the density of a row in each cluster; up to a common factor."""
    values = data[0]
    means, rates, constants = clusters[3], clusters[4], clusters[5]
    product, logs = space[0], space[1]
    for k in range(num):
        product[uint64(k)], logs[uint64(k)] = 1.0, 0.0
    for d in range(values.shape[1]):
        x = values[uint64(row), uint64(d)]
        for k in range(num):
            away = x - means[uint64(d), uint64(k)]
            product[uint64(k)] *= 1.0 + rates[uint64(d), uint64(k)] * (away * away)
        if d % _TOGETHER == _TOGETHER - 1 or d == values.shape[1] - 1:
            for k in range(num):
                logs[k] += math.log(product[k])
                product[k] = 1.0
    highest = -np.inf
    for k in range(num):
        logs[k] = constants[0, k] - constants[1, k] * logs[k]
        if weights[k] > 0.0:
            highest = max(highest, logs[k])
    for k in range(num):
        weights[k] *= math.exp(min(0.0, logs[k] - highest))


@called
def move(row: int, data: Arrays, clusters: Arrays, k: int, sign: int) -> None:
    """Add a row to a cluster (sign 1) or remove it (-1)."""
    values = data[0]
    clusters[0][k] += sign
    for d in range(values.shape[1]):
        x = values[row, d]
        clusters[1][d, k] += sign * x
        clusters[2][d, k] += sign * (x * x)
    if clusters[0][k] == 0:  # remove rounding errors
        for d in range(values.shape[1]):
            clusters[1][d, k] = clusters[2][d, k] = 0.0
    follow(clusters, k)


@called
def follow(clusters: Arrays, k: int) -> None:
    """Update the quantities derived from the sums of a cluster."""
    sizes, sums, squares, means, rates, constants, prior, scale = clusters
    kappa, shape = prior[0] + sizes[k], prior[1] + 0.5 * sizes[k]
    total = 0.0
    for d in range(sums.shape[0]):
        mean = sums[d, k] / kappa
        rate = _rate(scale[d], squares[d, k], kappa, mean)
        means[d, k] = mean
        rates[d, k] = kappa / (2.0 * rate * (kappa + 1.0))
        total += 0.5 * math.log(rates[d, k])
    each = math.lgamma(shape + 0.5) - math.lgamma(shape) - _HALF_LOG_PI
    constants[0, k] = total + sums.shape[0] * each
    constants[1, k] = shape + 0.5


@called
def _rate(scale: float, square: float, kappa: float, mean: float) -> float:
    """b', at least b despite rounding."""
    return scale + max(0.0, 0.5 * (square - kappa * mean * mean))


@called
def copy(source: Arrays, k: int, target: Arrays, slot: int) -> None:
    """Copy cluster k of `source` to cluster `slot` of `target`."""
    target[0][slot] = source[0][k]
    for d in range(source[1].shape[0]):
        target[1][d, slot], target[2][d, slot] = source[1][d, k], source[2][d, k]
    follow(target, slot)


@called
def clear(clusters: Arrays, k: int) -> None:
    """Mark slot k as free."""
    clusters[0][k] = 0
    for d in range(clusters[1].shape[0]):
        clusters[1][d, k] = clusters[2][d, k] = 0.0
    follow(clusters, k)


@called
def evidence(clusters: Arrays, k: int) -> float:
    """log density of all rows of a cluster."""
    sizes, sums, squares, prior, scale = clusters[0], clusters[1], clusters[2], clusters[6], clusters[7]
    kappa, shape = prior[0] + sizes[k], prior[1] + 0.5 * sizes[k]
    each = (
        math.lgamma(shape)
        - math.lgamma(prior[1])
        + 0.5 * math.log(prior[0] / kappa)
        - 0.5 * sizes[k] * math.log(2.0 * math.pi)
    )
    total = each * sums.shape[0]
    for d in range(sums.shape[0]):
        rate = _rate(scale[d], squares[d, k], kappa, sums[d, k] / kappa)
        total += prior[1] * math.log(scale[d]) - shape * math.log(rate)
    return total


# -- compiled moves and densities of means and precisions: the exact diffusions of a normal-gamma distribution
#
# `parameters` are means μ of centred rows, precisions τ, both (coordinates, clusters), and Σ_d ½ log(τ_d/2π).


@called
def advance(parameters: Arrays, known: Known, how: How, first: int, last: int) -> None:
    """Move coordinates `first` to `last` of clusters k < num; their sums are scale times those of `clusters`.

    With κ', μ', a', b' as in `_normal`: bτ follows a CIR process to Gamma(a'), μ an Ornstein-Uhlenbeck process to
    N(μ', 1/(κ'τ)), both of unit rate over the time `step`; GIBBS draws from the stationary distributions.
    """
    (clusters, scale, _, _), (num, method, step, seed) = known, how
    means, precisions = parameters[0], parameters[1]
    sizes, sums, squares, prior, rates = clusters[0], clusters[1], clusters[2], clusters[6], clusters[7]
    plain = factors(max(step, 1e-300), 1.0)
    stays = 0.0 if method == GIBBS else math.exp(-step)
    for d in range(first, last):
        s0, s1 = stream(seed[0], seed[1], uint64(d))
        for k in range(num):
            kappa, shape = prior[0] + scale * sizes[k], prior[1] + 0.5 * scale * sizes[k]
            mean = scale * sums[d, k] / kappa
            rate = rates[d] + max(0.0, 0.5 * (scale * squares[d, k] - kappa * mean * mean))
            now = precisions[d, k] * rate
            s0, s1, g = moved(s0, s1, now, shape, 0.0, 0.0, 0.0, method, step, 1.0, plain)
            precision = max(g / rate, 1e-300)
            s0, s1, z = normal(s0, s1)
            spread = math.sqrt((1.0 - stays * stays) / (kappa * precision))
            # the old mean was drawn given the old precision: keep its standardised value
            away = 0.0
            if stays > 0.0:
                away = (means[d, k] - mean) * math.sqrt(precisions[d, k] / precision)
            means[d, k] = mean + away * stays + spread * z
            precisions[d, k] = precision


@called
def rescale(parameters: Arrays, clusters: Arrays, num: int, seed: Array) -> None:
    """Do nothing: these parameters have no auxiliary variables."""


@called
def born(parameters: Arrays, clusters: Arrays, k: int, seed: Array) -> None:
    """Draw component k from the prior."""
    means, precisions = parameters[0], parameters[1]
    prior, rates = clusters[6], clusters[7]
    s0, s1 = stream(seed[0], seed[1], uint64(k))
    for d in range(means.shape[0]):
        s0, s1, g = gamma(s0, s1, prior[1])
        s0, s1, z = normal(s0, s1)
        precisions[d, k] = max(g / rates[d], 1e-300)
        means[d, k] = z / math.sqrt(prior[0] * precisions[d, k])


@called
def settle(parameters: Arrays, first: int, last: int) -> None:
    """Compute the constants of the clusters `first` to `last`."""
    precisions, constants = parameters[1], parameters[2]
    for k in range(first, last):
        total = 0.0
        for d in range(precisions.shape[0]):
            total += 0.5 * math.log(precisions[d, k] / (2.0 * math.pi))
        constants[k] = total


@called
def density(row: int, data: Arrays, parameters: Arrays, num: int, weights: Array, space: Array) -> None:
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
