"""Base measures: multinomial rows with a Dirichlet prior, normal rows with a normal-gamma prior."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from scirocco import _checks
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco_latent.dp.rows import Array, CountRows, RealRows, RowsT, Table, check_sums, count_rows, real_rows

_TINY = 1e-300  # avoids log 0
_MUCH = 1e8  # of the Dirichlet prior: with more, all clusters are uniform


class BaseMeasure(Protocol[RowsT]):
    """A base measure with all its parameters set, for one type of rows: the interface of samplers and predictions."""

    @property
    def kind(self) -> str:
        """Name of the type of rows."""

    @property
    def dtype(self) -> type[np.floating]:
        """The dtype of the draws."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters."""

    @property
    def width(self) -> int:
        """Number of columns."""

    def rows(self, X: Table) -> RowsT:
        """Convert and check a table."""

    def informative(self, rows: RowsT) -> Array:
        """Indices of the rows that carry information about their cluster."""

    def clusters(self, capacity: int) -> tuple[Array, ...]:
        """Arrays of sufficient statistics for `capacity` slots."""

    def kernel_data(self, rows: RowsT) -> tuple[Array, ...]:
        """Arrays for compiled code."""

    def joined(self, data: tuple[Array, ...], more: tuple[Array, ...]) -> tuple[Array, ...]:
        """Append the rows of `more` to `data`."""

    def draw(self, rng: np.random.Generator, clusters: tuple[Array, ...], slots: Array) -> dict[str, Array]:
        """Draw parameters given the rows of each slot."""

    def parameter_arrays(self, capacity: int) -> tuple[Array, ...]:
        """Arrays for compiled code."""

    def named(self, parameters: tuple[Array, ...], slots: Array) -> dict[str, Array]:
        """Parameters of some components by name, one row each."""

    def log_density(self, rows: RowsT, parameters: dict[str, Array]) -> Array:
        """log f(x | θ_k), (rows, clusters)."""

    def expected_log_density(self, rows: RowsT, of: dict[str, Array], under: dict[str, Array]) -> Array:
        """E log f of a row of cluster c under cluster r; (c, r)."""

    def log_marginal(self, rows: RowsT) -> Array:
        """log ∫ f(x | θ) dG₀(θ), one number per row."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters of a cluster."""

    def as_json(self) -> dict[str, Any]:
        """JSON representation for records."""


@dataclasses.dataclass(frozen=True)
class Multinomial:
    r"""Base measure of count rows: :math:`x | θ ~ Multinomial(L, θ)`, :math:`θ ~ Dir(a, …, a)`.

    The density of a row is the probability of its events in a given order: it leaves out the multinomial coefficient,
    which is the same for all clusters.

    Parameters
    ----------
    concentration
        a > 0.
    """

    concentration: float = 0.5

    def resolve(self, X: Table) -> MultinomialFamily:
        """The family for this table of counts."""
        _checks.positive(self.concentration, "concentration")
        if self.concentration > _MUCH:
            raise InvalidValueError(
                f"Multinomial's `concentration` must be at most {_MUCH:g}, got {self.concentration:g}: with larger "
                "values all clusters are uniform."
            )
        rows = count_rows(X)
        return MultinomialFamily(float(self.concentration), rows.width)


@dataclasses.dataclass(frozen=True)
class MultinomialFamily:
    """A multinomial base measure with a known number of categories."""

    prior: float
    width: int

    kind = "multinomial"
    dtype = np.float32
    parameters = ("components",)

    def rows(self, X: Table) -> CountRows:
        """Convert and check a table."""
        return count_rows(X, self.width)

    def informative(self, rows: CountRows) -> Array:
        """Indices of the nonempty rows: an empty row carries no information and is integrated out by leaving it out."""
        return np.flatnonzero(np.diff(rows.indptr))

    def clusters(self, capacity: int) -> tuple[Array, ...]:
        """Arrays of `capacity` free slots: sizes, totals, table, [a]."""
        return (
            np.zeros(capacity, np.int64),
            np.zeros(capacity, np.int64),
            np.zeros((self.width, capacity), np.int32),
            np.array([self.prior]),
        )

    def kernel_data(self, rows: CountRows) -> tuple[Array, ...]:
        """Arrays for compiled code."""
        return rows.data

    def joined(self, data: tuple[Array, ...], more: tuple[Array, ...]) -> tuple[Array, ...]:
        """Append the rows of `more` to `data`."""
        indptr = np.concatenate([data[0], more[0][1:] + data[0][-1]])
        indices, counts = np.concatenate([data[1], more[1]]), np.concatenate([data[2], more[2]])
        check_sums(indices, counts)
        return indptr, indices, counts

    def draw(self, rng: np.random.Generator, clusters: tuple[Array, ...], slots: Array) -> dict[str, Array]:
        """θ_k | rows of k ~ Dir(a + S_k), one row for each slot."""
        gammas = rng.standard_gamma(self.prior + clusters[2][:, slots].T)
        return {"components": _normalised(gammas)}

    def parameter_arrays(self, capacity: int) -> tuple[Array, ...]:
        """Arrays for compiled code: gamma variables and probabilities."""
        return np.ones((self.width, capacity)), np.zeros((self.width, capacity))

    def named(self, parameters: tuple[Array, ...], slots: Array) -> dict[str, Array]:
        """Parameters of some components by name, one row each."""
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
        """log f of a typical row of cluster c, with the mean length of these rows, under cluster r; (c, r)."""
        logs = np.log(np.maximum(np.asarray(under["components"], np.float64), _TINY))
        out: Array = float(rows.lengths().mean()) * (np.asarray(of["components"], np.float64) @ logs.T)
        return out

    def log_marginal(self, rows: CountRows) -> Array:
        """log ∫ f(x | θ) dG₀(θ), one number per row."""
        from scipy.special import gammaln

        terms = gammaln(self.prior + rows.counts) - math.lgamma(self.prior)
        sums = np.bincount(np.repeat(np.arange(rows.num_rows), np.diff(rows.indptr)), terms, rows.num_rows)
        whole = self.prior * self.width
        out: Array = sums + math.lgamma(whole) - gammaln(whole + rows.lengths())
        return out

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters of a cluster."""
        return {"components": (self.width,)}

    def as_json(self) -> dict[str, Any]:
        """JSON representation for records."""
        return {"kind": self.kind, "prior": self.prior, "width": self.width}


def _normalised(gammas: Array) -> Array:
    """Normalise rows to sum to one; a row that underflowed completely becomes uniform."""
    totals = gammas.sum(axis=1, keepdims=True)
    flat = np.full_like(gammas, 1.0 / gammas.shape[1])
    return np.divide(gammas, totals, out=flat, where=totals > 0)


# -- clusters of real rows: independent normal coordinates, normal-gamma prior


@dataclasses.dataclass(frozen=True)
class Gaussian:
    r"""Base measure of real rows: :math:`x ~ N(μ, 1/τ)`, :math:`μ ~ N(m, 1/(κτ))`, :math:`τ ~ Gamma(a, b)`.

    Parameters
    ----------
    mean
        m: a number, or one per column; by default the column means.
    strength
        κ: the prior mean has the weight of this many rows.
    shape
        a: the shape of the prior of the precisions.
    rate
        b: a number, or one per column; by default a tenth of the column variances times a, so that a cluster is
        expected to be about a third as wide as the data.
    """

    mean: Any = None
    strength: float = 0.02
    shape: float = 2.0
    rate: Any = None

    def resolve(self, X: Table) -> GaussianFamily:
        """The family for this table."""
        _checks.positive(self.strength, "strength")
        _checks.positive(self.shape, "shape")
        values = real_rows(X).values
        width = values.shape[1]
        mean = values.mean(axis=0) if self.mean is None else _columns(self.mean, "mean", width)
        if self.rate is None:
            variance, width_of = values.var(axis=0), np.ptp(values, axis=0)
            if np.any((width_of == 0) | (variance <= np.finfo(np.float64).tiny)):
                raise InvalidValueError(
                    f"column {int(np.argmin(width_of))} is constant (in {len(values):,} rows) and has no "
                    "information about clusters: remove it, or set Gaussian(rate=...)."
                )
            rate = 0.1 * float(self.shape) * variance
        else:
            rate = _columns(self.rate, "rate", width)
            if np.any(rate <= 0):
                raise InvalidValueError(f"`rate` must be > 0, got {self.rate}.")
        return GaussianFamily(tuple(mean.tolist()), float(self.strength), float(self.shape), tuple(rate.tolist()))


def _columns(given: ArrayLike, name: str, width: int) -> Array:
    try:
        array = np.asarray(given, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(f"`{name}` must be a number or {width} numbers, got {given!r}.") from error
    if array.shape not in ((), (width,)) or not np.all(np.isfinite(array)):
        raise InvalidValueError(f"`{name}` must be a finite number, or one per column ({width}), got {given!r}.")
    return np.broadcast_to(array, (width,)).copy()


@dataclasses.dataclass(frozen=True)
class GaussianFamily:
    """A normal-gamma base measure with all its parameters set."""

    mean: tuple[float, ...]
    strength: float
    shape: float
    rate: tuple[float, ...]

    kind = "gaussian"
    dtype = np.float64
    parameters = ("means", "precisions")

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.mean)

    def rows(self, X: Table) -> RealRows:
        """Convert and check a table."""
        return real_rows(X, self.width)

    def informative(self, rows: RealRows) -> Array:
        """Indices of all rows."""
        return np.arange(rows.num_rows)

    def kernel_data(self, rows: RealRows) -> tuple[Array, ...]:
        """Arrays for compiled code: rows centred at the prior mean."""
        return (rows.values - np.array(self.mean),)

    def joined(self, data: tuple[Array, ...], more: tuple[Array, ...]) -> tuple[Array, ...]:
        """Append the rows of `more` to `data`."""
        return (np.concatenate([data[0], more[0]]),)

    def clusters(self, capacity: int) -> tuple[Array, ...]:
        """Arrays of `capacity` slots, to be initialised by `clear_all`."""
        matrices = [np.zeros((self.width, capacity)) for _ in range(4)]
        return (
            np.zeros(capacity, np.int64),
            *matrices,
            np.zeros((2, capacity)),
            np.array([self.strength, self.shape]),
            np.array(self.rate),
        )

    def posterior(self, clusters: tuple[Array, ...], slots: Array) -> tuple[Array, Array, Array, Array]:
        """κ', μ', a', b' of each slot; the means are those of centred rows."""
        sizes, sums, squares = (part[..., slots] for part in clusters[:3])
        kappa = self.strength + sizes
        mean = sums / kappa
        rate = np.array(self.rate)[:, None] + np.maximum(0.0, 0.5 * (squares - kappa * mean**2))
        return kappa, mean, self.shape + 0.5 * sizes, rate

    def draw(self, rng: np.random.Generator, clusters: tuple[Array, ...], slots: Array) -> dict[str, Array]:
        """τ ~ Gamma(a', b'), μ ~ N(μ', 1/(κ'τ)), one row for each slot."""
        kappa, mean, shape, rate = self.posterior(clusters, slots)
        precisions = rng.standard_gamma(np.broadcast_to(shape, rate.shape)) / rate
        means = mean + rng.standard_normal(rate.shape) / np.sqrt(kappa * precisions)
        return {"means": means.T + np.array(self.mean), "precisions": precisions.T}

    def parameter_arrays(self, capacity: int) -> tuple[Array, ...]:
        """Arrays for compiled code: means of centred rows, precisions, constants."""
        shape = (self.width, capacity)
        return np.zeros(shape), np.ones(shape), np.zeros(capacity)

    def named(self, parameters: tuple[Array, ...], slots: Array) -> dict[str, Array]:
        """Parameters of some components by name, one row each."""
        return {
            "means": parameters[0][:, slots].T + np.array(self.mean),
            "precisions": parameters[1][:, slots].T.copy(),
        }

    def log_density(self, rows: RealRows, parameters: dict[str, Array]) -> Array:
        """log f(x | μ_k, τ_k), (rows, clusters)."""
        means, precisions = (np.asarray(parameters[name], np.float64) for name in self.parameters)
        out = np.empty((rows.num_rows, len(means)))
        for k, (mean, precision) in enumerate(zip(means, precisions, strict=True)):
            constant = 0.5 * float(np.sum(np.log(precision / (2.0 * math.pi))))
            out[:, k] = constant - 0.5 * ((rows.values - mean) ** 2 @ precision)
        return out

    def expected_log_density(self, rows: RealRows, of: dict[str, Array], under: dict[str, Array]) -> Array:
        """E log f of a row of cluster c under cluster r; (c, r)."""
        (means, precisions), (others, theirs) = (
            [np.asarray(part[name], np.float64) for name in self.parameters] for part in (of, under)
        )
        spread = (means**2 + 1.0 / precisions) @ theirs.T - 2.0 * means @ (others * theirs).T
        constant = np.sum(np.log(theirs) - theirs * others**2, axis=1)
        out: Array = 0.5 * (constant - spread)
        return out

    def log_marginal(self, rows: RealRows) -> Array:
        """log ∫ f(x | μ, τ) dG₀(μ, τ), one number per row: a product of Student densities."""
        scale = self.strength / (2.0 * np.array(self.rate) * (self.strength + 1.0))
        each = math.lgamma(self.shape + 0.5) - math.lgamma(self.shape) - 0.5 * math.log(math.pi)
        away = np.log1p(scale * (rows.values - np.array(self.mean)) ** 2)
        out: Array = self.width * each + 0.5 * np.sum(np.log(scale)) - (self.shape + 0.5) * away.sum(axis=1)
        return out

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters of a cluster."""
        return {"means": (self.width,), "precisions": (self.width,)}

    def as_json(self) -> dict[str, Any]:
        """JSON representation for records."""
        out = {"kind": self.kind, **dataclasses.asdict(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in out.items()}
