"""Distances between draws and a known distribution, and between two samples: Kolmogorov-Smirnov, Wasserstein."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from scirocco import _checks
from scirocco._extras import require
from scirocco.errors import InvalidValueError

Array = np.ndarray[Any, np.dtype[Any]]

_SUM_TOLERANCE = 1e-4  # of points of the simplex in single precision
_BLOCK_BYTES = 1 << 26  # projections at a time


def ks_dirichlet(draws: npt.ArrayLike, concentration: npt.ArrayLike, *, each: bool = False) -> Any:
    """Kolmogorov-Smirnov distance of draws to a Dirichlet distribution, averaged over Rosenblatt's components.

    Under Dir(a) the share of component j in the sum of the components from j on, x_j = ω_j / (ω_j + ... + ω_K), is
    Beta(a_j, a_(j+1) + ... + a_K), and the shares are independent. So u_j = F_j(x_j) is uniform for j < K, and

        d = 1/(K-1) Σ_{j<K} sup_u |F̂_j(u) - u|

    with the empirical distribution function F̂_j of the u_j. M independent exact draws give about 0.87/√M. The last
    component is determined by the others and has no distance.

    Draws are not corrected: a component that underflowed to 0 has u = 0, and so has a component in a draw that
    has 0 in it and in all later ones. Draws in single precision of concentrations below about 0.05 do that often enough
    to be distinguished from exact ones.

    Parameters
    ----------
    draws
        Array (..., K) of points of the simplex; leading axes (chain, draw) are flattened.
    concentration
        a, the K parameters of the distribution, all > 0.
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
    # Sums over the later components, not one minus the earlier: near the boundary the latter has no correct digit.
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
    """The Beta(a, b) distribution function at own/(own + later), computed from the smaller of the two shares.

    With b = 0.1, 1 - x is below 1e-16 with probability 1/40: such an x is 1 in double precision, but 1 - x is exact.
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


def _check_concentration(concentration: npt.ArrayLike) -> np.ndarray:
    found = _checks.numbers(concentration, "concentration")
    if found.ndim != 1 or len(found) < 2:
        raise InvalidValueError(
            f"`concentration` must be the K >= 2 parameters of a Dirichlet distribution, got shape {found.shape}."
        )
    if not np.all(np.isfinite(found) & (found > 0)):
        raise InvalidValueError(
            "`concentration` must be finite and > 0 in all components. Omit components that are always 0."
        )
    return found


def _check_draws(draws: npt.ArrayLike, num_components: int) -> np.ndarray:
    found = _checks.numbers(draws, "draws")
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
            f"or do not sum to 1; the first is number {first}, with the sum {sums[first]:g} and the smallest component "
            f"{found[first].min():g}. Divide θ by its sum to get ω."
        )
    return found


# -- Wasserstein distances -------------------------------------------------------------------------------------


def wasserstein(a: npt.ArrayLike, b: npt.ArrayLike, order: float = 1) -> float:
    r"""Exact Wasserstein distance of two univariate samples, also of different sizes.

    .. math:: W_p = \left(∫_0^1 |F_a^{-1}(u) - F_b^{-1}(u)|^p\,du\right)^{1/p}

    Parameters
    ----------
    a, b
        Numbers, any shape: axes (chain, draw) are flattened.
    order
        p ≥ 1.

    Returns
    -------
    float
        The distance in the units of the numbers. Two samples of one distribution have a distance of order 1/√n.

    Examples
    --------
    >>> from scirocco.analysis import wasserstein
    >>> wasserstein([0.0, 1.0, 2.0], [3.0, 4.0, 5.0]), wasserstein([0.0], [-1.0, 1.0], order=2)
    (3.0, 1.0)
    """
    power = _order(order)
    x, y = _finite(a, "a").reshape(-1, 1), _finite(b, "b").reshape(-1, 1)
    for found, name in ((x, "a"), (y, "b")):
        if not len(found):
            raise InvalidValueError(f"`{name}` must have at least one draw, got none.")
    return float(_to_the_power(x, y, power)[0] ** (1.0 / power))


def sliced_wasserstein(
    a: npt.ArrayLike, b: npt.ArrayLike, *, order: float = 2, num_projections: int = 200, seed: int = 0
) -> float:
    r"""Sliced Wasserstein distance of two samples: the mean distance of their projections on random directions.

    .. math:: SW_p = \left(E_u W_p^p(u·a, u·b)\right)^{1/p}, \qquad u \text{ uniform on the sphere}

    A shift by c gives |c|/√d at order 2 (the W₂ distance itself is |c|). It is 0 if and only if the distributions are
    equal and, unlike W_p, does not need more draws in more dimensions. Coordinates count in their own units: divide
    them by their standard deviations first if those differ.

    Parameters
    ----------
    a, b
        Draws (..., dimension); leading axes (chain, draw) are flattened. The samples may have different sizes.
    order
        p ≥ 1.
    num_projections
        Number of random directions; the error of the mean decreases like one over its square root.
    seed
        Random seed of the directions, which are the same for the same seed and dimension.

    Returns
    -------
    float
        The distance in the units of the draws.

    Notes
    -----
    O(num_projections · draws · (dimension + log draws)) time, in blocks of directions.

    References
    ----------
    Bonneel, Rabin, Peyré & Pfister (2015), Sliced and Radon Wasserstein barycenters of measures.

    Examples
    --------
    >>> import numpy as np
    >>> from scirocco.analysis import sliced_wasserstein
    >>> a = np.random.default_rng(0).normal(size=(1000, 4))
    >>> sliced_wasserstein(a, a), abs(sliced_wasserstein(a, a + [2.0, 0.0, 0.0, 0.0]) - 1.0) < 0.2
    (0.0, True)
    """
    power = _order(order)
    x, y = _pair(a, b)
    _checks.positive_int(num_projections, "num_projections")
    _checks.positive_int(seed, "seed", minimum=0)
    directions = np.random.default_rng(seed).normal(size=(x.shape[1], num_projections))
    directions /= np.sqrt(np.sum(directions**2, axis=0))
    width = max(1, _BLOCK_BYTES // (8 * (len(x) + len(y))))
    found = [
        _to_the_power(x @ directions[:, first : first + width], y @ directions[:, first : first + width], power)
        for first in range(0, num_projections, width)
    ]
    return float(np.mean(np.concatenate(found)) ** (1.0 / power))


def _to_the_power(x: Array, y: Array, power: float) -> Array:
    """W_p^p between the columns of x and those of y."""
    x, y = np.sort(x, axis=0), np.sort(y, axis=0)
    n, m = len(x), len(y)
    if n == m:
        return np.asarray(np.mean(np.abs(x - y) ** power, axis=0))
    # Both quantile functions are constant between the numbers i/n and j/m; the integers i m and j n have no rounding.
    ends = np.union1d(np.arange(1, n + 1) * m, np.arange(1, m + 1) * n)
    weights = np.diff(ends, prepend=0) / (n * m)
    return np.asarray(weights @ np.abs(x[(ends - 1) // m] - y[(ends - 1) // n]) ** power)


def _order(order: float) -> float:
    _checks.positive(order, "order")
    if order < 1:
        raise InvalidValueError(f"`order` must be at least 1, got {order}.")
    return float(order)


def _pair(a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[Array, Array]:
    """Two samples (draw, dimension) of one dimension."""
    x, y = (_finite(values, name) for values, name in ((a, "a"), (b, "b")))
    for values, name in ((x, "a"), (y, "b")):
        if values.ndim < 2 or not values.size:
            raise InvalidValueError(
                f"`{name}` must have the shape (..., dimension) and at least one draw, got {values.shape}. Use "
                f"{name}[..., None] if the dimension is 1, or `wasserstein`, which is for univariate draws."
            )
    if x.shape[-1] != y.shape[-1]:
        raise InvalidValueError(
            f"`a` and `b` must have the same dimension (last axis), got {x.shape[-1]} and {y.shape[-1]}."
        )
    return x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])


def _finite(values: npt.ArrayLike, name: str) -> Array:
    found = _checks.numbers(values, name)
    if not np.all(np.isfinite(found)):
        raise InvalidValueError(f"`{name}` must be finite; {np.sum(~np.isfinite(found))} of its numbers are not.")
    return found


# -- nearest neighbours --------------------------------------------------------------------------------------


_MANY_REPEATED = 0.1  # share of a sample above which there is a warning
_FLAT = 1e-10  # eigenvalues of a correlation matrix below this count as 0


def kl_knn(a: npt.ArrayLike, b: npt.ArrayLike, *, k: int = 1, standardise: bool = True) -> float:
    r"""Kullback-Leibler divergence KL(a ‖ b) between the distributions of two samples, by nearest neighbours.

    .. math:: \frac{d}{n} \sum_i \log \frac{ν_k(i)}{ρ_k(i)} + \log \frac{m}{n - 1}

    with ρ_k(i) the distance from draw i of a to its k-th neighbour among the other draws of a, and ν_k(i) that to its
    k-th neighbour in b. Consistent as both samples grow, for any k (Wang, Kulkarni & Verdú 2009). Two independent
    samples of one distribution with m = n - 1 have mean 0 exactly.

    A repeated point (as in chains of Metropolis-Hastings) would have the density ∞. So
    neighbours at distance 0 do not count, and n and m are the numbers of distinct points; the mean is over all draws,
    repeated ones included. That is right if repetition does not depend on the position; a warning says when more
    than a tenth of a sample is repeated. kl_knn(a, a) is 0.

    Parameters
    ----------
    a, b
        Draws (..., dimension) of the two distributions; leading axes (chain, draw) are flattened.
    k
        Which nearest neighbour to use: a larger k gives less variance and more bias.
    standardise
        Map both samples to unit covariance by one linear map first: that does not change the divergence, and reduces
        the bias for strongly correlated coordinates.

    Returns
    -------
    float
        May be below 0 if the distributions are similar; then the standard deviation is about 2/√n.
        The bias falls slowly in many dimensions, like n^(-1/d): with n = 5,000, a shift by one standard deviation
        (KL = 0.5) has the mean 0.50 in two dimensions, 0.45 in five and 0.40 in ten. Distant samples seem nearer than
        they are, as no draw of b is near those of a. Correlated draws count as fewer.

    References
    ----------
    Wang, Kulkarni & Verdú (2009), Divergence estimation for multidimensional densities via k-nearest-neighbor
    distances.

    Examples
    --------
    >>> import numpy as np
    >>> from scirocco.analysis import kl_knn
    >>> a, b = np.random.default_rng(0).normal(size=(2, 5000, 2))
    >>> abs(kl_knn(a, b)) < 0.1, abs(kl_knn(a, b + [1.0, 0.0]) - 0.5) < 0.1
    (True, True)
    """
    x, y = _pair(a, b)
    _checks.positive_int(k, "k")
    (x, counts), (y, _) = _distinct(x, "a", k), _distinct(y, "b", k)
    shared = _in_both(x, y)
    if standardise:
        x, y = _to_unit_covariance(x, y)
    tree = require("scipy.spatial", "kl_knn").cKDTree
    own = tree(x).query(x, k=[k + 1])[0][:, 0]  # the first is the point itself
    near = tree(y).query(x, k=np.arange(1, k + 2))[0]
    other = np.where(shared, near[:, k], near[:, k - 1])
    rows = x.shape[1] * np.log(other / own) + np.log((len(y) - shared) / (len(x) - 1))
    return float(np.average(rows, weights=counts))


def _distinct(points: Array, name: str, k: int) -> tuple[Array, Array]:
    found, counts = np.unique(points, axis=0, return_counts=True)
    if len(found) < k + 2:
        raise InvalidValueError(
            f"`{name}` must have at least k + 2 = {k + 2} distinct draws, got {len(found)} among {len(points)}."
        )
    repeated = 1.0 - len(found) / len(points)
    if repeated > _MANY_REPEATED:
        _checks.warn(
            f"{repeated:.0%} of the draws in `{name}` repeat others. kl_knn counts distinct points, which is right "
            "only if repetition does not depend on the position; thin the chain until few are left."
        )
    return found, counts


def _in_both(x: Array, y: Array) -> Array:
    """Which points of x are also in y; both contain distinct points."""
    _, place, counts = np.unique(np.concatenate([x, y]), axis=0, return_inverse=True, return_counts=True)
    return np.asarray(counts[place.reshape(-1)[: len(x)]] > 1)


def _to_unit_covariance(x: Array, y: Array) -> tuple[Array, Array]:
    """Transform both samples so that the mean of their covariances is the identity matrix."""
    covariance = 0.5 * (np.cov(x, rowvar=False) + np.cov(y, rowvar=False)).reshape(x.shape[1], x.shape[1])
    scale = np.sqrt(np.diag(covariance))
    constant = np.flatnonzero(scale == 0)
    if len(constant):
        raise InvalidValueError(
            f"coordinate {constant[0]} is the same in all draws of `a` and `b`: the distributions have no "
            "density. Remove it."
        )
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    if values[0] < _FLAT:
        raise InvalidValueError(
            f"the {len(scale)} coordinates of `a` and `b` are linearly dependent, so that the distributions have no "
            "density (or there are fewer draws than coordinates). Remove some, e.g. the last one of a simplex."
        )
    middle = y.mean(axis=0)
    to_unit = vectors / np.sqrt(values)
    return (x - middle) / scale @ to_unit, (y - middle) / scale @ to_unit
