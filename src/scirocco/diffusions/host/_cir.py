"""One exact transition of a Cox-Ingersoll-Ross process, for compiled code."""

from __future__ import annotations

import math

from numpy import uint64

from scirocco.diffusions.host._gamma import gamma
from scirocco.diffusions.host._poisson import poisson
from scirocco.diffusions.host._random import called, inlined, normal

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
    """The process after the time of `ratio, scale = factors(time, rate)`, begun at `theta`.

    N ~ Poisson(λ), λ = theta * ratio, then scale * Gamma(shape + N). For shape >= ½ the same law as
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
