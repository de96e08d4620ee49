"""Distances between draws and a known law."""

from __future__ import annotations

from typing import Any

import numpy as np

from scirocco._extras import require
from scirocco.errors import InvalidTypeError, InvalidValueError

_SUM_TOLERANCE = 1e-4


def ks_dirichlet(draws: Any, concentration: Any, *, each: bool = False) -> Any:
    """Kolmogorov-Smirnov distance of draws to a Dirichlet law, averaged over Rosenblatt's components.

    Under Dir(a) the share of component j in what the earlier ones leave, x_j = ω_j / (ω_j + ... + ω_K), is
    Beta(a_j, a_(j+1) + ... + a_K), and the shares are independent. So u_j = F_j(x_j) is uniform for j < K, and

        d = 1/(K-1) Σ_{j<K} sup_u |F̂_j(u) - u|

    with the empirical distribution function F̂_j of the u_j. M independent exact draws give about 0.87/√M. The last
    component follows from the others and has no distance of its own.

    Draws are taken at face value: a component that underflowed to 0 has u = 0, and so has a component in a draw that
    has 0 in it and in all later ones. Draws in single precision of concentrations below about 0.05 do that often enough
    to be told from exact ones.

    Parameters
    ----------
    draws
        Array (..., K) of points of the simplex; leading axes (chain, draw) are flattened.
    concentration
        a, the K parameters of the law, all > 0.
    each
        Return the K-1 distances instead of their mean.

    Returns
    -------
    float or array (K-1,)
        Between 0 and 1. Distances of correlated draws are larger than those of independent ones.

    References
    ----------
    Baker, Fearnhead, Fox & Nemeth (2018), Large-scale stochastic sampling from the probability simplex, supplement.

    Examples
    --------
    >>> import numpy as np
    >>> from scirocco.analysis import ks_dirichlet
    >>> draws = np.random.default_rng(0).dirichlet([8.0, 1.0, 0.1], size=1000)
    >>> ks_dirichlet(draws, [8.0, 1.0, 0.1]) < 0.08
    True
    >>> ks_dirichlet(draws, [1.0, 1.0, 1.0]) > 0.4
    True
    """
    concentration = _check_concentration(concentration)
    points = _check_draws(draws, len(concentration))
    # Sums over the later components, not one minus the earlier: near the boundary the latter has no digit right.
    left = np.cumsum(points[:, ::-1], axis=1)[:, ::-1]
    weight = np.cumsum(concentration[::-1])[::-1]
    found = np.array(
        [
            _to_uniform(_shares_cdf(points[:, j], left[:, j + 1], concentration[j], weight[j + 1]))
            for j in range(len(concentration) - 1)
        ]
    )
    return found if each else float(found.mean())


def _shares_cdf(own: np.ndarray, later: np.ndarray, a: float, b: float) -> np.ndarray:
    """The Beta(a, b) distribution function at own/(own + later), from whichever of the two shares is the smaller.

    With b = 0.1 a fortieth of the law has 1 - x below 1e-16: such an x is 1 in double precision, 1 - x is a number.
    """
    special = require("scipy.special", "ks_dirichlet")
    total = own + later
    total = np.where(total > 0, total, 1.0)
    lower = special.betainc(a, b, own / total)
    upper = special.betaincc(b, a, later / total)
    return np.where(own <= later, lower, upper)


def _to_uniform(values: np.ndarray) -> float:
    """The largest gap between the empirical distribution function, on either side of its steps, and u."""
    ordered, number = np.sort(values), len(values)
    ranks = np.arange(number + 1) / number
    return float(max(np.max(ranks[1:] - ordered), np.max(ordered - ranks[:-1])))


def _check_concentration(concentration: Any) -> np.ndarray:
    found = _numbers(concentration, "concentration")
    if found.ndim != 1 or len(found) < 2:
        raise InvalidValueError(
            f"`concentration` must be the K >= 2 parameters of a Dirichlet law, got shape {found.shape}."
        )
    if not np.all(np.isfinite(found) & (found > 0)):
        raise InvalidValueError(
            "`concentration` must be finite and > 0 in all components. Leave out components that are always 0."
        )
    return found


def _check_draws(draws: Any, num_components: int) -> np.ndarray:
    found = _numbers(draws, "draws")
    if found.ndim < 2 or found.shape[-1] != num_components:
        raise InvalidValueError(
            f"`draws` must have the shape (..., {num_components}), as many components as `concentration`, "
            f"got {found.shape}."
        )
    found = found.reshape(-1, num_components)
    if not len(found):
        raise InvalidValueError("`draws` must have at least one draw, got none.")
    sums = found.sum(axis=1)
    wrong = ~(np.abs(sums - 1) <= _SUM_TOLERANCE) | ~np.all(found >= 0, axis=1)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise InvalidValueError(
            f"`draws` must be on the simplex: {wrong.sum()} of {len(found)} are not finite, have a negative component "
            f"or do not sum to 1; the first is number {first}, with the sum {sums[first]:g} and the least component "
            f"{found[first].min():g}. Divide θ by its sum to have ω."
        )
    return found


def _numbers(values: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(
            f"`{name}` must be an array of numbers, got {type(values).__name__}."
        ) from error
