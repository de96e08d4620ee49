"""Compiled moves of one positive number whose conditional law is Gamma(shape), where shape may be an estimate."""

from __future__ import annotations

import math
from typing import Any

from scirocco.diffusions.host._random import inlined, normal
from scirocco.diffusions.host._variates import factors, gamma, transition

GIBBS, SCIR, SCIR_CV, SGRLD = 0, 1, 2, 3


@inlined
def moved(
    s0: Any,
    s1: Any,
    x: float,
    shape: float,
    reference: float,
    pull: float,
    method: int,
    step: float,
    plain: Any,
) -> tuple[Any, Any, float]:
    """x after a step; `plain` are `factors(step, 1.0)`.

    GIBBS: x ~ Gamma(shape).  SCIR: dx = (shape - x) dt + sqrt(2x) dW, exactly, over the time `step`.
    SCIR_CV: dx = (shape - bx) dt + sqrt(2x) dW with b = (shape - 1)/(reference - 1), `reference` being the shape from
    more rows; as SCIR if that is not above 1.  SGRLD: an Euler step of dx = (shape - x - pull) dt + sqrt(2x) dW,
    reflected at 0, with the pull n x/Σx of all n counts: the same law after division, and a sum that no count changes.
    """
    if method == GIBBS:
        return gamma(s0, s1, shape)
    if method == SGRLD:
        s0, s1, z = normal(s0, s1)
        return s0, s1, abs(x + step * (shape - x - pull) + math.sqrt(2.0 * step * x) * z)
    ratio, scale = plain
    if method == SCIR_CV and reference > 1.0:
        ratio, scale = factors(step, max((shape - 1.0) / (reference - 1.0), -600.0 / step))
    return transition(s0, s1, x, shape, ratio, scale)
