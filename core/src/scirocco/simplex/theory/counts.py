"""The distribution of a minibatch estimate of one component: the values of â and their probabilities.

    â = α + (N/n) Σ_{i in S} z_i,   a = E[â] = α + Σ_i z_i

for indicators z_i of a category, of which `count` among N rows are one, and a batch S of n rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from scirocco._checks import positive, positive_int
from scirocco.errors import InvalidTypeError, InvalidValueError


@dataclass(frozen=True, eq=False)
class Counts:
    """A finite distribution of the estimate â of one component.

    Create it with `hypergeometric`, `binomial`, `exact` or `from_values`.

    Attributes
    ----------
    values
        The values of â, all > 0; a shape of the gamma distribution, so without a unit.
    probabilities
        Their probabilities, which sum to one.

    Examples
    --------
    >>> from scirocco.simplex.theory import Counts
    >>> counts = Counts.hypergeometric(concentration=0.1, count=150, num_rows=1000, batch_size=100)
    >>> round(counts.mean, 6), round(counts.variance, 3)
    (150.1, 1148.649)
    """

    values: np.ndarray
    probabilities: np.ndarray

    @classmethod
    def hypergeometric(cls, concentration: float, count: int, num_rows: int, batch_size: int) -> Counts:
        """Batches drawn without replacement: Σ z ~ Hypergeometric(num_rows, count, batch_size).

        Parameters
        ----------
        concentration
            α, the prior's parameter of this component, > 0.
        count
            Number of rows in this category.
        num_rows
            N, rows of the data.
        batch_size
            n, rows of a batch, at most N.

        Examples
        --------
        >>> Counts.hypergeometric(0.1, count=1, num_rows=2, batch_size=1).values
        array([0.1, 2.1])
        """
        count, num_rows, batch_size = _whole(count, num_rows, batch_size, replace=False)
        lowest, highest = max(0, batch_size - (num_rows - count)), min(batch_size, count)
        k = np.arange(lowest, highest)
        ratios = np.log((count - k) * (batch_size - k)) - np.log((k + 1.0) * (num_rows - count - batch_size + k + 1))
        return cls._scaled(concentration, num_rows / batch_size, np.arange(lowest, highest + 1), ratios)

    @classmethod
    def binomial(cls, concentration: float, count: int, num_rows: int, batch_size: int) -> Counts:
        """Batches drawn with replacement: Σ z ~ Binomial(batch_size, count/num_rows).

        Parameters as for `hypergeometric`; the batch may be larger than the data.

        Examples
        --------
        >>> Counts.binomial(0.1, count=1, num_rows=2, batch_size=2).probabilities
        array([0.25, 0.5 , 0.25])
        """
        count, num_rows, batch_size = _whole(count, num_rows, batch_size, replace=True)
        if count in (0, num_rows):
            return cls.exact(concentration, count)
        k = np.arange(batch_size)
        ratios = np.log((batch_size - k) / (k + 1.0)) + np.log(count) - np.log(num_rows - count)
        return cls._scaled(concentration, num_rows / batch_size, np.arange(batch_size + 1), ratios)

    @classmethod
    def exact(cls, concentration: float, count: float) -> Counts:
        """The full batch: â = a = α + count, always.

        Examples
        --------
        >>> Counts.exact(0.1, 150).variance
        0.0
        """
        positive(concentration, "concentration")
        positive(count, "count", allow_zero=True)
        return cls(np.array([float(concentration) + float(count)]), np.ones(1))

    @classmethod
    def from_values(cls, values: ArrayLike, probabilities: ArrayLike) -> Counts:
        """Any finite distribution.

        Parameters
        ----------
        values
            The values of â, all finite and > 0.
        probabilities
            The same number, >= 0, with the sum 1.

        Examples
        --------
        >>> Counts.from_values([1.0, 3.0], [0.5, 0.5]).mean
        2.0
        """
        points, weights = _vector(values, "values"), _vector(probabilities, "probabilities")
        if points.shape != weights.shape:
            raise InvalidValueError(
                f"`values` and `probabilities` must have the same length, got {points.size} and {weights.size}."
            )
        if not np.all(np.isfinite(points) & (points > 0)):
            raise InvalidValueError("`values` must be finite and > 0: each is the shape of a gamma distribution.")
        if not np.all(weights >= 0) or abs(weights.sum() - 1) > 1e-6:
            raise InvalidValueError(
                f"`probabilities` must be >= 0 and sum to 1, the sum is {weights.sum():g}. Divide them by their sum."
            )
        return cls(points, weights / weights.sum())

    @classmethod
    def _scaled(cls, concentration: float, scale: float, counts: np.ndarray, ratios: np.ndarray) -> Counts:
        """From log p(k+1) - log p(k): sums of ratios, because logarithms of large factorials lose digits."""
        positive(concentration, "concentration")
        logs = np.concatenate([[0.0], np.cumsum(ratios)])
        weights = np.exp(logs - logs.max())
        kept = weights > 0
        return cls(float(concentration) + scale * counts[kept], weights[kept] / weights.sum())

    @property
    def mean(self) -> float:
        """a = E[â]."""
        return self.expect(lambda values: values)

    @property
    def variance(self) -> float:
        """Var(â)."""
        centre = self.mean
        return self.expect(lambda values: (values - centre) ** 2)

    def expect(self, function: Callable[[np.ndarray], Any]) -> float:
        """E[function(â)]; the function gets the vector of all values.

        Examples
        --------
        >>> Counts.from_values([1.0, 2.0], [0.5, 0.5]).expect(lambda values: 1 / values)
        0.75
        """
        return float(np.sum(self.probabilities * function(self.values)))

    def log_mgf(self, s: ArrayLike) -> Any:
        """log E[exp(s â)] for each s, real or complex, without overflow."""
        exponents = np.multiply.outer(np.asarray(s), self.values)
        largest = exponents.real.max(axis=-1, keepdims=True)
        return np.log(np.exp(exponents - largest) @ self.probabilities) + largest[..., 0]

    def mgf(self, s: ArrayLike) -> Any:
        """The moment generating function E[exp(s â)], of a number or an array s, real or complex.

        Examples
        --------
        >>> float(Counts.from_values([1.0, 2.0], [0.5, 0.5]).mgf(0.0))
        1.0
        """
        return np.exp(self.log_mgf(s))


def variance_of_estimate(count: ArrayLike, num_rows: int, batch_size: int, replace: bool = False) -> Any:
    """Var(â) = (N²/n) p (1-p) (N-n)/(N-1) with p = count/N; the last factor only without replacement.

    Parameters
    ----------
    count
        Number of rows in the category; an array gives an array.
    num_rows
        N, rows of the data.
    batch_size
        n, rows of a batch.
    replace
        Whether a row may be drawn more than once for a batch.

    Examples
    --------
    >>> from scirocco.simplex.theory import variance_of_estimate
    >>> round(variance_of_estimate(150, num_rows=1000, batch_size=100), 3)
    1148.649
    """
    _, num_rows, batch_size = _whole(0, num_rows, batch_size, replace=replace)
    share = np.asarray(count, np.float64) / num_rows
    if not np.all((share >= 0) & (share <= 1)):
        raise InvalidValueError(f"`count` must be between 0 and the number of rows, {num_rows}.")
    finite = 1.0 if replace else (num_rows - batch_size) / max(num_rows - 1, 1)
    found = num_rows**2 / batch_size * share * (1 - share) * finite
    return found if np.ndim(count) else float(found)


def _whole(count: int, num_rows: int, batch_size: int, *, replace: bool) -> tuple[int, int, int]:
    count = positive_int(count, "count", minimum=0)
    num_rows = positive_int(num_rows, "num_rows")
    batch_size = positive_int(batch_size, "batch_size")
    if count > num_rows:
        raise InvalidValueError(f"`count` must be at most `num_rows`, got {count} of {num_rows} rows.")
    if batch_size > num_rows and not replace:
        raise InvalidValueError(
            f"`batch_size` must be at most `num_rows`, got {batch_size} of {num_rows} rows. "
            "Larger batches are possible with replacement."
        )
    return count, num_rows, batch_size


def _vector(values: ArrayLike, name: str) -> np.ndarray:
    try:
        found = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(f"`{name}` must be a sequence of numbers, got {values!r}.") from error
    if found.ndim != 1 or not found.size:
        raise InvalidValueError(f"`{name}` must be a sequence of numbers, got shape {found.shape}.")
    return found
