"""Clusters of real rows: independent normal coordinates, normal-gamma prior."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from scirocco import _checks
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.models.dp.rows import Array, RealRows, real_rows


@dataclasses.dataclass(frozen=True)
class Gaussian:
    r"""Base measure of real rows: :math:`x ~ N(μ, 1/τ)`, :math:`μ ~ N(m, 1/(κτ))`, :math:`τ ~ Gamma(a, b)`.

    Parameters
    ----------
    mean
        m, a number or one for each column; by default the column means.
    strength
        κ: the prior mean counts as so many rows.
    shape
        a, of the precisions.
    rate
        b, a number or one for each column; by default a tenth of the column variances times a, so that a cluster is
        expected to be about a third as wide as the data.
    """

    mean: Any = None
    strength: float = 0.02
    shape: float = 2.0
    rate: Any = None

    def resolve(self, X: Any) -> GaussianFamily:
        """For this table."""
        _checks.positive(self.strength, "strength")
        _checks.positive(self.shape, "shape")
        values = real_rows(X).values
        width = values.shape[1]
        mean = values.mean(axis=0) if self.mean is None else _columns(self.mean, "mean", width)
        if self.rate is None:
            variance, width_of = values.var(axis=0), np.ptp(values, axis=0)
            if np.any((width_of == 0) | (variance <= np.finfo(np.float64).tiny)):
                raise InvalidValueError(
                    f"column {int(np.argmin(width_of))} holds one value only (in {len(values):,} rows), which says "
                    "nothing of clusters: leave it out, or give Gaussian(rate=...)."
                )
            rate = 0.1 * float(self.shape) * variance
        else:
            rate = _columns(self.rate, "rate", width)
            if np.any(rate <= 0):
                raise InvalidValueError(f"`rate` must be > 0, got {self.rate}.")
        return GaussianFamily(
            tuple(mean.tolist()), float(self.strength), float(self.shape), tuple(rate.tolist())
        )


def _columns(given: Any, name: str, width: int) -> Array:
    try:
        array = np.asarray(given, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(f"`{name}` must be a number or {width} numbers, got {given!r}.") from error
    if array.shape not in ((), (width,)) or not np.all(np.isfinite(array)):
        raise InvalidValueError(
            f"`{name}` must be a finite number or one for each of the {width} columns, got {given!r}."
        )
    return np.broadcast_to(array, (width,)).copy()


@dataclasses.dataclass(frozen=True)
class GaussianFamily:
    """A base measure whose numbers are all known."""

    mean: tuple[float, ...]
    strength: float
    shape: float
    rate: tuple[float, ...]

    kind = "gaussian"
    dtype = np.float64
    parameters = ("means", "precisions")

    @property
    def width(self) -> int:
        """Coordinates."""
        return len(self.mean)

    def rows(self, X: Any) -> RealRows:
        """What a user handed over."""
        return real_rows(X, self.width)

    def informative(self, rows: RealRows) -> Array:
        """All rows."""
        return np.arange(rows.num_rows)

    def kernel_data(self, rows: RealRows) -> tuple[Array, ...]:
        """For compiled code: rows centred at the prior mean."""
        return (rows.values - np.array(self.mean),)

    def joined(self, data: tuple[Array, ...], more: tuple[Array, ...]) -> tuple[Array, ...]:
        """Rows after rows."""
        return (np.concatenate([data[0], more[0]]),)

    def clusters(self, capacity: int) -> tuple[Array, ...]:
        """Slots; `clear_all` makes them free."""
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
        """For compiled code: means of centred rows, precisions, constants."""
        shape = (self.width, capacity)
        return np.zeros(shape), np.ones(shape), np.zeros(capacity)

    def named(self, parameters: tuple[Array, ...], slots: Array) -> dict[str, Array]:
        """Of some components, one row each."""
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
        """log ∫ f(x | μ, τ) dG₀(μ, τ), one number a row: a product of Student densities."""
        scale = self.strength / (2.0 * np.array(self.rate) * (self.strength + 1.0))
        each = math.lgamma(self.shape + 0.5) - math.lgamma(self.shape) - 0.5 * math.log(math.pi)
        away = np.log1p(scale * (rows.values - np.array(self.mean)) ** 2)
        out: Array = self.width * each + 0.5 * np.sum(np.log(scale)) - (self.shape + 0.5) * away.sum(axis=1)
        return out

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the parameters of a cluster."""
        return {"means": (self.width,), "precisions": (self.width,)}

    def as_json(self) -> dict[str, Any]:
        """For records."""
        out = {"kind": self.kind, **dataclasses.asdict(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in out.items()}
