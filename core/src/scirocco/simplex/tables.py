"""The engine of counts: what SCIR, SCIR-CV and SGRLD do to gamma variables that are driven by counts, written once.

A variable is conditionally Gamma(shape, 1); in a stochastic sampler its shape, prior plus counts, is an estimate. A
rule is a function of an array module: `stable(np)` and `stable(jnp)` work on arrays, and numba compiles `stable(np)`
for scalars. It has three users: tables of variables on the host (here), the compiled samplers of models, which move one
number at a time (`_moves.moved`), and programs for devices (`scir.controlled`, `diffusions.cir`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from scirocco.diffusions import host

METHODS = {"gibbs": 0, "scir": 1, "scir_cv": 2, "sgrld": 3}
"""Numbers of the methods in compiled code."""
FASTEST = 600.0
"""The largest growth of an exponent in a step: e^600 is a double."""

Array = np.ndarray[Any, np.dtype[Any]]


_MARGIN = 2.0
"""How many times stronger than its growth the pull of a control variate must be."""
_ERRORS = 4.0
"""Standard errors by which a count is lowered before a component gets control."""
_MOST_ROWS = 1e6
"""From so many of its rows in a batch on, the noise of a component is negligible."""


@functools.cache
def stable(xp: Any) -> Callable[..., Any]:
    """The rule when a component uses the control variate: `scir.control_is_stable` on the arrays of a module."""

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


def controlling(counts: Any, before: Any, prior: Any, factor: float, scale: float, time: float, xp: Any = np) -> Any:
    """The counts of a reference, 0 for entries without control: a reference from some rows does not choose itself.

    Parameters
    ----------
    counts, before
        Counts of all rows, by the new reference and by the one before it.
    prior
        Prior shapes.
    factor, scale
        All rows over those of a reference, and over those of a batch: a count has about `scale` times its variance.
    time
        The step size.
    xp
        The module of the arrays.
    """
    told = counts if factor <= 1.0 else before
    error = xp.sqrt((factor - 1.0) * told) if factor > 1.0 else 0.0
    return xp.where(steady(xp)(told, prior, error, scale * told, time), counts, 0)


def moved(
    seed: tuple[int, int],
    theta: Array,
    shapes: Array,
    time: float,
    reference: Array | None = None,
    variance: Array | None = None,
    *,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """SCIR, or SCIR-CV (parametrisation 2) for what has a reference: exact steps of length `time`.

    Parameters
    ----------
    seed
        Two seed words.
    theta, shapes
        The variables, and their estimated shapes.
    time
        h, in relaxation times of θ.
    reference, variance
        The shapes from more rows (0: none), and the variance of an estimate. Entries for which control is not stable
        move by SCIR, see `scir.control_is_stable`.
    out, num_threads
        As for `diffusions.host.cir`.
    """
    rates: Array | float = 1.0
    if reference is not None and variance is not None:
        used = stable(np)(2, reference, variance, time)
        pace = (shapes - 1.0) / np.where(used, reference - 1.0, 1.0)
        rates = np.where(used, np.maximum(pace, -FASTEST / time), 1.0).astype(theta.dtype)
    return host.cir(seed, theta, shapes, time, rates, out=out, num_threads=num_threads)


def euler(seed: tuple[int, int], theta: Array, shapes: Array, counts: Array, time: float) -> Array:
    """SGRLD (Patterson & Teh 2013): an Euler step towards `shapes`, for rows of which only the shares matter.

    The drift is shapes - θ - n θ/Σθ with the n counts of a row, which then do not change its sum.
    """
    normals = np.random.default_rng(list(seed)).standard_normal(theta.shape)
    drift = shapes - theta - counts * (theta / np.maximum(theta.sum(axis=-1, keepdims=True), 1e-300))
    return np.maximum(reflected(np)(theta, drift, time, normals), 1e-300)
