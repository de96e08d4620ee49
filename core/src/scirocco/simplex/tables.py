"""Moves of a table of gamma variables that are driven by counts, on the host: the array form of `_moves.moved`.

A variable is conditionally Gamma(shape, 1); in a stochastic sampler its shape, prior plus counts, is an estimate. The
compiled samplers of models call `_moves.moved` for one number at a time, and programs for devices use
`scir_cv.controlled` and `diffusions.cir`; the rules of all three are in `_rules`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scirocco.diffusions import host
from scirocco.simplex import _rules

METHODS = {"gibbs": 0, "scir": 1, "scir_cv": 2, "sgrld": 3}
"""Numbers of the methods in compiled code."""
FASTEST = 600.0
"""The largest growth of an exponent in a step: e^600 is a double."""

Array = np.ndarray[Any, np.dtype[Any]]


def controlling(
    counts: Any, before: Any, prior: Any, factor: float, scale: float, time: float, xp: Any = np
) -> Any:
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
    return xp.where(_rules.steady(xp)(told, prior, error, scale * told, time), counts, 0)


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
        move by SCIR, see `scir_cv.control_is_stable`.
    out, num_threads
        As for `diffusions.host.cir`.
    """
    rates: Array | float = 1.0
    if reference is not None and variance is not None:
        used = _rules.stable(np)(2, reference, variance, time)
        pace = (shapes - 1.0) / np.where(used, reference - 1.0, 1.0)
        rates = np.where(used, np.maximum(pace, -FASTEST / time), 1.0).astype(theta.dtype)
    return host.cir(seed, theta, shapes, time, rates, out=out, num_threads=num_threads)


def euler(seed: tuple[int, int], theta: Array, shapes: Array, counts: Array, time: float) -> Array:
    """SGRLD (Patterson & Teh 2013): an Euler step towards `shapes`, for rows of which only the shares matter.

    The drift is shapes - θ - n θ/Σθ with the n counts of a row, which then do not change its sum.
    """
    normals = np.random.default_rng(list(seed)).standard_normal(theta.shape)
    drift = shapes - theta - counts * (theta / np.maximum(theta.sum(axis=-1, keepdims=True), 1e-300))
    return np.maximum(_rules.reflected(np)(theta, drift, time, normals), 1e-300)
