"""The shape of the posterior near a point: its curvature over all parameters, and coordinates that make it round.

Up to `DENSE_LIMIT` parameters the curvature is a matrix. Above, it is a diagonal D and some directions in which
A = D^(-1/2) H D^(-1/2) differs most from 1, stiff or slack: Ritz vectors of a block Krylov space of A, from
Hessian-vector products. The first block consists of random signs z, so that its products also give the diagonal of H
(z ∘ Az has mean diag A), which corrects the rows' squared gradients where the two differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from scirocco import _tree
from scirocco._programs import setup_program
from scirocco._random import Purpose, SeedPurpose, key_for
from scirocco.data import Resident, Table
from scirocco.data.batching import AllRows
from scirocco.errors import InvalidValueError
from scirocco.estimators.newton import RowCurvature, inverse_root, prior_curvature, whitening
from scirocco.model import Model
from scirocco.run.choose import limits
from scirocco.samplers.preconditioned import rows_times
from scirocco.types import Array, Key, Params, PyTree, Rows

DENSE_LIMIT = limits.LIMITS.dense_parameters
"""Maximum number of parameters for a dense matrix."""
_FLATTEST = 100.0
"""Smallest trusted eigenvalue, in units of the diagonal and of rounding."""
_BY_CHOLESKY, _POWER_STEPS = 200, 30
"""Parameters above which L is a Cholesky factor where it can be: eigenvectors take ten times as long."""
_HIDDEN = 1e-3
"""The same in coordinates that were round but for rounding: smaller ones are flat."""
_BLOCK, _PRODUCTS, _RANK = 16, 6, 48
"""Directions multiplied at a time, how often, and the maximum number of directions that are kept."""
_NEARLY = 2.0
"""As few directions are kept as bring the ratio of the other curvatures this close to the best."""
_STIFF = 4.0
"""A direction is stiff if its curvature is this many times the median."""


class Shape(NamedTuple):
    """L with LLᵀ about the posterior covariance, as `Preconditioned` writes it, and how it was computed."""

    factor: np.ndarray
    condition: float
    """Largest over smallest curvature, in the units of the parameters."""
    flat: bool = False
    """Whether some direction has negligible or negative curvature."""
    largest: float | None = None
    """The largest curvature in the coordinates of L, where it is known from more rows than a pilot uses."""


def shape_at(model: Model, table: Table, position: Params, kind: str, key: Key) -> Shape:
    """The posterior's shape at `position` (a mode), from all or many rows; `kind` is a `Preconditioned` metric."""
    size = _tree.size(position)
    if kind in ("diagonal", "low_rank"):
        precision = _over_rows(_DiagonalFisher(model), table, position, size, limits.LIMITS.diagonal_work, key)
        exact = kind == "low_rank" and size <= limits.LIMITS.exact_prior
        prior = _exact_prior_diagonal(model, position) if exact else _prior_diagonal(model, position)
        alone = diagonal_shape(np.asarray(precision, np.float64) + np.maximum(np.asarray(prior, np.float64), 0.0))
        return alone if kind == "diagonal" else _low_rank(model, table, position, alone, key)
    if size > DENSE_LIMIT:
        raise InvalidValueError(
            f"a full metric of {size} parameters would have {size**2} entries: use "
            f'sc.Preconditioned(..., metric="low_rank") above {DENSE_LIMIT} parameters.'
        )
    summand = (RowCurvature if kind == "laplace" else _Fisher)(model)
    likelihood = _over_rows(summand, table, position, size**2, limits.LIMITS.curvature_work, key)
    prior = np.asarray(prior_curvature(model, position), np.float64)
    precision = np.asarray(likelihood, np.float64) + prior
    shape = dense_shape(precision, likelihood.dtype)
    read = min(table.num_rows, int(limits.LIMITS.curvature_work / size**2))
    if kind == "laplace" and shape.flat and read == table.num_rows:
        return _refined(model, table, position, shape)
    if kind == "laplace" and not shape.flat and size > _BY_CHOLESKY:
        # 1 for the rows that were read; on others the Marchenko-Pastur law's
        return shape._replace(largest=1.0 if read == table.num_rows else (1 + (size / read) ** 0.5) ** 2)
    return shape


def programs(model: Model, table: Resident, position: Params) -> list[tuple[Any, tuple[Any, ...]]]:
    """The jitted functions of a dense "laplace" metric from all rows, with their arguments."""
    if (
        model.facts.row_cost(table.row_spec) > 1
        or table.num_rows * _tree.size(position) ** 2 > limits.LIMITS.curvature_work
    ):
        return []
    return [table.program(RowCurvature(model), position), (prior_curvature, (model, position))]


def _refined(model: Model, table: Table, position: Params, shape: Shape) -> Shape:
    """The same, with the directions that rounding hides in the matrix: in the coordinates of L they are not small."""
    factor = shape.factor.astype(np.float64)
    inner = factor.T @ _curvature_times(model, table, factor, table.num_rows, position)
    if not np.all(np.isfinite(inner)):
        return shape
    better, smallest = whitening(inner, _HIDDEN)
    factor = factor @ better
    spread = np.linalg.svd(factor, compute_uv=False)
    condition = float((spread[0] / spread[-1]) ** 2)
    return Shape(factor.astype(shape.factor.dtype), condition, smallest <= _HIDDEN)


def dense_shape(precision: np.ndarray, dtype: Any = np.float32, by_cholesky: int = _BY_CHOLESKY) -> Shape:
    """The factor of `newton.whitening`; flat and convex directions are bounded by what `dtype` resolves.

    Above `by_cholesky` parameters it is computed without eigenvectors.
    """
    floor = _FLATTEST * float(np.finfo(dtype).eps)
    if len(precision) > by_cholesky:
        factor = inverse_root(precision, floor)
        scaled = factor * np.sqrt(np.abs(np.diagonal(precision)))[:, None]
        stiffest = _largest_eigenvalue(partial(np.matmul, precision), len(factor))
        slackest, unscaled = (_largest_eigenvalue(partial(_gram_times, root), len(root)) for root in (scaled, factor))
        return Shape(factor.astype(dtype), stiffest * unscaled, not 1 / slackest > 2 * floor)
    factor, smallest = whitening(precision, floor)
    flat = smallest <= floor
    spread = np.linalg.svd(factor, compute_uv=False)
    return Shape(factor.astype(dtype), float((spread[0] / spread[-1]) ** 2), flat)


def _gram_times(root: np.ndarray, vector: np.ndarray) -> np.ndarray:
    return root @ (vector @ root)


def _largest_eigenvalue(times: Callable[[np.ndarray], np.ndarray], size: int) -> float:
    """The largest |eigenvalue| of a symmetric matrix, by power iteration: a little too small."""
    vector, length = np.random.default_rng([SeedPurpose.ROUNDNESS]).standard_normal(size), 1.0
    for _ in range(_POWER_STEPS):
        vector = times(vector / np.linalg.norm(vector))
        length = float(np.linalg.norm(vector))
    return length


def diagonal_shape(precision: np.ndarray) -> Shape:
    """1/√P; entries without information get the value of the least informed one."""
    known = precision[precision > 0]
    filled = np.where(precision > 0, precision, known.min() if len(known) else 1.0)
    return Shape((1.0 / np.sqrt(filled)).astype(np.float32), float(filled.max() / filled.min()))


def _low_rank(model: Model, table: Table, position: Params, alone: Shape, key: Key) -> Shape:
    """A diagonal, and the directions in which the posterior is much narrower or wider than it says."""
    size = alone.factor.size
    block, products = (_BLOCK, _PRODUCTS) if size <= limits.LIMITS.double_precision else (_BLOCK // 2, _PRODUCTS // 2)
    some = _sampled(table, int(limits.LIMITS.product_work / (size * 2 * block * products)), key_for(key, Purpose.PILOT))
    scale = alone.factor[:, None].astype(np.float64 if size <= limits.LIMITS.double_precision else np.float32)
    curvature = partial(_curvature_times, model, num_rows=table.num_rows, position=position)

    def image(vectors: np.ndarray, rows: Table = some) -> np.ndarray:
        return scale * curvature(rows, scale * vectors)

    first = _krylov(image, scale, block, products)
    whole, rest = _own_curvatures(*first, block)
    if not np.isfinite(whole.mean()) or whole.mean() < limits.LIMITS.curved:
        return alone
    values, vectors = _ritz(*_rescaled(*first, whole))
    alike, given = _window(values)[0], scale
    scale = given / np.sqrt(whole)[:, None]
    if alike > _NEARLY:  # otherwise nothing is left to be found
        scale, other = given / np.sqrt(rest)[:, None], scale
        again = _ritz(*_krylov(image, scale, block, products))
        if _window(again[0])[0] <= alike:
            values, vectors = again
        else:
            scale = other
    _, level, outside = _window(values)
    curvatures, directions = values[outside], vectors[:, outside]
    if some is not table:  # a direction that only those rows pick out has another curvature on other rows
        fresh = _sampled(table, int(limits.LIMITS.product_work / (size * _RANK)), key_for(key, Purpose.ROUNDNESS))
        curvatures, directions = _ritz(directions, image(directions, fresh))
    floor = _FLATTEST * float(np.finfo(np.float32).eps) * float(np.max(np.abs(values)))
    bent = np.maximum(np.abs(curvatures), floor)
    factor = np.column_stack([scale / np.sqrt(level), directions * np.sqrt(level / bent)])

    def round_image(vectors: np.ndarray) -> np.ndarray:
        return rows_times(factor, curvature(some, rows_times(factor, vectors.T).T).T, transposed=True).T

    largest = float(_ritz(*_krylov(round_image, scale, 2, _PRODUCTS))[0][-1])
    spread = float((scale.max() / scale.min()) ** 2 * np.max(np.abs(values)) / max(np.min(values), floor))
    return Shape(factor.astype(np.float32), spread, bool(np.min(values) <= floor), max(1.0, largest))


def _krylov(
    times: Callable[[np.ndarray], np.ndarray], like: np.ndarray, width: int, products: int
) -> tuple[np.ndarray, np.ndarray]:
    """An orthonormal basis of span(Z, AZ, A²Z, ...) (d, m), Z random signs, and A times it."""
    size, width = len(like), min(width, len(like))
    signs = np.random.default_rng([SeedPurpose.ROUNDNESS]).integers(2, size=(size, width))
    block = (2.0 * signs - 1).astype(like.dtype)
    basis = images = block[:, :0]
    for _ in range(min(products, size // width)):
        for _ in range(2):  # once is not enough in finite precision
            block = np.linalg.qr(block - basis @ (basis.T @ block))[0]
        basis, block = np.column_stack([basis, block]), times(block)
        images = np.column_stack([images, block])
    return basis, images


def _ritz(basis: np.ndarray, products: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors (d, m) of A within an orthonormal basis, given A times it."""
    inner = basis.T @ products
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    return values, basis @ vectors


def _window(values: np.ndarray) -> tuple[float, float, np.ndarray]:
    """Which eigenvalues become directions, so that those that are left differ least.

    Returns the ratio of the largest and the smallest that are left, the smallest, and the numbers of the others: the
    fewest, from either end, with which that ratio is at most `_NEARLY` times the best.
    """
    sizes = np.maximum(np.abs(values), 1e-9 * np.max(np.abs(values)))
    order = np.argsort(sizes)
    sizes, count = sizes[order], len(sizes)
    choices = []
    for taken in range(min(_RANK, count // 2) + 1):
        ratios = sizes[count - 1 - taken :] / sizes[: taken + 1]
        choices.append((float(ratios.min()), taken, int(np.argmin(ratios))))
    best = min(choices)[0]
    ratio, taken, low = next(choice for choice in choices if choice[0] <= _NEARLY * best)
    return ratio, float(sizes[low]), np.concatenate([order[:low], order[count - taken + low :]])


def _own_curvatures(basis: np.ndarray, products: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """The diagonal of A, given a Krylov basis of such blocks and A times it; that of A without its stiff directions.

    Hutchinson's estimate of what the stiff directions leave of A, plus their diagonal; drawn towards the mean as far as
    chance explains the differences. As in factor analysis, A = Δ + VVᵀ, stiff directions are not to narrow the rest.
    """
    values, ritz = _ritz(basis, products)
    stiff = values > _STIFF * np.median(values)
    length = np.sqrt(len(basis))
    signs = length * basis[:, :block]  # orthonormal, which random signs nearly are
    taken = ritz[:, stiff] @ (values[stiff, None] * (ritz[:, stiff].T @ signs))
    left = signs * (length * products[:, :block] - taken) / np.mean(signs**2, axis=1, keepdims=True)
    chance = float(np.mean(left.var(axis=1))) / max(1, left.shape[1] - 1)

    def drawn(found: np.ndarray) -> np.ndarray:
        mean = float(found.mean())
        share = max(0.0, 1 - chance / max(float(found.var()), 1e-300))
        return np.clip(mean + share * (found - mean), 1e-3 * abs(mean), 1e3 * abs(mean))

    rest = left.mean(axis=1)
    return drawn(rest + ritz[:, stiff] ** 2 @ values[stiff]), drawn(rest)


def _rescaled(basis: np.ndarray, products: np.ndarray, relative: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A basis and A times it, for R^(-1/2) A R^(-1/2) with the diagonal R."""
    root = np.sqrt(relative)[:, None]
    turned, mixing = np.linalg.qr(root * basis)
    return turned, np.linalg.solve(mixing.T, (products / root).T).T


def _sampled(table: Table, affordable: int, key: Key) -> Table:
    """The table, or one of so many random rows."""
    if table.num_rows <= affordable:
        return table
    count = max(2, affordable)
    return Resident(table.random_rows(count, key, False), AllRows(count, count))


def _curvature_times(model: Model, table: Table, vectors: np.ndarray, num_rows: int, position: Params) -> np.ndarray:
    """-∇² log posterior times vectors (d, n), from the rows of a table, counted as `num_rows`."""
    across = np.asarray(vectors.T, jnp.result_type(*jax.tree.leaves(position)))
    with jax.default_matmul_precision("highest"):  # slack directions are differences of large numbers
        likelihood = table.sum(_CurvatureTimes(model), (position, across))
        prior = _prior_times(model, position, across)
    total = num_rows / table.num_rows * np.asarray(likelihood, vectors.dtype) - np.asarray(prior)
    return np.ascontiguousarray(total.T, vectors.dtype)


@setup_program(1)
def _prior_times(model: Model, position: Params, vectors: Array) -> Array:
    return _products(model.log_prior_density, position, vectors)


def _products(function: Callable[[Params], Array], at: Params, vectors: Array) -> Array:
    """The Hessian times each of some vectors (n, d)."""
    flat, unravel = ravel_pytree(at)
    gradient = jax.grad(lambda x: function(unravel(x)))
    return jax.vmap(lambda vector: jax.jvp(gradient, (flat,), (vector,))[1])(vectors)


def _over_rows(summand: Any, table: Table, position: Params, work_per_row: int, work: float, key: Key) -> np.ndarray:
    """The sum over all rows, or N/n times that over n random ones."""
    count = limits.LIMITS.costly_rows if summand.model.facts.row_cost(table.row_spec) > 1 else int(work / work_per_row)
    some = _sampled(table, count, key)
    found = np.asarray(some.sum(summand, position))
    return found if some is table else np.asarray(table.num_rows / some.num_rows * found, found.dtype)


@setup_program(1)
def _prior_diagonal(model: Model, position: Params) -> Array:
    """The diagonal of the prior's curvature, from one product with ones: exact for independent parameters."""
    ones = jax.tree.map(jnp.ones_like, position)
    product = jax.jvp(jax.grad(model.log_prior_density), (position,), (ones,))[1]
    return -ravel_pytree(product)[0]


@setup_program(1)
def _exact_prior_diagonal(model: Model, position: Params) -> Array:
    """The same from one product for each parameter."""
    flat, unravel = ravel_pytree(position)
    gradient = jax.grad(lambda x: -model.log_prior_density(unravel(x)))

    def entry(number: Array) -> Array:
        return jax.jvp(gradient, (flat,), (jnp.zeros_like(flat).at[number].set(1.0),))[1][number]

    return jax.lax.map(entry, jnp.arange(flat.size), batch_size=64)


@dataclass(frozen=True)
class OfModel:
    """A summand that belongs to a model, one compiled program for each, of which only totals are needed."""

    model: Model

    def _gradients(self, position: Params, rows: Rows) -> Array:
        return jax.vmap(lambda tree: ravel_pytree(tree)[0])(self.model.summand.each(position, rows))


class _CurvatureTimes(OfModel):
    """-∇² log p(x_i | θ) v for each of some vectors v, at the position (θ, vectors)."""

    def total(self, position: PyTree, rows: Rows, weights: Array | None = None, key: Key | None = None) -> Array:
        at, vectors = position
        return -_products(lambda p: self.model.log_likelihood_sum(p, rows, weights), at, vectors)


class _ByRow(OfModel):
    """A summand that computes the gradient of each row."""

    def numbers_per_row(self, position: Params) -> int:
        """Fewer rows at a time, for their memory."""
        return _tree.size(position)


class _Fisher(_ByRow):
    """g_i g_iᵀ with g_i = ∇ log p(x_i | θ)."""

    def total(self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None) -> Array:
        gradients = self._gradients(position, rows)
        return gradients.T @ (gradients if weights is None else weights[:, None] * gradients)


class _DiagonalFisher(_ByRow):
    """g_i², elementwise."""

    def total(self, position: Params, rows: Rows, weights: Array | None = None, key: Key | None = None) -> Array:
        squares = self._gradients(position, rows) ** 2
        return squares.sum(axis=0) if weights is None else weights @ squares
