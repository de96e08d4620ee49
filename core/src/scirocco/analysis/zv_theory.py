r"""How much of a variance zero-variance control variates remove when the gradients are estimates."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scirocco import _checks
from scirocco.errors import InvalidValueError

Array = np.ndarray[Any, np.dtype[Any]]


class Reduction(NamedTuple):
    """The variance of g that the best linear combination of the gradients removes."""

    exact: float
    """R = cᵀV⁻¹c, with exact gradients."""
    noisy: float
    """R̂ = cᵀ(V + V_ξ)⁻¹c, with estimates of them."""
    bound: float
    """R / (1 + λ_max(V⁻¹V_ξ)) ≤ R̂; equal if V_ξ is proportional to V."""


def zv_reduction(
    gradient_covariance: npt.ArrayLike, noise_covariance: npt.ArrayLike, covariance: npt.ArrayLike
) -> Reduction:
    r"""Variance of g(θ) that degree-1 zero-variance control variates remove, with exact and with noisy gradients.

    With z the gradient (or half of it: the factor cancels) and a = -Var(z)⁻¹ Cov(z, g), Var(g + aᵀz) is
    Var(g) - cᵀ Var(z)⁻¹ c. The error ξ of an estimate has mean 0 for every θ, so it adds V_ξ to Var(z) and does not
    change c = Cov(z, g).

    Parameters
    ----------
    gradient_covariance
        V (d, d), of the exact gradient over the posterior: E[∇f ∇fᵀ]. A number if d = 1.
    noise_covariance
        V_ξ (d, d), of the errors of the estimates, averaged over the posterior.
    covariance
        c (d,), between the gradient and g.

    Returns
    -------
    Reduction
        With the fields `exact`, `noisy` and `bound`, in the units of Var(g).

    Examples
    --------
    The mean of N(·, 1/4), with precision 4: V = 4 and c = 1 (up to sign) remove all of its variance 1/4; noise as
    large as the gradient itself halves that.

    >>> from scirocco.analysis.zv_theory import zv_reduction
    >>> zv_reduction(4.0, 4.0, 1.0)
    Reduction(exact=0.25, noisy=0.125, bound=0.125)
    """
    c = _numbers(covariance, "covariance")
    if c.ndim > 1:
        raise InvalidValueError(f"`covariance` must be a vector (d,), got shape {c.shape}.")
    c = np.atleast_1d(c)
    v = _matrix(gradient_covariance, "gradient_covariance", len(c))
    noise = _matrix(noise_covariance, "noise_covariance", len(c))
    try:
        root = np.linalg.cholesky(v)
    except np.linalg.LinAlgError as error:
        raise InvalidValueError(
            "`gradient_covariance` must be positive definite; remove parameters that the density does not depend on."
        ) from error
    half = np.linalg.solve(root, c)
    inner = np.linalg.solve(root, np.linalg.solve(root, noise).T)
    values, vectors = np.linalg.eigh(0.5 * (inner + inner.T))
    if values[0] < -1e-8 * max(1.0, values[-1]):
        raise InvalidValueError("`noise_covariance` must have no negative eigenvalue; it is a covariance.")
    values = np.maximum(values, 0.0)
    exact = float(half @ half)
    noisy = float(np.sum((vectors.T @ half) ** 2 / (1.0 + values)))
    return Reduction(exact, noisy, exact / (1.0 + float(values[-1])))


def zv_reduction_bound(reduction: float, noise: float, row_gradient: float, num_rows: int) -> float:
    r"""The thesis' lower bound of the noisy reduction, R / (1 + E|ξ|² / (σ(N + 1))) (Thm 3.4.2): it does not hold.

    Its proof divides E[aᵀξ]² by E[aᵀ∇f]² and needs the latter from below; lemma A.2.2 bounds it from above. For data
    x_i = ±2 with x_i ~ N(θ, 1), where R = Var(θ), the bound promises about R/(1 + N/n) for batches of n, and the truth
    is R/(1 + 4N/n). Use `zv_reduction(...).bound`, which holds. The thesis' conclusion stays true: with noise of
    order N² the reduction decreases like n/N, with that of SGLD-CV (order N) it does not decrease.

    Parameters
    ----------
    reduction
        R, with exact gradients.
    noise
        E|ξ|², the squared error of the gradient estimate, over batches and posterior.
    row_gradient
        σ ≥ E|∇f_i|² for all rows and the prior.
    num_rows
        N.

    Returns
    -------
    float
        The right-hand side of (3.4.3).
    """
    _checks.positive(reduction, "reduction", allow_zero=True)
    _checks.positive(noise, "noise", allow_zero=True)
    _checks.positive(row_gradient, "row_gradient")
    rows = _checks.positive_int(num_rows, "num_rows")
    return float(reduction / (1.0 + noise / (row_gradient * (rows + 1))))


def _matrix(values: npt.ArrayLike, name: str, dimension: int) -> Array:
    found = _numbers(values, name)
    if found.ndim == 0:
        found = found.reshape(1, 1)
    if found.shape != (dimension, dimension):
        raise InvalidValueError(
            f"`{name}` must have the shape ({dimension}, {dimension}), d being the length of `covariance`; got "
            f"{found.shape}."
        )
    if not np.allclose(found, found.T, rtol=1e-6, atol=1e-12 * float(np.abs(found).max())):
        raise InvalidValueError(f"`{name}` must be symmetric; it is a covariance.")
    return found


def _numbers(values: npt.ArrayLike, name: str) -> Array:
    found = _checks.numbers(values, name)
    if not np.all(np.isfinite(found)):
        raise InvalidValueError(f"`{name}` must be finite.")
    return found
