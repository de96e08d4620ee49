"""What SCIR-CV and SGRLD do to one gamma variable, written once for NumPy, JAX and compiled scalars.

A rule is a function of an array module: `stable(np)` and `stable(jnp)` work on arrays, and numba compiles `stable(np)`
for scalars (`_moves`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

_MARGIN = 2.0
"""How many times stronger than its growth the pull of a control variate must be."""
_ERRORS = 4.0
"""Standard errors by which a count is lowered before a component gets control."""
_MOST_ROWS = 1e6
"""From so many of its rows in a batch on, the noise of a component is negligible."""


@functools.cache
def stable(xp: Any) -> Callable[..., Any]:
    """The rule when a component uses the control variate: `scir_cv.control_is_stable` on the arrays of a module."""

    def control_is_stable(parametrization: Any, reference: Any, variance: Any, step: Any) -> Any:
        excess = xp.maximum(reference - 1.0, 1e-6)
        in_batch = xp.minimum(excess * excess / xp.maximum(variance, 1e-30), _MOST_ROWS)
        growth = 2.0 * step / excess
        if parametrization == 2:
            pull = in_batch * -xp.expm1(-2.0 * step / in_batch)
            return (reference > 1.0) & (pull > _MARGIN * growth)
        absent = xp.exp(-in_batch)
        pull = (1.0 - absent) * -xp.expm1(-2.0 * step)
        return (reference > 1.0) & (pull > _MARGIN * absent * xp.expm1(xp.minimum(growth, 50.0)))

    return control_is_stable


@functools.cache
def steady(xp: Any) -> Callable[..., Any]:
    """The rule when a component gets the control variate from the next reference, by the counts of this one.

    Whether it is used may not depend on the error of the reference that it then uses: it would be used when a component
    is counted too often, and the mean would be too large, by a third where one row of the reference is enough. So the
    reference before decides, by a count that is lower by four standard errors: the next one is hardly ever too low.
    """

    def is_steady(counts: Any, prior: Any, error: Any, variance: Any, step: Any) -> Any:
        low = counts - _ERRORS * error
        return (low > 0.0) & stable(xp)(2, prior + xp.maximum(low, 0.0), variance, step)

    return is_steady


@functools.cache
def reflected(xp: Any) -> Callable[..., Any]:
    """SGRLD: an Euler step of dx = drift dt + sqrt(2x) dW, reflected at 0."""

    def euler(x: Any, drift: Any, time: Any, normal: Any) -> Any:
        return abs(x + time * drift + xp.sqrt(2.0 * time * x) * normal)

    return euler
