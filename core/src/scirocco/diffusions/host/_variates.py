"""Gamma and Poisson numbers and transitions of Cox-Ingersoll-Ross processes, one at a time, for compiled code.

Gamma numbers of any shape > 0 take one normal and one uniform, or two exponentials, per attempt. Poisson numbers are
floats: inversion for small means, Hörmann's PTRS for large.
"""

from __future__ import annotations

import math

import numpy as np
from numpy import uint64

from scirocco.diffusions.host._random import called, exponential, inlined, normal, uniform

_ONE_OVER_E = math.exp(-1.0)  # computed once


@inlined
def gamma_below_one(s0: uint64, s1: uint64, shape: float) -> tuple[uint64, uint64, float]:
    """Gamma(shape) for 0 < shape < 1, by Ahrens & Dieter's GS (1974) with one uniform and one exponential per attempt.

    The envelope is x^(a-1) on (0, 1) and e^(-x) beyond. There x = u^(1/a) is exp(-E/a), here it is 1 + E: the smallest
    numbers are as fine as the largest, and a ziggurat makes E. What is left of the uniform number that chose the part
    is uniform again, and decides on acceptance; 1 - x + x²/2 - x³/6 <= e^(-x) mostly does it without a second
    exponential function.
    """
    beyond = shape * _ONE_OVER_E
    while True:
        s0, s1, u = uniform(s0, s1)
        s0, s1, e = exponential(s0, s1)
        u *= 1.0 + beyond
        if u <= 1.0:
            x = math.exp(-e / shape)
            if u <= 1.0 - x * (1.0 - x * (1.0 / 2.0 - x * (1.0 / 6.0))) or u <= math.exp(-x):
                return s0, s1, x
        else:
            x = 1.0 + e
            if math.log((u - 1.0) / beyond) <= (shape - 1.0) * math.log(x):
                return s0, s1, x


@inlined
def gamma_from_one(s0: uint64, s1: uint64, shape: float) -> tuple[uint64, uint64, float]:
    """Gamma(shape) for shape >= 1, by Marsaglia & Tsang (2000)."""
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        s0, s1, x = normal(s0, s1)
        s0, s1, u = uniform(s0, s1)
        y = c * x
        v = 1.0 + y
        if v <= 0.0:
            continue
        square = x * x
        if u < 1.0 - 0.0331 * square * square:
            return s0, s1, d * (v * v * v)
        # d(1 - v³ + log v³) in powers of y: the plain form loses all digits for shapes beyond 10¹²
        if math.log(u) < 0.5 * square + d * (3.0 * (math.log1p(y) - y) - y * y * (3.0 + y)):
            return s0, s1, d * (v * v * v)


@inlined
def gamma(s0: uint64, s1: uint64, shape: float) -> tuple[uint64, uint64, float]:
    """Gamma(shape) of scale 1, shape > 0; underflow gives 0."""
    if shape < 1.0:
        return gamma_below_one(s0, s1, shape)
    return gamma_from_one(s0, s1, shape)


LARGE = 12.0  # from here on transformed rejection is the faster; its constants are valid from 10 on
_LONGEST = uint64(127)  # the distribution function of Poisson(12) is 1 in double long before
_RECIPROCAL = np.array([0.0] + [1.0 / k for k in range(1, 129)])  # 1/k: no division in the loop
_LOG_FACTORIAL = np.array([math.lgamma(k + 1.0) for k in range(10)])  # where Stirling's series is too short
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)  # of Stirling's series


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


_HUGE = 1e32  # the relative sd, sqrt(2/λ), is below the spacing of doubles from here on
_FLAT = 1e-17  # |b t| below this changes no digit
_LONG = 700.0  # e^(-bt) beyond this is 0 to a double


@called
def factors(time: float, rate: float) -> tuple[float, float]:
    """The ratio e^(-bt)/s and the scale s = (1 - e^(-bt))/b of dθ = (a - bθ) dt + sqrt(2θ) dW over a time t.

    For every finite b, through 0, and every t >= 1e-300 with bt >= -700; one call of expm1.
    """
    exponent = rate * time
    if abs(exponent) < _FLAT:
        return 1.0 / time, time
    growth = math.expm1(min(abs(exponent), _LONG))
    fraction = growth / (1.0 + growth)
    if rate > 0.0:
        return rate / growth, fraction / rate
    return -rate / fraction, -growth / rate


@inlined
def transition(
    s0: uint64, s1: uint64, theta: float, shape: float, ratio: float, scale: float
) -> tuple[uint64, uint64, float]:
    """The process after the time of `ratio, scale = factors(time, rate)`, started at `theta`.

    N ~ Poisson(λ), λ = theta * ratio, then scale * Gamma(shape + N). For shape >= ½ the same distribution as
    scale * (½ (Z + sqrt(2λ))² + Gamma(shape - ½)), which needs no Poisson number.
    """
    mean = theta * ratio
    if mean > _HUGE:
        return s0, s1, theta * (ratio * scale) + scale * shape
    square = 0.0
    if shape >= 0.5 and mean > 0.0:
        s0, s1, z = normal(s0, s1)
        z += math.sqrt(2.0 * mean)
        square = 0.5 * z * z
        shape -= 0.5
        if shape == 0.0:
            return s0, s1, scale * square
    else:
        s0, s1, count = poisson(s0, s1, mean)
        shape += count
    s0, s1, g = gamma(s0, s1, shape)
    return s0, s1, scale * (square + g)
