r"""The posterior of matrix factorisation of ratings, with its gradient in closed form.

.. math:: r ∼ N(U_i · V_j + a_i + b_j, 1/τ), \quad U_i ∼ N(0, I/λ_U), \; V_j ∼ N(0, I/λ_V), \;
    a_i ∼ N(0, 1/λ_a), \; b_j ∼ N(0, 1/λ_b), \quad λ ∼ Gamma(shape, rate)

with r the rating minus the mean rating (Chen, Fox & Guestrin 2014, section H.2; thesis A.3). τ is fixed, or has its own
Gamma prior. With e = r - U_i·V_j - a_i - b_j the gradient of one rating affects one row of each table:

.. math:: ∂U_i = τ e V_j, \quad ∂V_j = τ e U_i, \quad ∂a_i = ∂b_j = τ e, \quad ∂\log τ = (1 - τ e^2)/2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.model.density import Model
from scirocco.transforms import positive
from scirocco.types import Array, Key, Params, PyTree

TABLES = ("users", "items", "user_bias", "item_bias")
"""The parameters with their own precision λ, in the order of `precisions`."""
_LOG_2PI = float(np.log(2 * np.pi))  # of the normal density


class Ratings(NamedTuple):
    """User, item and rating minus the mean rating."""

    user: Any
    item: Any
    value: Any


@dataclass(frozen=True)
class Law:
    """The constants of the model, and its log density.

    Attributes
    ----------
    shape, rate
        Parameters of the Gamma prior of the four λ.
    rating_precision
        τ, or None if it is a parameter.
    noise_shape, noise_rate
        Parameters of the Gamma prior of τ, if it is a parameter.
    """

    shape: float = 1.0
    rate: float = 1.0
    rating_precision: float | None = None
    noise_shape: float = 1.0
    noise_rate: float = 1.0

    def tau(self, params: Params) -> Array | float:
        """τ, as a constant or from the parameters."""
        return params["rating_precision"] if self.rating_precision is None else self.rating_precision

    def log_likelihood(self, params: Params, rows: Ratings) -> Array:
        """Log likelihood of each rating."""
        tau = self.tau(params)
        return 0.5 * (jnp.log(tau) - _LOG_2PI - tau * (rows.value - expected(params, rows)) ** 2)

    def log_prior(self, params: Params) -> Array:
        """Log prior of tables and precisions, up to a constant."""
        total = jnp.zeros((), params["users"].dtype)
        for number, name in enumerate(TABLES):
            precision, table = params["precisions"][number], params[name]
            total += (self.shape - 1 + table.size / 2) * jnp.log(precision)
            total -= precision * (self.rate + 0.5 * jnp.sum(table**2))
        if self.rating_precision is None:
            tau = params["rating_precision"]
            total += (self.noise_shape - 1) * jnp.log(tau) - self.noise_rate * tau
        return total


def expected(params: Params, rows: Ratings) -> Array:
    """U_i · V_j + a_i + b_j for each row."""
    return _fitted(params, rows, _take(params["users"], rows.user), _take(params["items"], rows.item))


def _fitted(params: Params, rows: Ratings, left: Array, right: Array) -> Array:
    biases = _take(params["user_bias"], rows.user) + _take(params["item_bias"], rows.item)
    return jnp.sum(left * right, axis=1) + biases


def _take(table: Array, index: Array) -> Array:
    """Rows by ids, which were checked on the host."""
    return table.at[index].get(mode="promise_in_bounds")


def _add_up(values: Array, index: Array, like: Array) -> Array:
    """Sums of values by id."""
    return jnp.zeros_like(like).at[index].add(values, mode="promise_in_bounds")


class RatingModel(Model):
    """`sc.Model` of a `Law`: precisions are positive, gradients are in closed form."""

    def __init__(self, law: Law):
        self.law = law
        transforms: dict[str, PyTree] = dict.fromkeys(TABLES) | {"precisions": positive}
        if law.rating_precision is None:
            transforms["rating_precision"] = positive
        super().__init__(law.log_likelihood, law.log_prior, vectorized=True, transforms=transforms)

    # bound methods of equal laws are not equal, but equal models must share compiled programs
    def __hash__(self) -> int:
        return hash((RatingModel, self.law))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RatingModel) and self.law == other.law

    def __repr__(self) -> str:
        law = self.law
        of_tau = f"~ Gamma({law.noise_shape:g}, {law.noise_rate:g})"
        tau = of_tau if law.rating_precision is None else f"= {law.rating_precision:g}"
        return f"BPMF with precisions ~ Gamma({law.shape:g}, {law.rate:g}), precision of ratings {tau}"

    def __reduce__(self) -> tuple[type, tuple[Law]]:
        return RatingModel, (self.law,)

    def combine(self, position: Params, total: PyTree) -> PyTree:
        """-λ x for each table; for log λ the shape minus λ times the rate of its conditional distribution."""
        law, out, precision = self.law, dict(total), jnp.exp(position["precisions"])
        change = []
        for number, name in enumerate(TABLES):
            table = position[name]
            out[name] = total[name] - precision[number] * table
            change.append(law.shape + table.size / 2 - precision[number] * (law.rate + 0.5 * jnp.vdot(table, table)))
        out["precisions"] = total["precisions"] + jnp.stack(change)
        if law.rating_precision is None:
            tau = jnp.exp(position["rating_precision"])
            out["rating_precision"] = total["rating_precision"] + law.noise_shape - law.noise_rate * tau
        return out

    @property
    def summand(self) -> RatingSum:  # type: ignore[override]
        """Sums of gradients, computed from residuals with scatter operations."""
        return RatingSum(self)


class Compact(NamedTuple):
    """The gradient of one rating without its zeros: 2D + 2 numbers."""

    user: Array
    """Contribution to U_i: τ e V_j."""
    item: Array
    """Contribution to V_j: τ e U_i."""
    bias: Array
    """Contribution to a_i and b_j: τ e."""
    noise: Array
    """∂ log τ."""


@dataclass(frozen=True)
class RatingSum:
    """f(θ, x_i) = ∇ log p(r | θ), which affects one row of each table.

    `compact` returns the few nonzero numbers of each rating, which SAGA stores; `expand` sums them into tables.
    """

    model: RatingModel

    def total(self, position: Params, rows: Ratings, weights: Array | None = None, key: Key | None = None) -> PyTree:
        """Σ_i w_i f(θ, x_i)."""
        return self.expand(self.compact(position, rows), rows, position, weights)

    def each(self, position: Params, rows: Ratings, key: Key | None = None) -> PyTree:
        """f(θ, x_i) for each row: dense, so only for few rows."""
        one = jax.tree.map(lambda leaf: leaf[:, None], rows)
        return jax.vmap(self.total, (None, 0))(position, one)

    def compact(self, position: Params, rows: Ratings) -> Compact:
        """f(θ, x_i) for each row, without its zeros."""
        params = self.model.constrain(position)
        left, right = _take(params["users"], rows.user), _take(params["items"], rows.item)
        tau, residual = self.model.law.tau(params), rows.value - _fitted(params, rows, left, right)
        pull = tau * residual
        return Compact(pull[:, None] * right, pull[:, None] * left, pull, 0.5 - 0.5 * tau * residual**2)

    def expand(self, values: Compact, rows: Ratings, position: Params, weights: Array | None = None) -> PyTree:
        """Σ_i w_i v_i as a tree like the parameters."""
        if weights is not None:
            values = jax.tree.map(lambda v: v * weights.reshape(-1, *[1] * (v.ndim - 1)), values)
        out = {
            "users": _add_up(values.user, rows.user, position["users"]),
            "items": _add_up(values.item, rows.item, position["items"]),
            "user_bias": _add_up(values.bias, rows.user, position["user_bias"]),
            "item_bias": _add_up(values.bias, rows.item, position["item_bias"]),
            "precisions": jnp.zeros_like(position["precisions"]),
        }
        if "rating_precision" in position:
            out["rating_precision"] = jnp.sum(values.noise)
        return out
