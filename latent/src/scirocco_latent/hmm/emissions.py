"""Observations given the state: what a distribution must know; categories, normal rows and counts."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from scirocco.errors import InvalidValueError
from scirocco_latent.hmm.series import Array, SeriesData, counts, labels, real, some

_TABLE, _NORMAL, _POISSON, DENSE = 0, 1, 2, 3  # as in the kernels
_LARGEST_TABLE = 4096  # counts below are looked up
Params = dict[str, Array]


class Encoded(NamedTuple):
    """Observations for compiled code."""

    codes: Array
    """(N,), or empty; -1: missing."""
    rows: Array
    """(N, d), or empty; NaN: missing."""

    @property
    def num_rows(self) -> int:
        """Number of observations, including missing ones."""
        return max(len(self.codes), len(self.rows))

    @property
    def is_missing(self) -> Array:
        """Whether an observation is missing."""
        return self.codes < 0 if len(self.codes) else np.isnan(self.rows[:, 0])

    def take(self, rows: Array) -> Encoded:
        """Some observations."""
        return Encoded(
            self.codes[rows] if len(self.codes) else self.codes, self.rows[rows] if len(self.rows) else self.rows
        )


def _codes(values: Array) -> Encoded:
    return Encoded(np.ascontiguousarray(values, np.int32), np.empty((0, 1)))


def rows_of(values: Array) -> Encoded:
    """Observations as numbers."""
    return Encoded(np.empty(0, np.int32), np.ascontiguousarray(values, np.float64))


def _by_table(logs: Array, data: Encoded) -> tuple[Any, ...]:
    """Arguments of the kernels from the log density of each code (V, K)."""
    high = logs.max(axis=1)
    return (_TABLE, data.codes, data.rows, np.ascontiguousarray(np.exp(logs - high[:, None])), high, np.empty((1, 1)))


class Emission(Protocol):
    """What a hidden Markov model needs of the distribution of an observation given its state."""

    kind: ClassVar[str]

    @property
    def width(self) -> int:
        """Number of columns, or of categories."""

    def shapes(self, num: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters in the user's units."""

    def stats_width(self, data: Encoded) -> int:
        """Numbers per state that the kernels sum."""

    def encode(self, given: SeriesData) -> Encoded:
        """Check observations, and convert them to the units of the kernels."""

    def kernel(self, params: Params, data: Encoded) -> tuple[Any, ...]:
        """Arguments of the kernels."""

    def draw(self, rng: np.random.Generator, params: Params, data: Encoded, z: Array, stats: Array) -> Params:
        """Draw parameters given the states and the sums of each state; conjugate priors need the sums alone."""

    def settled(self, params: Params, data: Encoded, z: Array) -> Params:
        """Parameters of a short chain nearer to the mode given the states; exact draws need no help."""

    def log_density(self, params: Params, data: Encoded, z: Array, stats: Array) -> float:
        """The log density of all observations given their states, up to a constant."""

    def first(self, rng: np.random.Generator, data: Encoded, num: int) -> Params:
        """Initial parameters of a short chain."""

    def inside(self, draw: Params) -> Params:
        """From the units of the user to those of the kernels."""

    def outside(self, draw: Params) -> Params:
        """From the units of the kernels to those of the user."""

    def constant(self, data: Encoded) -> Array:
        """What the kernels leave out of the log density of each observation."""

    def features(self, draws: Params) -> Array:
        """Coordinates in which states of different draws are compared, (draws, K, f)."""

    def sort_key(self, means: Params) -> Array | None:
        """Values by which states are numbered; None: by their shares."""

    def simulate(self, rng: np.random.Generator, draw: Params, states: Array) -> Array:
        """Observations in some states."""


class _Conjugate:
    """What most emissions with exact draws have in common: the units of the user are those of the kernels."""

    def settled(self, params: Params, data: Encoded, z: Array) -> Params:
        """A draw given the states needs no help."""
        return params

    def inside(self, draw: Params) -> Params:
        """From the units of the user to those of the kernels."""
        return draw

    def outside(self, draw: Params) -> Params:
        """From the units of the kernels to those of the user."""
        return draw


@dataclasses.dataclass(frozen=True)
class Categorical(_Conjugate):
    """P(x = v | state k) = θ_kv, θ_k ~ Dir(b, ..., b)."""

    categories: tuple[Any, ...]
    concentration: float

    kind: ClassVar[str] = "categorical"

    @property
    def width(self) -> int:
        """Number of categories."""
        return len(self.categories)

    def shapes(self, num: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters."""
        return {"probabilities": (num, self.width)}

    def stats_width(self, data: Encoded) -> int:
        """Numbers per state that the kernels sum."""
        return self.width

    def encode(self, given: SeriesData) -> Encoded:
        """Convert labels to the numbers of their categories."""
        names, absent = labels(given.values)
        known = {category: number for number, category in enumerate(self.categories)}
        distinct, inverse = np.unique(names[~absent], return_inverse=True)
        numbers = [known.get(label, -1) for label in distinct.tolist()]
        if -1 in numbers:
            unknown = distinct[numbers.index(-1)]
            raise InvalidValueError(
                f"the category {unknown.item()!r} does not occur in the fit, whose categories are "
                f"{some(self.categories)}. Pass all of them as `categories` to HMM(...)."
            )
        codes = np.full(len(names), -1, np.int32)
        codes[~absent] = np.array(numbers, np.int32)[inverse.reshape(-1)] if numbers else -1
        return _codes(codes)

    def kernel(self, params: Params, data: Encoded) -> tuple[Any, ...]:
        """Arguments of the kernels."""
        return _by_table(np.log(np.maximum(params["probabilities"].T, 1e-300)), data)

    def draw(self, rng: np.random.Generator, params: Params, data: Encoded, z: Array, stats: Array) -> Params:
        """Draw parameters given the sums of each state."""
        return {"probabilities": dirichlet(rng, self.concentration + stats)}

    def log_density(self, params: Params, data: Encoded, z: Array, stats: Array) -> float:
        """The log density of all observations given their states, up to a constant."""
        return float((stats * np.log(np.maximum(params["probabilities"], 1e-300))).sum())

    def first(self, rng: np.random.Generator, data: Encoded, num: int) -> Params:
        """Initial parameters: frequencies in distant stretches of the series, and everywhere."""
        seen = np.eye(self.width)[data.codes[data.codes >= 0]]
        share = distant(rng, np.sqrt(stretches(rng, seen, 8)), num) ** 2
        share = 0.5 * share / share.sum(axis=1, keepdims=True) + 0.5 * seen.mean(axis=0)
        return {"probabilities": dirichlet(rng, 0.5 + 4.0 * self.width * share)}

    def constant(self, data: Encoded) -> Array:
        """What the kernels leave out of the log density of each observation."""
        return np.zeros(data.num_rows)

    def features(self, draws: Params) -> Array:
        """Coordinates in which states of different draws are compared, (draws, K, f)."""
        return np.sqrt(draws["probabilities"])

    def sort_key(self, means: Params) -> Array | None:
        """Values by which states are numbered; None: by their shares."""
        return None

    def simulate(self, rng: np.random.Generator, draw: Params, states: Array) -> Array:
        """Observations in some states: numbers of categories."""
        edges = np.cumsum(draw["probabilities"], axis=1)[states]
        found: Array = (rng.random((*states.shape, 1)) * edges[..., -1:] > edges).sum(axis=-1)
        return np.minimum(found, self.width - 1)


@dataclasses.dataclass(frozen=True)
class NormalEmission(_Conjugate):
    """x | state k ~ N(μ_k, Σ_k), Σ_k ~ inverse Wishart(ν, Ψ), μ_k | Σ_k ~ N(m, Σ_k/κ), x in units of `scale`."""

    centre: tuple[float, ...]
    scale: tuple[float, ...]
    mean: tuple[float, ...]
    strength: float
    degrees: float
    spread: tuple[float, ...]
    """Diagonal of Ψ."""

    kind: ClassVar[str] = "gaussian"

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.centre)

    def shapes(self, num: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters."""
        return {"means": (num, self.width), "covariances": (num, self.width, self.width)}

    def stats_width(self, data: Encoded) -> int:
        """Numbers per state that the kernels sum."""
        return 1 + self.width + self.width**2

    def encode(self, given: SeriesData) -> Encoded:
        """Check real numbers, and convert them to the units of the kernels."""
        return rows_of((real(given, self.width) - self.centre) / self.scale)

    def kernel(self, params: Params, data: Encoded) -> tuple[Any, ...]:
        """Arguments of the kernels."""
        roots = np.linalg.cholesky(np.linalg.inv(params["covariances"]))
        logs = np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1) - 0.5 * self.width * math.log(2 * math.pi)
        num = len(logs)
        values = np.concatenate([logs[:, None], params["means"], roots.reshape(num, -1)], axis=1)
        return _NORMAL, data.codes, data.rows, np.empty((1, 1)), np.empty(1), np.ascontiguousarray(values)

    def draw(self, rng: np.random.Generator, params: Params, data: Encoded, z: Array, stats: Array) -> Params:
        """Draw parameters given the sums of each state."""
        d, num = self.width, len(stats)
        count, total, square = self.sums(stats)
        prior, kappa = np.array(self.mean), self.strength + count
        centre = (self.strength * prior + total) / kappa[:, None]
        psi = (
            np.diag(self.spread)
            + square
            + self.strength * np.outer(prior, prior)
            - kappa[:, None, None] * centre[:, :, None] * centre[:, None, :]
        )
        root = np.linalg.cholesky(positive(psi, np.array(self.spread)))
        bartlett = np.zeros((num, d, d))
        free = self.degrees + count[:, None] - np.arange(d)
        bartlett[:, np.arange(d), np.arange(d)] = np.sqrt(2.0 * rng.standard_gamma(0.5 * free))
        if d > 1:
            below = np.tril_indices(d, -1)
            bartlett[:, below[0], below[1]] = rng.standard_normal((num, len(below[0])))
        # the precision is (root⁻ᵀ B)(root⁻ᵀ B)ᵀ, so the covariance is S Sᵀ with S = root B⁻ᵀ
        side = root @ np.linalg.inv(bartlett).transpose(0, 2, 1)
        shift = (side @ rng.standard_normal((num, d, 1)))[..., 0] / np.sqrt(kappa)[:, None]
        return {"means": centre + shift, "covariances": side @ side.transpose(0, 2, 1)}

    def log_density(self, params: Params, data: Encoded, z: Array, stats: Array) -> float:
        """The log density of all observations given their states, up to a constant."""
        count, total, square, means = *self.sums(stats), params["means"]
        cross = total[:, :, None] * means[:, None, :]
        scatter = square - cross - cross.transpose(0, 2, 1) + count[:, None, None] * means[:, :, None] * means[:, None]
        logs = np.linalg.slogdet(params["covariances"])[1]
        return float(-0.5 * (count @ logs + np.trace(np.linalg.solve(params["covariances"], scatter), 0, 1, 2).sum()))

    def sums(self, stats: Array) -> tuple[Array, Array, Array]:
        """Number, sum and sum of products of the rows of each state."""
        d = self.width
        square = stats[:, 1 + d :].reshape(-1, d, d)
        if d > 1:
            square = square + np.tril(square, -1).transpose(0, 2, 1)
        return stats[:, 0], stats[:, 1 : 1 + d], square

    def first(self, rng: np.random.Generator, data: Encoded, num: int) -> Params:
        """Initial parameters: means of distant rows, or of stretches of them."""
        rows = data.rows[~data.is_missing]
        means = distant(rng, stretches(rng, rows), num)
        cover = np.tile(np.diag(np.maximum(rows.var(axis=0), 1e-8)) / num ** (2 / self.width), (num, 1, 1))
        return {"means": means, "covariances": cover}

    def inside(self, draw: Params) -> Params:
        """From the units of the user to those of the kernels."""
        scale = np.array(self.scale)
        return {
            "means": (draw["means"] - self.centre) / scale,
            "covariances": draw["covariances"] / np.outer(scale, scale),
        }

    def outside(self, draw: Params) -> Params:
        """From the units of the kernels to those of the user."""
        scale = np.array(self.scale)
        return {
            "means": draw["means"] * scale + self.centre,
            "covariances": draw["covariances"] * np.outer(scale, scale),
        }

    def constant(self, data: Encoded) -> Array:
        """What the kernels leave out of the log density of each observation."""
        return np.where(data.is_missing, 0.0, -float(np.log(self.scale).sum()))

    def features(self, draws: Params) -> Array:
        """Coordinates in which states of different draws are compared, (draws, K, f)."""
        scale = np.array(self.scale)
        deviations = np.sqrt(np.diagonal(draws["covariances"], axis1=-2, axis2=-1)) / scale
        return np.concatenate([(draws["means"] - self.centre) / scale, deviations], axis=-1)

    def sort_key(self, means: Params) -> Array | None:
        """Values by which states are numbered."""
        key: Array = means["means"][:, 0]
        return key

    def simulate(self, rng: np.random.Generator, draw: Params, states: Array) -> Array:
        """Observations in some states."""
        roots = np.linalg.cholesky(draw["covariances"])[states]
        noise = rng.standard_normal((*states.shape, self.width, 1))
        found: Array = draw["means"][states] + (roots @ noise)[..., 0]
        return found


@dataclasses.dataclass(frozen=True)
class PoissonEmission(_Conjugate):
    """x_j | state k ~ Poisson(λ_kj), λ_kj ~ Gamma(shape, rate_j), columns independent."""

    shape: float
    rate: tuple[float, ...]

    kind: ClassVar[str] = "poisson"

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.rate)

    def shapes(self, num: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters."""
        return {"rates": (num, self.width)}

    def stats_width(self, data: Encoded) -> int:
        """Numbers per state that the kernels sum."""
        return int(data.codes.max()) + 1 if len(data.codes) else 1 + self.width

    def encode(self, given: SeriesData) -> Encoded:
        """Check counts; small ones are looked up in a table."""
        found = counts(real(given, self.width))
        if self.width == 1 and np.nanmax(found, initial=0) < _LARGEST_TABLE:
            return _codes(np.where(np.isnan(found[:, 0]), -1, found[:, 0]))
        return rows_of(found)

    def kernel(self, params: Params, data: Encoded) -> tuple[Any, ...]:
        """Arguments of the kernels."""
        rates = np.maximum(params["rates"], 1e-300)
        if len(data.codes):
            counts = np.arange(max(1, int(data.codes.max()) + 1))[:, None]
            return _by_table(counts * np.log(rates[:, 0]) - rates[:, 0], data)
        values = np.concatenate([np.log(rates), -rates], axis=1)
        return _POISSON, data.codes, data.rows, np.empty((1, 1)), np.empty(1), np.ascontiguousarray(values)

    def draw(self, rng: np.random.Generator, params: Params, data: Encoded, z: Array, stats: Array) -> Params:
        """Draw parameters given the sums of each state."""
        count, total = self.summed(stats, len(data.codes) > 0)
        rates = rng.standard_gamma(self.shape + total) / (np.array(self.rate) + count[:, None])
        return {"rates": np.maximum(rates, 1e-300)}

    def summed(self, stats: Array, coded: bool) -> tuple[Array, Array]:
        """Number and sum of the observations of each state, from what the kernels sum."""
        if not coded:
            return stats[:, 0], stats[:, 1:]
        return stats.sum(axis=1), (stats @ np.arange(stats.shape[1]))[:, None]

    def log_density(self, params: Params, data: Encoded, z: Array, stats: Array) -> float:
        """The log density of all observations given their states, up to a constant."""
        count, total = self.summed(stats, len(data.codes) > 0)
        return float((total * np.log(params["rates"]) - count[:, None] * params["rates"]).sum())

    def first(self, rng: np.random.Generator, data: Encoded, num: int) -> Params:
        """Initial parameters: means of distant counts, or of stretches of them."""
        counts = data.codes[:, None].astype(np.float64) if len(data.codes) else data.rows
        roots = distant(rng, np.sqrt(stretches(rng, counts[~data.is_missing]) + 0.25), num)
        return {"rates": roots**2 * rng.uniform(0.8, 1.25, roots.shape) + 1e-3}

    def constant(self, data: Encoded) -> Array:
        """What the kernels leave out of the log density of each observation."""
        from scipy.special import gammaln

        if len(data.codes):
            found: Array = -gammaln(np.arange(max(1, int(data.codes.max()) + 1)) + 1.0)
            return np.where(data.codes < 0, 0.0, found[data.codes])
        found = -gammaln(data.rows + 1.0).sum(axis=1)
        return np.where(data.is_missing, 0.0, found)

    def features(self, draws: Params) -> Array:
        """Coordinates in which states of different draws are compared, (draws, K, f)."""
        return np.sqrt(draws["rates"])

    def sort_key(self, means: Params) -> Array | None:
        """Values by which states are numbered."""
        key: Array = means["rates"][:, 0]
        return key

    def simulate(self, rng: np.random.Generator, draw: Params, states: Array) -> Array:
        """Observations in some states."""
        return rng.poisson(draw["rates"][states]).astype(np.float64)


# -- random numbers ----------------------------------------------------------------------------------------------------


def dirichlet(rng: np.random.Generator, shape: Array) -> Array:
    """A Dirichlet draw for each row."""
    gammas = rng.standard_gamma(shape)
    found: Array = gammas / np.maximum(gammas.sum(axis=-1, keepdims=True), 1e-300)
    lost = ~(gammas.sum(axis=-1) > 0)  # all shapes are tiny: the limit is one category
    if lost.any():
        found[lost] = np.eye(shape.shape[-1])[rng.integers(shape.shape[-1], size=int(lost.sum()))]
    return found


def stretches(rng: np.random.Generator, rows: Array, least: int = 1) -> Array:
    """Means of stretches of the series, of a random length: states that last are further apart in them."""
    length = min(least * int(4 ** rng.integers(3)), max(1, len(rows) // 20))
    found: Array = rows[: len(rows) // length * length].reshape(-1, length, rows.shape[1]).mean(axis=1)
    return found


def distant(rng: np.random.Generator, rows: Array, num: int) -> Array:
    """Rows far from each other: each with probability proportional to the squared distance to those before."""
    chosen = [rows[rng.integers(len(rows))]]
    nearest = np.full(len(rows), np.inf)
    for _ in range(num - 1):
        nearest = np.minimum(nearest, ((rows - chosen[-1]) ** 2).sum(axis=1))
        total = nearest.sum()
        share = nearest / total if total > 0 else None
        chosen.append(rows[rng.choice(len(rows), p=share)])
    return np.array(chosen)


def positive(psi: Array, least: Array) -> Array:
    """Rounding must not make a scatter matrix indefinite: add a billionth of the prior."""
    return psi + 1e-9 * np.diag(least)
