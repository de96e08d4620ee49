"""Poisson numbers for compiled code, as floats: inversion for small means, Hörmann's PTRS for large."""

from __future__ import annotations

import math

import numpy as np
from numpy import uint64

from scirocco.diffusions.host._random import called, inlined, uniform

LARGE = 12.0  # from here on transformed rejection is the faster; its constants are valid from 10 on
_LONGEST = uint64(127)  # the distribution function of Poisson(12) is 1 in double long before
_RECIPROCAL = np.array([0.0] + [1.0 / k for k in range(1, 129)])
_LOG_FACTORIAL = np.array([math.lgamma(k + 1.0) for k in range(10)])
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


@called
def log_mass(count: float, mean: float) -> float:
    """The log of e^(-λ) λ^k / k!, by Stirling's series: terms of the size of k - λ, not of λ log λ, cancel."""
    if count < 10.0:
        return count * math.log(mean) - mean - _LOG_FACTORIAL[np.uint64(count)]
    above = count - mean
    inverse = 1.0 / count
    square = inverse * inverse
    rest = inverse * (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0)))
    return above - count * math.log1p(above / mean) - 0.5 * math.log(count) - _HALF_LOG_TWO_PI - rest


@called
def poisson_large(s0: uint64, s1: uint64, mean: float) -> tuple[uint64, uint64, float]:
    """Poisson(mean) for mean >= 10, by transformed rejection with squeeze (PTRS; Hörmann 1993)."""
    b = 0.931 + 2.53 * math.sqrt(mean)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    sure = 0.9277 - 3.6224 / (b - 2.0)
    while True:
        s0, s1, u = uniform(s0, s1)
        s0, s1, v = uniform(s0, s1)
        u -= 0.5
        edge = 0.5 - abs(u)
        # np.floor: math.floor would go through a 64-bit integer, which is too short for means beyond 10¹⁸
        count = np.floor((2.0 * a / edge + b) * u + mean + 0.43)
        if edge >= 0.07 and v <= sure:
            return s0, s1, count
        if count < 0.0 or (edge < 0.013 and v > edge):
            continue
        if math.log(v * inverse_alpha / (a / (edge * edge) + b)) <= log_mass(count, mean):
            return s0, s1, count


@inlined
def poisson(s0: uint64, s1: uint64, mean: float) -> tuple[uint64, uint64, float]:
    """Poisson(mean), mean >= 0 and below 10³², as a float.

    Small means by inversion: the first k at which the distribution function reaches a uniform number. Where that is at
    most 1 - λ it is 0 for sure, without the exponential; for λ < 2⁻⁵³ it always is.
    """
    if mean >= LARGE:
        return poisson_large(s0, s1, mean)
    s0, s1, u = uniform(s0, s1)
    if u <= 1.0 - mean:
        return s0, s1, 0.0
    mass = math.exp(-mean)
    u -= mass
    count = uint64(0)
    while u > 0.0 and count < _LONGEST:
        count += uint64(1)
        mass *= mean * _RECIPROCAL[count]
        u -= mass
    return s0, s1, float(np.int64(count))
