"""Least squares on Stein features from moments: for each fold what the draws outside it say, with a ridge."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

Array = np.ndarray[Any, np.dtype[Any]]

RIDGES = (0.0, 1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
_FLOOR = (
    1e-10  # smaller eigenvalues are rounding: of features that are sums of others float32 leaves about 1e-14
)
_AS_GOOD, _ROUNDING = 1.01, 1e-10


def num_features(dimension: int, degree: int) -> int:
    """Monomials of degree 1 to `degree`."""
    return dimension if degree == 1 else dimension + dimension * (dimension + 1) // 2


def features(s: Array, x: Array | None) -> Array:
    """ΔP + ∇P·s for P = x_i, and with positions for P = x_i²/2 and x_i x_j (i < j), row by row of the triangle."""
    if x is None:
        return s
    rows, dimension = s.shape
    out, start = np.empty((rows, num_features(dimension, 2))), dimension
    out[:, :dimension] = s
    for i in range(dimension):
        stop = start + dimension - i
        out[:, start:stop] = x[:, i, None] * s[:, i:] + x[:, i:] * s[:, i, None]
        out[:, start] = 1.0 + x[:, i] * s[:, i]
        start = stop
    return out


def uncentred(coefficients: Array, centre: Array) -> Array:
    """Coefficients for features of x, from those for features of x - centre."""
    dimension = len(centre)
    if len(coefficients) == dimension:
        return coefficients
    i, j = np.triu_indices(dimension)
    out, pairs = coefficients.copy(), coefficients[dimension:]
    # (x_i - m_i) s_j + (x_j - m_j) s_i is the feature of x, less m_i s_j + m_j s_i
    np.subtract.at(out, j, centre[i, None] * pairs)
    off = i != j
    np.subtract.at(out, i[off], centre[j[off], None] * pairs[off])
    return out


class Sums(NamedTuple):
    """Of features z and outputs g, about a point near their means."""

    num: float
    """Rows."""
    z: Array
    g: Array
    zz: Array
    zg: Array
    gg: Array
    """Of each output alone."""

    @classmethod
    def of(cls, z: Array, g: Array) -> Sums:
        """Of these rows."""
        return cls(float(len(z)), z.sum(axis=0), g.sum(axis=0), z.T @ z, z.T @ g, (g * g).sum(axis=0))

    def plus(self, other: Sums, sign: float = 1.0) -> Sums:
        """Both together (sign -1: the rows of `other` left out)."""
        arrays = (a + sign * b for a, b in zip(self[1:], other[1:], strict=True))
        return Sums(self.num + sign * other.num, *arrays)

    def add(self, other: Sums) -> Sums:
        """Both together, in place where it saves a large matrix."""
        for mine, theirs in zip(self[1:], other[1:], strict=True):
            np.add(mine, theirs, out=mine)
        return self._replace(num=self.num + other.num)

    def about(self, z: Array, g: Array) -> tuple[Array, Array, Array]:
        """Means of (z - z₀)(z - z₀)ᵀ, (z - z₀)(g - g₀)ᵀ and (g - g₀)²."""
        n, mz, mg = self.num, self.z / self.num, self.g / self.num
        dz, dg = mz - z, mg - g
        zz = self.zz / n - np.outer(mz, mz) + np.outer(dz, dz)
        zg = self.zg / n - np.outer(mz, mg) + np.outer(dz, dg)
        return zz, zg, np.maximum(self.gg / n - mg * mg, 0.0) + dg * dg

    @property
    def means(self) -> tuple[Array, Array]:
        """Of z and of g."""
        return self.z / self.num, self.g / self.num


class Regression:
    """Of g on standardised z, for any ridge."""

    def __init__(self, sums: Sums):
        self._means = sums.means
        zz, zg, _ = sums.about(*self._means)
        spread = np.sqrt(np.maximum(np.diag(zz), 0.0))
        self._scale = np.where(spread > 0, spread, np.inf)  # a feature that does not vary is left out
        self._correlations = zz / np.outer(self._scale, self._scale)
        self._cross = zg / self._scale[:, None]

    def coefficients(self, ridge: float) -> Array:
        """a = -(Var z + ridge)⁻¹ Cov(z, g), for z in its own units: (feature, output)."""
        matrix = self._correlations.copy()
        matrix[np.diag_indices_from(matrix)] += max(ridge, _FLOOR)
        found = cho_solve(cho_factor(matrix, lower=True, overwrite_a=True), self._cross)
        return np.asarray(-found / self._scale[:, None])

    def errors(self, other: Sums, ridges: tuple[float, ...]) -> Array:
        """Mean squares of g + aᵀz about its mean here, over the rows of `other`: (ridge, output)."""
        zz, zg, gg = other.about(*self._means)
        tried = (self.coefficients(ridge) for ridge in ridges)
        return np.maximum([gg + (a * (2.0 * zg + zz @ a)).sum(axis=0) for a in tried], 0.0)


class Fit(NamedTuple):
    """Coefficients of all draws, those of each fold (from the draws outside it), and the ridge."""

    coefficients: Array
    outside: list[Array]
    ridge: float


def fit(folds: list[Sums], ridge: float | None) -> Fit:
    """Choose the smallest ridge that predicts the folds left out about as well as the best one does."""
    total = folds[0]
    for fold in folds[1:]:
        total = total.plus(fold)
    others = [Regression(total.plus(fold, -1.0)) for fold in folds]
    if ridge is None:
        few = total.num - max(fold.num for fold in folds) <= len(total.z)
        ridge = _choose(total, folds, others, RIDGES[1:] if few else RIDGES)
    outside = [regression.coefficients(ridge) for regression in others]
    return Fit(Regression(total).coefficients(ridge), outside, ridge)


def _choose(total: Sums, folds: list[Sums], others: list[Regression], ridges: tuple[float, ...]) -> float:
    variance = total.about(*total.means)[2]
    unit = np.where(variance > 0, variance, 1.0)
    squares = [other.errors(fold, ridges) for other, fold in zip(others, folds, strict=True)]
    scores = np.mean(np.mean(squares, axis=0) / unit, axis=1)
    good = scores <= _AS_GOOD * scores.min() + _ROUNDING
    return ridges[int(np.argmax(good))]
