"""Maps from the real line to constrained parameters, with their log-Jacobians.

A sampler moves u on the whole real line; the model sees x = forward(u). The density of u is that of x times
|dx/du|, so `log_det` is added to the log prior and the distribution of x is the one that the user specified.

Bounds, offsets and multipliers may be functions of the other parameters, `function(params)`: the model evaluates the
parameters that they use first. Then dx/du is triangular, so its log determinant is still the sum over the parameters.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.types import Array, Params

__all__ = [
    "Affine",
    "Bounded",
    "CholeskyCorrelation",
    "Ordered",
    "Simplex",
    "Transform",
    "above",
    "affine",
    "below",
    "cholesky_correlation",
    "interval",
    "ordered",
    "positive",
    "positive_ordered",
    "simplex",
]


def __dir__() -> list[str]:
    return __all__


Setting = float | Callable[[Params], Any]
"""A number, or a function of the other parameters that returns a number or an array."""
_OFF = 1e-3  # by which sums and lengths may differ from 1, for single precision


class Transform(abc.ABC):
    """A smooth, one-to-one map from real numbers to a constrained set; the shapes of the two may differ."""

    domain: str

    @property
    def functions(self) -> tuple[Callable[[Params], Any], ...]:
        """The functions of the other parameters that the map depends on."""
        return ()

    def at(self, params: Params) -> Self:
        """The map with these values of the other parameters."""
        return self

    @abc.abstractmethod
    def forward(self, u: Array) -> Array:
        """From the real line to the constrained value."""

    @abc.abstractmethod
    def inverse(self, x: Array) -> Array:
        """From the constrained value to the real line."""

    @abc.abstractmethod
    def log_det(self, u: Array) -> Array:
        """Log |determinant| of d forward / d u, summed over the elements.

        Where x has more elements than u, the rows are those of as many elements of x as fix the others: all but the
        last probability, the elements below the diagonal.
        """

    @abc.abstractmethod
    def contains(self, x: Array) -> Array:
        """Whether every element of x is strictly inside the domain."""


def _is_fixed(*values: Any) -> bool:
    return all(isinstance(value, (int, float)) for value in values)


def _known(value: Any, params: Params) -> Any:
    return jnp.asarray(value(params)) if callable(value) else value


def _words(value: Any) -> str:
    return "a bound that depends on other parameters" if callable(value) else f"{value}"


@dataclass(frozen=True)
class Bounded(Transform):
    """x > low (by exp), x < high (by exp), or low < x < high (by the logistic function)."""

    low: Setting | None = None
    high: Setting | None = None

    def __post_init__(self) -> None:
        if self.low is None and self.high is None:
            raise InvalidValueError("a bounded parameter requires a lower bound, an upper bound or both.")
        if _is_fixed(self.low, self.high) and not self.low < self.high:  # type: ignore[operator]
            raise InvalidValueError(f"interval requires low < high, got low={self.low}, high={self.high}.")

    @property
    def domain(self) -> str:  # type: ignore[override]
        if self.low is None:
            return f"values below {_words(self.high)}"
        if self.high is None:
            positive = _is_fixed(self.low) and self.low == 0
            return "positive values" if positive else f"values above {_words(self.low)}"
        return f"values between {_words(self.low)} and {_words(self.high)}"

    def forward(self, u: Array) -> Array:
        """low + e^u, high - e^u, or low + (high - low) logistic(u)."""
        low, high = self._bounds
        if low is None:
            return high - jnp.exp(u)
        if high is None:
            return low + jnp.exp(u)
        return low + (high - low) * jax.nn.sigmoid(u)

    def inverse(self, x: Array) -> Array:
        low, high = self._bounds
        if low is None:
            return jnp.log(high - x)
        if high is None:
            return jnp.log(x - low)
        return jnp.log(x - low) - jnp.log(high - x)

    def log_det(self, u: Array) -> Array:
        """Σ u for half-lines; Σ log(high - low) + log s(u) + log s(-u) for intervals."""
        low, high = self._bounds
        if low is None or high is None:
            return jnp.sum(u)
        width = jnp.log(jnp.asarray(high - low, u.dtype))
        return jnp.sum(width + jax.nn.log_sigmoid(u) + jax.nn.log_sigmoid(-u))

    def contains(self, x: Array) -> Array:
        low, high = self._bounds
        above = jnp.all(x > low) if low is not None else jnp.array(True)
        below = jnp.all(x < high) if high is not None else jnp.array(True)
        return above & below

    @property
    def functions(self) -> tuple[Callable[[Params], Any], ...]:
        return tuple(bound for bound in (self.low, self.high) if callable(bound))

    def at(self, params: Params) -> Self:
        return type(self)(_known(self.low, params), _known(self.high, params)) if self.functions else self

    @property
    def _bounds(self) -> tuple[Any, Any]:
        """Numbers, arrays or None: `at` has replaced functions."""
        return self.low, self.high


@dataclass(frozen=True)
class Affine(Transform):
    """x = offset + multiplier u, with multiplier > 0."""

    offset: Setting = 0.0
    multiplier: Setting = 1.0
    domain = "finite values with a finite offset and a multiplier > 0"

    def __post_init__(self) -> None:
        if _is_fixed(self.multiplier) and not self.multiplier > 0:  # type: ignore[operator]
            raise InvalidValueError(f"`multiplier` of affine must be > 0, got {self.multiplier}.")

    @property
    def functions(self) -> tuple[Callable[[Params], Any], ...]:
        return tuple(value for value in (self.offset, self.multiplier) if callable(value))

    def at(self, params: Params) -> Self:
        known = _known(self.offset, params), _known(self.multiplier, params)
        return type(self)(*known) if self.functions else self

    @property
    def _settings(self) -> tuple[Any, Any]:
        """Numbers or arrays: `at` has replaced functions."""
        return self.offset, self.multiplier

    def forward(self, u: Array) -> Array:
        offset, multiplier = self._settings
        return offset + multiplier * u

    def inverse(self, x: Array) -> Array:
        offset, multiplier = self._settings
        return (x - offset) / multiplier

    def log_det(self, u: Array) -> Array:
        """Σ log multiplier, over the elements of u."""
        return jnp.sum(jnp.broadcast_to(jnp.log(jnp.asarray(self._settings[1], u.dtype)), u.shape))

    def contains(self, x: Array) -> Array:
        return jnp.all(jnp.isfinite(self.inverse(x))) & jnp.all(self._settings[1] > 0)


@dataclass(frozen=True)
class Ordered(Transform):
    """Increasing along the last axis: x_1 = u_1, or exp(u_1) if x is `positive`; x_k = x_{k-1} + exp(u_k)."""

    positive: bool = False

    @property
    def domain(self) -> str:  # type: ignore[override]
        return f"{'positive ' if self.positive else ''}values that increase along the last axis"

    def forward(self, u: Array) -> Array:
        """Cumulative sum of u_1, or its exponential, and the exponentials of the rest."""
        first = u[..., :1]
        steps = [jnp.exp(first) if self.positive else first, jnp.exp(u[..., 1:])]
        return jnp.cumsum(jnp.concatenate(steps, axis=-1), axis=-1)

    def inverse(self, x: Array) -> Array:
        first = x[..., :1]
        return jnp.concatenate([jnp.log(first) if self.positive else first, jnp.log(jnp.diff(x, axis=-1))], axis=-1)

    def log_det(self, u: Array) -> Array:
        """Σ u_k over the exponentials: the matrix is triangular."""
        return jnp.sum(u if self.positive else u[..., 1:])

    def contains(self, x: Array) -> Array:
        if x.ndim == 0:
            raise InvalidValueError(
                "ordered values require an axis along which they increase; this is a single number."
            )
        increasing = jnp.all(jnp.diff(x, axis=-1) > 0)
        return increasing & jnp.all(x > 0) if self.positive else increasing


@dataclass(frozen=True)
class Simplex(Transform):
    r"""Positive and summing to 1 along the last axis, K numbers made of K - 1.

    x = softmax(H u), where the columns of H are orthonormal and sum to 0 (the isometric log-ratio, as in Stan since
    2.37). For the first K - 1 of x, |dx/du| = √K Π_k x_k.
    """

    domain: str = "positive values that sum to 1 along the last axis, at least two of them"

    def forward(self, u: Array) -> Array:
        return jax.nn.softmax(_centred_from_real(u), axis=-1)

    def inverse(self, x: Array) -> Array:
        places, roots = _helmert(x.shape[-1], x.dtype)
        logs = jnp.log(x)
        logs = logs - jnp.mean(logs, axis=-1, keepdims=True)  # smaller sums, less rounding
        return (jnp.cumsum(logs[..., :-1], axis=-1) - places * logs[..., 1:]) / roots

    def log_det(self, u: Array) -> Array:
        """Σ (½ log K + Σ_k log x_k), over all but the last axis."""
        logs = jax.nn.log_softmax(_centred_from_real(u), axis=-1)
        count = logs.shape[-1]
        return jnp.sum(0.5 * jnp.log(jnp.asarray(count, u.dtype)) + jnp.sum(logs, axis=-1))

    def contains(self, x: Array) -> Array:
        if x.ndim == 0 or x.shape[-1] < 2:
            raise InvalidValueError(f"a simplex has at least two values along the last axis; this has shape {x.shape}.")
        return jnp.all(x > 0) & jnp.all(jnp.abs(jnp.sum(x, axis=-1) - 1.0) < _OFF)


def _helmert(count: int, dtype: Any) -> tuple[Array, Array]:
    """k and √(k(k + 1)) for k = 1 ... count - 1: column k of H has k entries 1/√ and then one -k/√."""
    places = np.arange(1, count)
    return jnp.asarray(places, dtype), jnp.asarray(np.sqrt(places * (places + 1.0)), dtype)


def _centred_from_real(u: Array) -> Array:
    """H u: K numbers that sum to 0."""
    places, roots = _helmert(u.shape[-1] + 1, u.dtype)
    scaled = u / roots
    zero = jnp.zeros((*u.shape[:-1], 1), u.dtype)
    later = jax.lax.cumsum(scaled, axis=u.ndim - 1, reverse=True)
    return jnp.concatenate([later, zero], axis=-1) - jnp.concatenate([zero, places * scaled], axis=-1)


@dataclass(frozen=True)
class CholeskyCorrelation(Transform):
    r"""The Cholesky factor L of a correlation matrix L Lᵀ (d × d), made of d(d - 1)/2 numbers.

    L_ij = tanh(u_ij) Π_{k<j} sech(u_ik) below the diagonal, L_ii = Π_{k<i} sech(u_ik), as in Stan. The determinant is
    that of the elements below the diagonal, so that the density of the LKJ(η) distribution is
    Π_{i>1} L_ii^{d - i + 2η - 2}, with i counted from 1.
    """

    domain: str = "lower triangular matrices with a positive diagonal and rows of length 1"

    def forward(self, u: Array) -> Array:
        """A matrix on the last two axes."""
        below, logs = self._below(u)
        size = below.shape[-1]
        before = jnp.cumsum(logs, axis=-1) - logs  # Σ_{k<j} log sech(u_ik)
        return (jnp.tanh(below) + jnp.eye(size, dtype=u.dtype)) * jnp.tril(jnp.exp(before))

    def inverse(self, x: Array) -> Array:
        """sinh(u_ij) is L_ij over the length of the rest of its row."""
        rest = jax.lax.cumsum(x**2, axis=x.ndim - 1, reverse=True)[..., 1:]  # at j: from j + 1 on
        rows, columns = np.tril_indices(x.shape[-1], -1)
        return jnp.arcsinh(x[..., rows, columns] / jnp.sqrt(rest[..., rows, columns]))

    def log_det(self, u: Array) -> Array:
        """Σ over i > j of 2 log sech(u_ij) + Σ_{k<j} log sech(u_ik)."""
        below, logs = self._below(u)
        size = below.shape[-1]
        later = np.tril(np.arange(size)[:, None] - np.arange(size)[None, :] - 1, -1)  # elements (i, j') with j < j' < i
        return jnp.sum(logs * jnp.asarray(2 + later, u.dtype))

    def contains(self, x: Array) -> Array:
        """Triangular, with rows of length 1 to rounding."""
        if x.ndim < 2 or x.shape[-1] != x.shape[-2] or x.shape[-1] < 2:
            raise InvalidValueError(
                f"a Cholesky factor is a square matrix of at least two rows; this has shape {x.shape}."
            )
        diagonal = jnp.diagonal(x, axis1=-2, axis2=-1)
        lengths = jnp.sum(x**2, axis=-1)
        return jnp.all(diagonal > 0) & jnp.all(jnp.triu(x, 1) == 0) & jnp.all(jnp.abs(lengths - 1.0) < _OFF)

    @staticmethod
    def _below(u: Array) -> tuple[Array, Array]:
        """u below the diagonal of a matrix, and log sech of it (0 elsewhere)."""
        size = round((1 + np.sqrt(1 + 8 * u.shape[-1])) / 2)
        below = jnp.zeros((*u.shape[:-1], size, size), u.dtype)
        below = below.at[..., *np.tril_indices(size, -1)].set(u)
        far = jnp.abs(below)
        logs = jnp.log(jnp.asarray(2.0, u.dtype)) - far - jnp.log1p(jnp.exp(-2.0 * far))
        return below, jnp.tril(logs, -1)


positive = Bounded(low=0.0)
ordered = Ordered()
positive_ordered = Ordered(positive=True)
simplex = Simplex()
cholesky_correlation = CholeskyCorrelation()


def _setting(value: Any, owner: str) -> Setting:
    if callable(value):
        return value
    if not isinstance(value, (str, bytes, bool)):
        try:
            return float(value)
        except (TypeError, ValueError):
            pass
    raise InvalidTypeError(f"the settings of {owner} must be numbers or functions of the parameters, got {value!r}.")


def interval(low: Setting, high: Setting) -> Bounded:
    """Parameters strictly between `low` and `high`: numbers, or functions of the other parameters.

    Examples
    --------
    >>> import scirocco as sc
    >>> transforms = {
    ...     "first": sc.transforms.positive,
    ...     "second": sc.transforms.interval(0.0, lambda params: params["first"]),
    ... }
    >>> model = sc.Model(lambda params, x: -x * params["second"], transforms=transforms)
    >>> position = model.unconstrain({"first": 4.0, "second": 2.0})
    >>> float(position["second"])
    0.0
    """
    return Bounded(_setting(low, "interval"), _setting(high, "interval"))


def above(low: Setting) -> Bounded:
    """Parameters strictly above `low`: a number, or a function of the other parameters."""
    return Bounded(low=_setting(low, "above"))


def below(high: Setting) -> Bounded:
    """Parameters strictly below `high`: a number, or a function of the other parameters."""
    return Bounded(high=_setting(high, "below"))


def affine(offset: Setting = 0.0, multiplier: Setting = 1.0) -> Affine:
    """Parameters that a sampler sees as (x - offset) / multiplier: numbers, or functions of the other parameters.

    The distribution does not change, but its shape on the real line does. With the mean and the scale of a hierarchy,
    the sampler moves in the non-centred parameters, while model and draws remain in those that one thinks in.

    Examples
    --------
    >>> import jax.numpy as jnp, scirocco as sc
    >>> transforms = {
    ...     "scale": sc.transforms.positive,
    ...     "group": sc.transforms.affine(lambda params: params["mean"], lambda params: params["scale"]),
    ... }
    >>> model = sc.Model(lambda params, x: -jnp.sum((x - params["group"]) ** 2), transforms=transforms)
    >>> start = {"mean": jnp.float32(1.0), "scale": jnp.float32(2.0), "group": jnp.array([1.0, 5.0])}
    >>> model.unconstrain(start)["group"]
    Array([0., 2.], dtype=float32)
    """
    return Affine(_setting(offset, "affine"), _setting(multiplier, "affine"))
