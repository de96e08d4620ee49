"""Families of responses: all that regressions, mixed models, `sc.Model.linear` and configuration files know about them.

η is the linear predictor, of a continuous response in units of its spread. Densities are up to terms without
parameters, which `constant` has. A new family is a class here, listed in `FAMILIES`; a positive parameter that no other
family has is listed in `PARAMETERS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.types import Array, Datum, Key, Params, Rows

Column = np.ndarray
"""One number for each row."""
Given = np.ndarray | None
"""The same, of what a row may have."""
Values = Mapping[str, Any]
"""Values of a family's own parameters."""
Generator = np.random.Generator

_MOST = 1e15
"""Largest mean of a Poisson variate."""
_NORMAL = 0.5 * math.log(2 * math.pi)
"""Minus the logarithm of the constant of the normal density."""


class Parameter(NamedTuple):
    """A positive parameter of families, in addition to η."""

    start: float
    """Where chains start, for a response in units of its spread."""
    log_prior: Callable[[Any], Any]
    has_units: bool = False
    """Whether it is in units of the response."""


PARAMETERS = {
    "noise": Parameter(0.8, lambda value: -value, has_units=True),
    "dispersion": Parameter(0.5, lambda value: -value),
    "freedom": Parameter(10.0, lambda value: jnp.log(value) - 0.1 * value),
}
"""Their priors are Exponential(1), and Gamma(2, 0.1) of degrees of freedom."""


class Family:
    """What all families have; the density, means and units of the normal one, whose link is the identity."""

    name: ClassVar[str]
    title: ClassVar[str]
    """A line about its regression, in example configuration files."""
    continuous: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...]] = ("noise",)
    """Names in `PARAMETERS`."""
    has_trials: ClassVar[bool] = False
    """Whether rows have a number of `trials`."""
    has_classes: ClassVar[bool] = False
    """Whether y is the number of a class, and η has an entry for each of them."""
    is_conjugate: ClassVar[bool] = False
    """Whether normal effects are normal given the responses and the other parameters."""
    nodes: ClassVar[int | None] = None
    """Quadrature nodes per effect that is integrated out; None: as many as usual."""

    @property
    def start(self) -> dict[str, float]:
        """Where chains of the parameters start."""
        return {name: PARAMETERS[name].start for name in self.parameters}

    def log_density(self, row: Rows, eta: Array, theta: Params) -> Array:
        """log p(y | η, θ), up to terms without parameters."""
        z = (row["y"] - eta) / theta["noise"]
        return -0.5 * z**2 - jnp.log(theta["noise"])

    def bound(self, theta: Values) -> tuple[float, float] | None:
        """Bounds c and t with |ℓ″| ≤ c and |ℓ‴| ≤ t for ℓ(η) = log p(y | η, θ); None: there are none."""
        return None

    def information(self, theta: Params, weight: Array) -> Array | None:
        """The expected information of weighted rows about η; None where the observed one is never negative."""
        return None

    def constant(self, y: Column, trials: Given = None) -> Column:
        """The terms without parameters."""
        return np.full(len(y), -_NORMAL)

    def mean(self, eta: np.ndarray) -> np.ndarray:
        """E[y | η], of one trial for binomial responses."""
        return eta

    def linked(self, mean: np.ndarray) -> np.ndarray:
        """η of a mean; those at the edge of the possible ones are moved inside."""
        return mean

    def centre(self, y: Column, trials: Given = None, offset: Given = None, weights: Given = None) -> float:
        """η without columns, about: an intercept is measured from there."""
        return float(np.average(y if offset is None else y - offset, weights=weights))

    def spread(self, y: np.ndarray) -> float:
        """The unit of a continuous response; 1 for others."""
        return float(y.std()) if self.continuous else 1.0

    def check(self, y: np.ndarray, name: str) -> None:
        """Raise an error unless all are possible responses; those that are not continuous are counts."""
        wrong = (y < 0) | (y != np.round(y))
        if not self.continuous and wrong.any():
            bad = int(np.argmax(wrong))
            raise InvalidValueError(
                f"the response `{name}` of a {self.name} model must be a count (0, 1, 2, ...), got {y[bad]:g} in row "
                f"{bad}."
            )

    def draw(self, rng: Generator, mean: Column, theta: Values, trials: Any = None) -> Column:
        """New responses with these means."""
        return mean + theta["noise"] * rng.standard_normal(mean.shape)

    def simulate(self, key: Key, eta: Array, theta: Params) -> Array:
        """A new response, in JAX."""
        return eta + theta["noise"] * jax.random.normal(key, jnp.shape(eta))


class Normal(Family):
    """y ~ N(η, noise²)."""

    name = "normal"
    title = "Linear regression: y is any number, with normal noise."
    is_conjugate = True
    nodes = 3

    def bound(self, theta: Values) -> tuple[float, float]:
        """-ℓ″ = 1/noise², ℓ‴ = 0."""
        return theta["noise"] ** -2, 0.0


class Student(Family):
    """Student's t around η, with unknown degrees of freedom; its units are robust, too."""

    name = "student"
    title = "Robust regression: y is any number, some far away."
    parameters = ("noise", "freedom")
    nodes = 11  # the density is not log-concave

    def log_density(self, row: Rows, eta: Array, theta: Params) -> Array:
        """log p(y | η, θ)."""
        z, nu = (row["y"] - eta) / theta["noise"], theta["freedom"]
        constant = _rising(0.5 * nu, 0.5) - 0.5 * jnp.log(nu * math.pi)
        return constant - jnp.log(theta["noise"]) - 0.5 * (nu + 1.0) * jnp.log1p(z**2 / nu)

    def bound(self, theta: Values) -> tuple[float, float]:
        """With z = (y - η)/s: -ℓ″ = (ν + 1)(ν - z²) / (s²(ν + z²)²).

        It is (ν + 1)/(νs²) at z = 0, and at z² = 3ν, the minimum, -1/8 of that.
        |ℓ‴| = (ν + 1)/(ν^(3/2) s³) |2x(x² - 3)|/(1 + x²)³ with x = z/√ν; the last factor is largest at x² = 3 - 2√2,
        where it is (3 + 2√2)/4.
        """
        nu, s = theta["freedom"], theta["noise"]
        return (nu + 1) / (nu * s**2), (3 + 2 * math.sqrt(2)) / 4 * (nu + 1) / (nu**1.5 * s**3)

    def information(self, theta: Params, weight: Array) -> Array:
        """(ν + 1) / ((ν + 3) s²) for each row."""
        nu = theta["freedom"]
        return weight * (nu + 1.0) / (nu + 3.0) / theta["noise"] ** 2

    def constant(self, y: Column, trials: Given = None) -> Column:
        """None."""
        return np.zeros(len(y))

    def centre(self, y: Column, trials: Given = None, offset: Given = None, weights: Given = None) -> float:
        """The median."""
        return float(np.median(y if offset is None else y - offset))

    def spread(self, y: np.ndarray) -> float:
        """1.48 median absolute deviations: the standard deviation, for normal responses."""
        robust = 1.4826 * float(np.median(np.abs(y - np.median(y))))
        return robust if robust > 0 else float(y.std())

    def draw(self, rng: Generator, mean: Column, theta: Values, trials: Any = None) -> Column:
        """New responses around these means."""
        return mean + theta["noise"] * rng.standard_t(theta["freedom"], mean.shape)

    def simulate(self, key: Key, eta: Array, theta: Params) -> Array:
        """A new response, in JAX."""
        return eta + theta["noise"] * jax.random.t(key, theta["freedom"], jnp.shape(eta))


class Binomial(Family):
    """Successes of so many trials, by the logit."""

    name = "binomial"
    title = "Binomial regression: y of `trials` are successes."
    continuous = False
    parameters: ClassVar[tuple[str, ...]] = ()
    has_trials = True

    def log_density(self, row: Rows, eta: Array, theta: Params) -> Array:
        """y η - n log(1 + e^η)."""
        return row["y"] * eta - row["trials"] * jax.nn.softplus(eta)

    def constant(self, y: Column, trials: Given = None) -> Column:
        """The logarithm of the binomial coefficient."""
        return np.zeros(len(y)) if trials is None else _lgamma(trials) - _lgamma(y) - _lgamma(trials - y)

    def mean(self, eta: np.ndarray) -> np.ndarray:
        """The chance of a success."""
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(eta, -700, 700))))

    def linked(self, mean: np.ndarray) -> np.ndarray:
        """The logit."""
        share = np.clip(mean, 1e-3, 1 - 1e-3)
        return np.log(share / (1 - share))

    def centre(self, y: Column, trials: Given = None, offset: Given = None, weights: Given = None) -> float:
        """The logit of the share of successes, less the average offset."""
        average = float(y.sum() / (len(y) if trials is None else max(trials.sum(), 1.0)))
        share = (average * len(y) + 0.5) / (len(y) + 1.0)
        return math.log(share / (1 - share)) - (0.0 if offset is None else float(offset.mean()))

    def draw(self, rng: Generator, mean: Column, theta: Values, trials: Any = None) -> Column:
        """New numbers of successes."""
        return rng.binomial(trials[:, None], mean).astype(float)


class Bernoulli(Binomial):
    """0 or 1, by the logit."""

    name = "bernoulli"
    title = "Logistic regression: y is 0 or 1."
    has_trials = False

    def bound(self, theta: Values) -> tuple[float, float]:
        """With σ = 1/(1 + e^(-η)): -ℓ″ = σ(1 - σ) ≤ 1/4, at σ = 1/2.

        |ℓ‴| = σ(1 - σ)|1 - 2σ|; with s = 1 - 2σ it is |s|(1 - s²)/4, largest at s² = 1/3: t = 1/(6√3).
        """
        return 0.25, 1 / (6 * math.sqrt(3))

    def log_density(self, row: Rows, eta: Array, theta: Params) -> Array:
        """y η - log(1 + e^η)."""
        return row["y"] * eta - jax.nn.softplus(eta)

    def check(self, y: np.ndarray, name: str) -> None:
        """0 and 1."""
        if not np.isin(y, (0.0, 1.0)).all():
            raise InvalidValueError(
                f"the response `{name}` of a bernoulli model must be 0 or 1, got values {np.unique(y)[:5]}."
            )

    def draw(self, rng: Generator, mean: Column, theta: Values, trials: Any = None) -> Column:
        """New responses."""
        return (rng.random(mean.shape) < mean).astype(float)

    def simulate(self, key: Key, eta: Array, theta: Params) -> Array:
        """A new response, in JAX."""
        return jax.random.bernoulli(key, jax.nn.sigmoid(eta)).astype(float)


class Poisson(Family):
    """Counts, by the logarithm."""

    name = "poisson"
    title = "Poisson regression: y is a count, its logarithm linear in x."
    continuous = False
    parameters: ClassVar[tuple[str, ...]] = ()

    def log_density(self, row: Rows, eta: Array, theta: Params) -> Array:
        """y η - e^η."""
        return row["y"] * eta - jnp.exp(eta)

    def constant(self, y: Column, trials: Given = None) -> Column:
        """-log y!."""
        return -_lgamma(y)

    def mean(self, eta: np.ndarray) -> np.ndarray:
        """e^η."""
        return np.exp(eta)

    def linked(self, mean: np.ndarray) -> np.ndarray:
        """The logarithm."""
        return np.log(np.maximum(mean, 1e-3))

    def centre(self, y: Column, trials: Given = None, offset: Given = None, weights: Given = None) -> float:
        """The logarithm of the rate: of the sum of responses over that of e^offset."""
        counts = y if weights is None else weights * y
        exposure = np.zeros(len(y)) if offset is None else np.asarray(offset, np.float64)
        if weights is not None:
            exposure, counts = exposure[weights > 0] + np.log(weights[weights > 0]), counts[weights > 0]
        return math.log(max(float(counts.sum()), 0.5)) - float(np.logaddexp.reduce(exposure))

    def draw(self, rng: Generator, mean: Column, theta: Values, trials: Any = None) -> Column:
        """New counts."""
        return rng.poisson(np.minimum(mean, _MOST)).astype(float)

    def simulate(self, key: Key, eta: Array, theta: Params) -> Array:
        """A new response, in JAX."""
        return jax.random.poisson(key, jnp.exp(eta)).astype(float)


class NegativeBinomial(Poisson):
    """Counts with the variance μ + dispersion · μ², by the logarithm."""

    name = "negative_binomial"
    title = "Negative binomial regression: y is a count, with any variance."
    parameters = ("dispersion",)

    def log_density(self, row: Rows, eta: Array, theta: Params) -> Array:
        """log p(y | η, dispersion) + log y!."""
        y, shape = row["y"], 1.0 / theta["dispersion"]
        ratio = eta - jnp.log(shape)
        return _rising(shape, y) + y * ratio - (shape + y) * jax.nn.softplus(ratio)

    def draw(self, rng: Generator, mean: Column, theta: Values, trials: Any = None) -> Column:
        """New counts: Poisson, with a rate that varies like a gamma variate."""
        shape = 1.0 / theta["dispersion"]
        return super().draw(rng, mean * rng.gamma(shape, 1.0 / shape, mean.shape), theta)

    def simulate(self, key: Key, eta: Array, theta: Params) -> Array:
        """A new response, in JAX."""
        first, second = jax.random.split(key)
        shape = 1.0 / theta["dispersion"]
        rate = jnp.exp(eta) * jax.random.gamma(first, shape, jnp.shape(eta)) / shape
        return jax.random.poisson(second, rate).astype(float)


class Softmax(Family):
    """The number of a class: its probability is proportional to e^(η_k)."""

    name = "softmax"
    title = "Regression for classes: y is 0, 1, 2, ..."
    continuous = False
    parameters: ClassVar[tuple[str, ...]] = ()
    has_classes = True

    def log_density(self, row: Rows, eta: Array, theta: Params) -> Array:
        """η_y - log Σ_k e^(η_k)."""
        chosen = jnp.take_along_axis(eta, row["y"][..., None].astype(int), axis=-1)[..., 0]
        return chosen - jax.nn.logsumexp(eta, axis=-1)

    def bound(self, theta: Values) -> tuple[float, float]:
        """-∇²ℓ = diag(p) - pp', the covariance of a class indicator.

        For a vector a with a number for each class a'(diag(p) - pp')a = Var(a) ≤ (max a - min a)²/4 ≤ |a|²/2: c = 1/2.
        |∇³ℓ[a, b, e]| = |E (a - Ea)(b - Eb)(e - Ee)| ≤ (max e - min e) √(Var(a) Var(b)) ≤ √2 |e| · |a| |b| / 2:
        t = 1/√2. All of this holds for a - mean(a) instead of a: a number that is added to all η_k changes nothing.
        """
        return 0.5, math.sqrt(0.5)


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (*(Normal(), Bernoulli(), Binomial(), Poisson()), *(NegativeBinomial(), Student(), Softmax()))
}
"""All families by their names."""


def log_prior(theta: Params) -> Any:
    """The log prior of the parameters in addition to η."""
    total: Any = 0.0
    for name, parameter in PARAMETERS.items():
        if name in theta:
            total = total + parameter.log_prior(theta[name])
    return total


def _lgamma(y: np.ndarray) -> np.ndarray:
    """log y!, in double precision."""
    from scipy.special import gammaln

    return np.asarray(gammaln(np.asarray(y, np.float64) + 1.0))


def _rising(shape: Array, y: Array | float) -> Array:
    """log Γ(shape + y) - log Γ(shape), also where the two nearly cancel, by elementary functions.

    Γ(z) = Γ(z + 4) / (z (z + 1) (z + 2) (z + 3)), and Stirling's series from there. The second derivatives of `gammaln`
    would take longer to compile.
    """
    far = shape + 4.0
    series = (far + y - 0.5) * jnp.log1p(y / far) + y * (jnp.log(far) - 1.0)
    below = jnp.log1p(jnp.asarray(y)[..., None] / (jnp.asarray(shape)[..., None] + jnp.arange(4.0)))
    return series + _tail(far + y) - _tail(far) - jnp.sum(below, axis=-1)


def _tail(z: Array) -> Array:
    inverse = 1.0 / z
    return inverse * (1.0 / 12.0 - inverse**2 / 360.0)


# -- log likelihoods of a linear predictor, with bounds on their derivatives -------------------------------------------
#
# For ℓ(η) with |ℓ″| ≤ c and |ℓ‴| ≤ t the bounds of `sc.Model` are B_i v = √c η_i(v) and κ = t / c^(3/2).


def predictor(params: Params, row: Datum) -> Array:
    """xᵀβ for an array β, (d,) or (classes, d); with the intercept b for {"coef": β, "intercept": b}."""
    if isinstance(params, dict):
        return params["coef"] @ row["x"] + params.get("intercept", 0.0)
    return params @ row["x"]


@dataclass(frozen=True)
class LinearLikelihood:
    """The log likelihood of one row {x, y}, as a function of the linear predictor, up to a constant.

    `parameters` are the names and values of the family's own parameters.
    """

    family: str
    predictor: Callable[[Params, Datum], Any] = predictor
    parameters: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        _checks.choice(self.family, "family", tuple(FAMILIES))
        values, wanted = dict(self.parameters), FAMILIES[self.family].parameters
        if values.keys() != set(wanted):
            raise InvalidTypeError(
                f"the {self.family} family has {_listed(wanted)}, got {_listed(tuple(values))}: pass a value of each."
            )
        for name, value in values.items():
            _checks.positive(value, name)

    def __call__(self, params: Params, row: Datum) -> Array:
        """The value."""
        return FAMILIES[self.family].log_density(row, self.predictor(params, row), dict(self.parameters))

    def derivatives(self) -> tuple[float, float] | None:
        """Bounds of the second and the third derivative in η; None: there are none."""
        return FAMILIES[self.family].bound(dict(self.parameters))

    def bound(self, direction: Params, row: Datum) -> Array:
        """√c η(v), where η may have a constant part; of several classes without its mean, which changes nothing."""
        bounds = self.derivatives()
        assert bounds is not None
        zero = jax.tree.map(jnp.zeros_like, direction)
        eta = jax.jvp(lambda at: self.predictor(at, row), (zero,), (direction,))[1]
        return math.sqrt(bounds[0]) * (eta - jnp.mean(eta) if FAMILIES[self.family].has_classes else eta)


def _listed(names: tuple[str, ...]) -> str:
    return f"the parameter{'s' * (len(names) > 1)} {', '.join(names)}" if names else "no parameters"
