"""Moment generating functions after M steps.

Given the batches, steps compose: with e_m, g_m as in `steps`,

    E[exp(sθ_M) | batches] = exp(θ₀ s d/(1 - sG_M)) Π_j [(1 - sG_j)/(1 - sG_(j-1))]^(-â_(M-j+1)),
    G_j = Σ_{i <= j} g_(M-i+1) Π_{l < i} e_(M-l+1),   d = Π_m e_m

for s < 1/G_M. With e^(-h) and 1 - e^(-h) this is theorem 4.1 of the SCIR paper, and G_j = 1 - e^(-jh) does not depend
on the batches, so that the mean over them is a product. For SCIR-CV it is theorems 1 and 2, and G_j depends on them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.simplex.theory.counts import Counts
from scirocco.simplex.theory.steps import Times, Transition, check_process, transition


def mgf(process: str, s: Any, theta0: float, counts: Counts, step_size: Any, num_steps: int) -> Any:
    """E[exp(s θ_M)] of the exact process and of SCIR, averaged over independent batches.

    Parameters
    ----------
    process
        "exact" or "scir"; for SCIR-CV there is `conditional_mgf`.
    s
        Real or complex, a number or an array, its real part below 1/(1 - e^(-Mh)).
    theta0
        θ₀ >= 0, where the chain starts.
    counts
        The law of the estimate â of this component.
    step_size
        h, in the time of the process; or an array, an entry for each step.
    num_steps
        M, one number.

    Examples
    --------
    >>> from scirocco.simplex import theory
    >>> counts = theory.Counts.hypergeometric(0.1, count=150, num_rows=1000, batch_size=100)
    >>> slope = theory.mgf("scir", 1e-20j, 7.67, counts, 0.1, 5).imag / 1e-20
    >>> round(float(slope), 6), round(theory.moments("scir", 7.67, counts, 0.1, 5).mean, 6)
    (63.711838, 63.711838)
    """
    theta0, times = check_process(process, counts, theta0), Times.of(step_size, num_steps)
    if process == "scir_cv":
        raise InvalidValueError(
            "the generating function of SCIR-CV averaged over batches has no closed form. "
            "Use conditional_mgf for given batches, or moments for its mean and variance."
        )
    if times.numbers.ndim:
        raise InvalidTypeError(f"`num_steps` must be one whole number here, got {num_steps!r}.")
    sizes = times.each() if process == "scir" else times.elapsed[None]
    s, total, logs = _composed(s, transition(np.ones_like(sizes), sizes))
    if process == "scir":
        powers = counts.log_mgf(-np.diff(logs, axis=-1)).sum(axis=-1)
    else:
        powers = -counts.mean * logs[..., -1]
    return np.exp(theta0 * s * total / np.exp(logs[..., -1]) + powers)[()]


def conditional_mgf(
    s: Any, theta0: float, shapes: Any, rates: Any, step_size: Any, parametrization: int = 2
) -> Any:
    """E[exp(s θ_M) | batches] of SCIR-CV: theorems 1 and 2 of its paper.

    Parameters
    ----------
    s
        Real or complex, a number or an array, its real part below the pole 1/G_M.
    theta0
        θ₀ >= 0, where the chain starts.
    shapes
        â_1, ..., â_M, all > 0.
    rates
        b̂_1, ..., b̂_M, see `theory.rates`; all ones give SCIR.
    step_size
        h, in the time of the process; or an array, an entry for each step.
    parametrization
        1 or 2; steps with b̂ <= 0 are always of the second.

    Examples
    --------
    >>> from scirocco.simplex import theory
    >>> float(theory.conditional_mgf(0.0, 2.0, [3.0, 4.0], [0.8, 1.2], 0.1))
    1.0
    """
    shapes, rates = np.asarray(shapes, np.float64), np.asarray(rates, np.float64)
    if shapes.ndim != 1 or shapes.shape != rates.shape:
        raise InvalidValueError(
            f"`shapes` and `rates` must have an entry for each step, got shapes {shapes.shape} and {rates.shape}."
        )
    if not np.all(np.isfinite(shapes) & (shapes > 0) & np.isfinite(rates)):
        raise InvalidValueError("`shapes` must be finite and > 0, `rates` finite.")
    theta0 = check_process("scir_cv", Counts.exact(1.0, 0), theta0)
    sizes = Times.of(step_size, len(shapes)).each()
    s, total, logs = _composed(s, transition(rates, sizes, parametrization))
    powers = -np.diff(logs, axis=-1) @ shapes[::-1]
    return np.exp(theta0 * s * total / np.exp(logs[..., -1]) + powers)[()]


def _composed(s: Any, steps: Transition) -> tuple[np.ndarray, float, np.ndarray]:
    """s as an array, d, and log(1 - sG_j) for j = 0, ..., M on a last axis; the last step of the chain comes first."""
    s = np.asarray(s)
    if not np.issubdtype(s.dtype, np.number):
        raise InvalidTypeError(f"`s` must be a number or an array of numbers, got {s!r}.")
    decays = np.concatenate([[1.0], np.cumprod(steps.decay[::-1])])
    gains = np.concatenate([[0.0], np.cumsum(decays[:-1] * steps.gain[::-1])])
    if not np.all(s.real * gains[-1] < 1):
        raise InvalidValueError(
            f"`s` must be below the pole of the generating function, {1 / gains[-1]:.6g}, got {s.real.max():.6g}: "
            "from there on the expectation is infinite."
        )
    return s, float(decays[-1]), np.log1p(-np.multiply.outer(s, gains))
