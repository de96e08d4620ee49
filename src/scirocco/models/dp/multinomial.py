"""Clusters of count rows: x ~ Multinomial(L, θ), θ ~ Dir(a)."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from scirocco import _checks
from scirocco.errors import InvalidValueError
from scirocco.models.dp.rows import Array, CountRows, check_sums, count_rows

_TINY = 1e-300
_MUCH = 1e8


@dataclasses.dataclass(frozen=True)
class Multinomial:
    r"""Base measure of count rows: :math:`x | θ ~ Multinomial(L, θ)`, :math:`θ ~ Dir(a, …, a)`.

    Densities of rows leave out the multinomial coefficient, which no cluster changes: that of a row is the probability
    of its events in a given order.

    Parameters
    ----------
    concentration
        a > 0.
    """

    concentration: float = 0.5

    def resolve(self, X: Any) -> MultinomialFamily:
        """For this table of counts."""
        _checks.positive(self.concentration, "concentration")
        if self.concentration > _MUCH:
            raise InvalidValueError(
                f"Multinomial's `concentration` must be at most {_MUCH:g}, got {self.concentration:g}: beyond it all "
                "clusters are flat."
            )
        rows = count_rows(X)
        return MultinomialFamily(float(self.concentration), rows.width)


@dataclasses.dataclass(frozen=True)
class MultinomialFamily:
    """A base measure of known width."""

    prior: float
    width: int

    kind = "multinomial"
    dtype = np.float32
    parameters = ("components",)

    def rows(self, X: Any) -> CountRows:
        """What a user handed over."""
        return count_rows(X, self.width)

    def informative(self, rows: CountRows) -> Array:
        """Rows that say something of their cluster: an empty one does not, and is integrated out by leaving it out."""
        return np.flatnonzero(np.diff(rows.indptr))

    def clusters(self, capacity: int) -> tuple[Array, ...]:
        """Free slots: sizes, totals, table, [a]."""
        return (
            np.zeros(capacity, np.int64),
            np.zeros(capacity, np.int64),
            np.zeros((self.width, capacity), np.int32),
            np.array([self.prior]),
        )

    def kernel_data(self, rows: CountRows) -> tuple[Array, ...]:
        """For compiled code."""
        return rows.data

    def joined(self, data: tuple[Array, ...], more: tuple[Array, ...]) -> tuple[Array, ...]:
        """Rows after rows."""
        indptr = np.concatenate([data[0], more[0][1:] + data[0][-1]])
        indices, counts = np.concatenate([data[1], more[1]]), np.concatenate([data[2], more[2]])
        check_sums(indices, counts)
        return indptr, indices, counts

    def draw(self, rng: np.random.Generator, clusters: tuple[Array, ...], slots: Array) -> dict[str, Array]:
        """θ_k | rows of k ~ Dir(a + S_k), one row for each slot."""
        gammas = rng.standard_gamma(self.prior + clusters[2][:, slots].T)
        return {"components": _normalised(gammas)}

    def parameter_arrays(self, capacity: int) -> tuple[Array, ...]:
        """For compiled code: gamma numbers, and probabilities."""
        return np.ones((self.width, capacity)), np.zeros((self.width, capacity))

    def named(self, parameters: tuple[Array, ...], slots: Array) -> dict[str, Array]:
        """Of some components, one row each."""
        return {"components": _normalised(parameters[0][:, slots].T)}

    def log_density(self, rows: CountRows, parameters: dict[str, Array]) -> Array:
        """log f(x | θ_k), (rows, clusters)."""
        from scipy import sparse

        matrix = sparse.csr_array(
            (rows.counts.astype(np.float64), rows.indices, rows.indptr), (rows.num_rows, rows.width)
        )
        logs = np.log(np.maximum(np.asarray(parameters["components"], np.float64), _TINY))
        out: Array = np.asarray(matrix @ np.ascontiguousarray(logs.T))
        return out

    def expected_log_density(self, rows: CountRows, of: dict[str, Array], under: dict[str, Array]) -> Array:
        """log f of a typical row of cluster c, as long as these rows are, under cluster r; (c, r)."""
        logs = np.log(np.maximum(np.asarray(under["components"], np.float64), _TINY))
        out: Array = float(rows.lengths().mean()) * (np.asarray(of["components"], np.float64) @ logs.T)
        return out

    def log_marginal(self, rows: CountRows) -> Array:
        """log ∫ f(x | θ) dG₀(θ), one number a row."""
        from scipy.special import gammaln

        terms = gammaln(self.prior + rows.counts) - math.lgamma(self.prior)
        sums = np.bincount(np.repeat(np.arange(rows.num_rows), np.diff(rows.indptr)), terms, rows.num_rows)
        whole = self.prior * self.width
        out: Array = sums + math.lgamma(whole) - gammaln(whole + rows.lengths())
        return out

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the parameters of a cluster."""
        return {"components": (self.width,)}

    def as_json(self) -> dict[str, Any]:
        """For records."""
        return {"kind": self.kind, "prior": self.prior, "width": self.width}


def _normalised(gammas: Array) -> Array:
    """Rows that sum to one; a row that underflowed altogether becomes flat."""
    totals = gammas.sum(axis=1, keepdims=True)
    flat = np.full_like(gammas, 1.0 / gammas.shape[1])
    return np.divide(gammas, totals, out=flat, where=totals > 0)
