"""Maps from the real line to constrained parameters, with their log-Jacobians.

A sampler moves u on the whole real line; the model sees x = forward(u). The density of u is that of x times
|dx/du|, so `log_det` is added to the log prior and the distribution of x is the one that the user specified.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.types import Array

__all__ = [
    "Bounded",
    "Ordered",
    "Transform",
    "above",
    "below",
    "interval",
    "ordered",
    "positive",
]


class Transform(abc.ABC):
    """A smooth, increasing or triangular map from the real line to a constrained set; shapes are kept."""

    domain: str

    @abc.abstractmethod
    def forward(self, u: Array) -> Array:
        """From the real line to the constrained value."""

    @abc.abstractmethod
    def inverse(self, x: Array) -> Array:
        """From the constrained value to the real line."""

    @abc.abstractmethod
    def log_det(self, u: Array) -> Array:
        """Log |determinant| of d forward / d u, summed over the elements."""

    @abc.abstractmethod
    def contains(self, x: Array) -> Array:
        """Whether every element of x is strictly inside the domain."""


@dataclass(frozen=True)
class Bounded(Transform):
    """x > low (by exp), x < high (by exp), or low < x < high (by the logistic function)."""

    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        if self.low is None and self.high is None:
            raise InvalidValueError("a bounded parameter requires a lower bound, an upper bound or both.")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise InvalidValueError(f"interval requires low < high, got low={self.low}, high={self.high}.")

    @property
    def domain(self) -> str:  # type: ignore[override]
        """A description of the set, for messages."""
        if self.low is None:
            return f"values below {self.high}"
        if self.high is None:
            return "positive values" if self.low == 0 else f"values above {self.low}"
        return f"values between {self.low} and {self.high}"

    @property
    def _high(self) -> float:
        assert self.high is not None  # `__post_init__` requires a bound
        return self.high

    def forward(self, u: Array) -> Array:
        """low + e^u, high - e^u, or low + (high - low) logistic(u)."""
        if self.low is None:
            return self._high - jnp.exp(u)
        if self.high is None:
            return self.low + jnp.exp(u)
        return self.low + (self.high - self.low) * jax.nn.sigmoid(u)

    def inverse(self, x: Array) -> Array:
        """The u for which `forward` returns x."""
        if self.low is None:
            return jnp.log(self._high - x)
        if self.high is None:
            return jnp.log(x - self.low)
        return jnp.log(x - self.low) - jnp.log(self.high - x)

    def log_det(self, u: Array) -> Array:
        """Σ u for half-lines; Σ log(high - low) + log s(u) + log s(-u) for intervals."""
        if self.low is None or self.high is None:
            return jnp.sum(u)
        width = jnp.log(jnp.asarray(self.high - self.low, u.dtype))
        return jnp.sum(width + jax.nn.log_sigmoid(u) + jax.nn.log_sigmoid(-u))

    def contains(self, x: Array) -> Array:
        """Strictly inside the bounds."""
        above = jnp.all(x > self.low) if self.low is not None else jnp.array(True)
        below = jnp.all(x < self.high) if self.high is not None else jnp.array(True)
        return above & below


@dataclass(frozen=True)
class Ordered(Transform):
    """Increasing along the last axis: x_1 = u_1, x_k = x_{k-1} + exp(u_k)."""

    domain: str = "values that increase along the last axis"

    def forward(self, u: Array) -> Array:
        """Cumulative sum of u_1 and the exponentials of the rest."""
        steps = jnp.concatenate([u[..., :1], jnp.exp(u[..., 1:])], axis=-1)
        return jnp.cumsum(steps, axis=-1)

    def inverse(self, x: Array) -> Array:
        """First value and the logs of the gaps."""
        return jnp.concatenate([x[..., :1], jnp.log(jnp.diff(x, axis=-1))], axis=-1)

    def log_det(self, u: Array) -> Array:
        """Σ_{k>1} u_k: the matrix is triangular."""
        return jnp.sum(u[..., 1:])

    def contains(self, x: Array) -> Array:
        """Every gap is positive."""
        if x.ndim == 0:
            raise InvalidValueError(
                "ordered values require an axis along which they increase; this is a single number."
            )
        return jnp.all(jnp.diff(x, axis=-1) > 0)


positive = Bounded(low=0.0)
ordered = Ordered()


def _number(value: float, owner: str) -> float:
    if isinstance(value, (str, bytes, bool)):
        raise InvalidTypeError(f"the bounds of {owner} must be numbers, got {value!r}.")
    return float(value)


def interval(low: float, high: float) -> Bounded:
    """Parameters strictly between `low` and `high`."""
    return Bounded(_number(low, "interval"), _number(high, "interval"))


def above(low: float) -> Bounded:
    """Parameters strictly above `low`."""
    return Bounded(low=_number(low, "above"))


def below(high: float) -> Bounded:
    """Parameters strictly below `high`."""
    return Bounded(high=_number(high, "below"))
