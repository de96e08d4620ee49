"""Compiled moves of one gamma variable that is driven by counts, for the kernels of models.

A variable x is conditionally Gamma(shape, rate). In a stochastic sampler `shape` is an estimate from a batch, and
`step` is the time of a move in units of 1 / rate, the relaxation time of x.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy import uint64

from scirocco.diffusions.host._random import inlined, normal
from scirocco.diffusions.host._variates import factors, gamma, transition
from scirocco.simplex.tables import FASTEST, METHODS, reflected, stable

GIBBS, SCIR, SCIR_CV, SGRLD = METHODS.values()

is_stable = inlined(stable(np))
euler = inlined(reflected(math))


@inlined
def moved(
    s0: uint64,
    s1: uint64,
    x: float,
    shape: float,
    drift: float,
    reference: float,
    variance: float,
    method: int,
    step: float,
    rate: float,
    plain: tuple[float, float],
) -> tuple[Any, Any, float]:
    """Return x after a step; `plain` are `factors(step / rate, rate)`.

    GIBBS: x ~ Gamma(shape, rate).  SCIR: dx = (shape - rate x) dt + sqrt(2x) dW, exactly.  SCIR_CV: the same with b̂
    times the rate, b̂ = (shape - 1)/(reference - 1), where control is stable for a reference (the shape from all rows;
    0 if there is none) and the variance of the estimates; elsewhere as SCIR.  SGRLD: an Euler step with a drift.
    """
    if method == GIBBS:
        s0, s1, x = gamma(s0, s1, shape)
        return s0, s1, x / rate
    if method == SGRLD:
        s0, s1, z = normal(s0, s1)
        return s0, s1, euler(x, drift, step / rate, z)
    ratio, scale = plain
    if method == SCIR_CV and is_stable(2, reference, variance, step):
        pace = max((shape - 1.0) / (reference - 1.0), -FASTEST / step)
        ratio, scale = factors(step / rate, pace * rate)
    return transition(s0, s1, x, shape, ratio, scale)
