"""Gamma numbers for compiled code, for any shape > 0: one normal and one uniform, or two exponentials, a try."""

from __future__ import annotations

import math

from numpy import uint64

from scirocco.diffusions.host._random import exponential, inlined, normal, uniform

_ONE_OVER_E = math.exp(-1.0)


@inlined
def gamma_below_one(s0: uint64, s1: uint64, shape: float) -> tuple[uint64, uint64, float]:
    """Gamma(shape) for 0 < shape < 1, by Ahrens & Dieter's GS (1974) with one uniform and one exponential a try.

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
    """Gamma(shape) of scale 1, shape > 0; what underflows is 0."""
    if shape < 1.0:
        return gamma_below_one(s0, s1, shape)
    return gamma_from_one(s0, s1, shape)
