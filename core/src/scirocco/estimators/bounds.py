"""Gradients of single rows: their squares, and how much they can change, at a point or everywhere.

A model states a bound by a linear map B_i of directions, `curvature_bound(direction, datum)`, with

    |v' ∇² log p(x_i | θ) w| ≤ |B_i v| |B_i w|   for all θ, v and w,

on the real line. For a linear predictor η = a_i'θ and |∂² log p / ∂η²| ≤ c it is B_i v = √c a_i'v.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from scirocco import _checks, _tree
from scirocco.data import ArraySource, Resident, Streamed, as_source, to_device
from scirocco.data.batching import AllRows
from scirocco.data.tables import Table
from scirocco.estimators.newton import vector
from scirocco.types import Array, Data, Key, Params, PyTree, Rows

_PROBES = 4  # random directions in which a change is measured
UNIFORM_SHARE = 0.1
"""Of the probabilities, so that no weight exceeds ten times that of a uniform batch."""


class Norms(NamedTuple):
    """Two norms of B_i L, for each row."""

    frobenius: np.ndarray
    spectral: np.ndarray


def bounded_sizes(model: Any, table: Table, centre: Params, factor: np.ndarray) -> Norms:
    """The norms of B_i L for every row (one pass); L is (d, d), or (d,) for a diagonal."""
    lower = np.diag(factor) if factor.ndim == 1 else factor
    dtype = jnp.result_type(*jax.tree.leaves(centre))
    found = table.each(_BoundNorms(model), (centre, np.asarray(lower, dtype)))
    return Norms(*(np.asarray(each, np.float64) for each in found))


def row_sizes(model: Any, table: Table, centre: Params) -> np.ndarray:
    """A Lipschitz constant L_i of each row's gradient, in units of the posterior's standard deviations, about.

    From the model's bound if it has one. Otherwise the change that is measured at the centre along random directions,
    |∇² log p(x_i | θ̂) ξ|, which is as good for choosing probabilities: estimates are unbiased for any.
    """
    squares = vector(table.sum(Squares(model), centre))[0].astype(np.float64)
    scale = np.where(squares > 0, 1.0 / np.sqrt(np.maximum(squares, 1e-300)), 0.0)
    if model.curvature_bound is not None:
        return bounded_sizes(model, table, centre, scale).spectral ** 2
    probes = np.random.default_rng(0).standard_normal((_PROBES, scale.size)) * scale
    dtype = jnp.result_type(*jax.tree.leaves(centre))
    found = table.each(_Changes(model), (centre, probes.astype(dtype), scale.astype(dtype)))
    return np.asarray(found, np.float64)


def shares(sizes: np.ndarray) -> np.ndarray:
    """Probabilities in proportion to the sizes, mixed with uniform ones."""
    total = sizes.sum()
    if not (np.isfinite(total) and total > 0):
        return np.full(len(sizes), 1.0 / len(sizes))
    return (1 - UNIFORM_SHARE) * sizes / total + UNIFORM_SHARE / len(sizes)


@dataclass(frozen=True)
class _BoundNorms:
    """The norms of B_i L at the position (a tree like the parameters, L)."""

    model: Any

    def each(self, position: PyTree, rows: Rows, key: Key | None = None) -> tuple[Array, Array]:
        like, factor = position
        back = ravel_pytree(like)[1]

        def one(row: PyTree) -> tuple[Array, Array]:
            def along(direction: Array) -> Array:
                return jnp.ravel(jnp.asarray(self.model.curvature_bound(back(direction), row)))

            image = jax.vmap(along, in_axes=1, out_axes=1)(factor)
            frobenius = jnp.sqrt(jnp.sum(image**2))
            return frobenius, frobenius if image.shape[0] == 1 else jnp.linalg.norm(image, 2)

        return jax.vmap(one)(rows)


@dataclass(frozen=True)
class _Changes:
    """The root mean square of |S H_i ξ| over directions ξ, at the position (centre, directions, diagonal of S)."""

    model: Any

    def each(self, position: PyTree, rows: Rows, key: Key | None = None) -> Array:
        centre, probes, scale = position
        back = ravel_pytree(centre)[1]

        def along(probe: Array) -> Array:
            change = jax.jvp(lambda at: self.model.summand.each(at, rows), (centre,), (back(probe),))[1]
            flat = jax.vmap(lambda tree: ravel_pytree(tree)[0])(change)
            return jnp.sum((flat * scale) ** 2, axis=-1)

        return jnp.sqrt(jnp.mean(jax.vmap(along)(probes), axis=0))


def empirical_fisher(model: Any, data: Data, params: Params, *, num_rows: int | None = 10_000, seed: int = 0) -> PyTree:
    r"""N/n Σ_i (∂ log p(x_i | θ))² over n rows: an estimate of the diagonal of the Fisher information at θ.

    A tree like the parameters (on the real line for transformed ones). Its inverse is a reasonable constant
    preconditioner: `sc.Recipe(eps, diffusion=jax.tree.map(lambda f: 1 / (f + damping), fisher))`. For a metric that
    depends on θ write G(θ) as a function, if it is known in closed form, and use `sc.SGRLD`.

    Parameters
    ----------
    model, data, params
        As for `sc.sample`; `params` is the point where the information is computed, best near the mode.
    num_rows
        Number of rows to use, drawn at random; None: all of them, in one pass.
    seed
        Seed for the choice of the rows.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, scirocco as sc
    >>> model = sc.Model(lambda mu, x: -0.5 * ((x - mu) / 2.0) ** 2)
    >>> x = 2.0 * np.random.default_rng(0).standard_normal(20_000).astype(np.float32)
    >>> float(sc.empirical_fisher(model, x, jnp.array(0.0))) / 20_000  # 1/σ² per row
    0.2...
    """
    source = as_source(data)
    position = model.unconstrain(jax.tree.map(lambda p: jnp.asarray(p, jnp.result_type(float)), params))
    batching = AllRows(source.num_rows, source.num_rows)
    if isinstance(source, ArraySource):
        table: Any = Resident(jax.tree.map(to_device, source.arrays), batching)
    else:
        table = Streamed(source, batching, automatic=True)
    if num_rows is None or num_rows >= source.num_rows:
        return table.sum(Squares(model), position)
    num_rows = _checks.positive_int(num_rows, "num_rows")
    rows = table.random_rows(num_rows, jax.random.key(seed))
    return _tree.scale(source.num_rows / num_rows, _sum(Squares(model), position, rows))


@dataclass(frozen=True)
class Squares:
    """Summand (∇ log p(x_i | θ))², elementwise."""

    model: Any

    def total(self, position: Params, rows: Rows, weights: Any = None, key: Key | None = None) -> PyTree:
        """The sum over rows."""
        squares = self.each(position, rows)
        if weights is None:
            return jax.tree.map(lambda v: v.sum(axis=0), squares)
        return jax.tree.map(lambda v: jnp.tensordot(weights.astype(v.dtype), v, axes=1), squares)

    def each(self, position: Params, rows: Rows, key: Key | None = None) -> PyTree:
        """The squares of each row."""
        return jax.tree.map(lambda g: g * g, self.model.summand.each(position, rows))


@partial(jax.jit, static_argnums=0)
def _sum(summand: Squares, position: Params, rows: Rows) -> PyTree:
    return summand.total(position, rows)
