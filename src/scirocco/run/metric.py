"""The shape of the posterior near a point: its curvature over all parameters, and coordinates that make it round."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from scirocco import _tree
from scirocco.data import Table
from scirocco.errors import InvalidValueError
from scirocco.estimators.newton import hessian, whitening
from scirocco.model import Model
from scirocco.types import Array, Key, Params, PyTree, Rows

DENSE_LIMIT = 1_000
"""Maximum number of parameters for a dense matrix."""
_WORK = 2e11
"""Maximum of rows × parameters² for which all rows are read; beyond it, that many random rows."""
_FLATTEST = 100.0
"""Smallest trusted eigenvalue, in units of the diagonal and of rounding."""


class Shape(NamedTuple):
    """L with LLᵀ about the posterior covariance, (d, d) or (d,), and how it was computed."""

    factor: np.ndarray
    condition: float
    """Largest over smallest curvature, in the units of the parameters."""
    flat: bool = False
    """Whether some direction has negligible or negative curvature."""


def shape_at(model: Model, table: Table, position: Params, kind: str, key: Key) -> Shape:
    """The posterior's shape at `position` (a mode), from all or many rows; `kind` is a `Preconditioned` metric."""
    size = _tree.size(position)
    if kind == "diagonal":
        precision = _over_rows(_DiagonalFisher(model), model, table, position, size, key)
        return diagonal_shape(np.asarray(precision, np.float64) + _prior_diagonal(model, position))
    if size > DENSE_LIMIT:
        raise InvalidValueError(
            f"a full metric of {size} parameters would have {size**2} entries: use "
            f'sc.Preconditioned(..., metric="diagonal") above {DENSE_LIMIT} parameters.'
        )
    summand = (_Curvature if kind == "laplace" else _Fisher)(model)
    likelihood = _over_rows(summand, model, table, position, size**2, key)
    precision = np.asarray(likelihood, np.float64) + _prior_curvature(model, position)
    return dense_shape(precision, likelihood.dtype)


def dense_shape(precision: np.ndarray, dtype: Any = np.float32) -> Shape:
    """The factor of `newton.whitening`; flat and convex directions are bounded by what `dtype` resolves."""
    floor = _FLATTEST * float(np.finfo(dtype).eps)
    factor, smallest = whitening(precision, floor)
    flat = smallest <= floor
    spread = np.linalg.svd(factor, compute_uv=False)
    return Shape(factor.astype(dtype), float((spread[0] / spread[-1]) ** 2), flat)


def diagonal_shape(precision: np.ndarray) -> Shape:
    """1/√P; entries without information get the value of the least informed one."""
    known = precision[precision > 0]
    filled = np.where(precision > 0, precision, known.min() if len(known) else 1.0)
    return Shape((1.0 / np.sqrt(filled)).astype(np.float32), float(filled.max() / filled.min()))


def _over_rows(
    summand: Any, model: Model, table: Table, position: Params, work_per_row: int, key: Key
) -> Array:
    """The sum over all rows, or N/n times that over n random ones."""
    affordable = int(_WORK / work_per_row)
    if table.num_rows <= affordable:
        return table.sum(summand, position)
    rows = table.random_rows(affordable, key)
    return table.num_rows / affordable * _total(summand, position, rows)


@partial(jax.jit, static_argnums=0)
def _total(summand: Any, position: Params, rows: Rows) -> PyTree:
    return summand.total(position, rows)


def _prior_curvature(model: Model, position: Params) -> np.ndarray:
    flat, unravel = ravel_pytree(position)
    return -np.asarray(_prior_hessian(model, unravel, flat), np.float64)


@partial(jax.jit, static_argnums=(0, 1))
def _prior_hessian(model: Model, unravel: Any, flat: Array) -> Array:
    return jax.hessian(lambda x: model.log_prior_density(unravel(x)))(flat)


def _prior_diagonal(model: Model, position: Params) -> np.ndarray:
    """The diagonal of the prior's curvature, from one product with ones: exact for independent parameters."""
    ones = jax.tree.map(jnp.ones_like, position)
    product = jax.jvp(jax.grad(model.log_prior_density), (position,), (ones,))[1]
    return np.maximum(-np.asarray(ravel_pytree(product)[0], np.float64), 0.0)


@dataclass(frozen=True)
class _OfModel:
    """A summand that belongs to a model: one compiled program for each."""

    model: Model

    def each(self, position: Params, rows: Rows, key: Key | None = None) -> PyTree:
        """Not needed for a metric."""
        raise NotImplementedError

    def _gradients(self, position: Params, rows: Rows) -> Array:
        return jax.vmap(lambda tree: ravel_pytree(tree)[0])(self.model.summand.each(position, rows))


class _Curvature(_OfModel):
    """-∇² log p(x_i | θ)."""

    def total(
        self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None
    ) -> Array:
        flat, unravel = ravel_pytree(position)
        count = jax.tree.leaves(rows)[0].shape[0]
        return -hessian(lambda x: self.model.log_likelihood_sum(unravel(x), rows, weights), flat, count)


class _Fisher(_OfModel):
    """g_i g_iᵀ with g_i = ∇ log p(x_i | θ)."""

    def total(
        self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None
    ) -> Array:
        gradients = self._gradients(position, rows)
        return gradients.T @ (gradients if weights is None else weights[:, None] * gradients)


class _DiagonalFisher(_OfModel):
    """g_i², elementwise."""

    def total(
        self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None
    ) -> Array:
        squares = self._gradients(position, rows) ** 2
        return squares.sum(axis=0) if weights is None else weights @ squares
