"""Densities of generalised linear mixed models: rows, and priors of the global parameters.

Everything is in internal units: columns of mean 0 and deviation 1, effects of groups per deviation of their column, a
continuous response in units of its spread. `scirocco.model.families` has the densities of responses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from scirocco import transforms
from scirocco._adjustable import Adjustable
from scirocco.model import Model
from scirocco.model.families import FAMILIES, PARAMETERS, log_prior
from scirocco.model.groups import Root
from scirocco.types import Array, Params, Rows

Columns = dict[str, Any]
"""What the rows have, by name: `x`, `y`, `z_0`, `level_0`, ..., and what is computed of them once."""


@dataclass
class PriorScale(Adjustable):
    """How wide the priors are."""

    scale: float = 2.5
    """Standard deviation of coefficients, and of the half-normal prior of the deviations of effects."""


PRIOR = PriorScale()


@dataclass(frozen=True)
class Factor:
    """A term (effects | factor): its number among the terms, and how many effects a level has."""

    number: int
    size: int
    correlated: bool

    def effects(self, theta: Params, u: Array) -> Array:
        """The effects of a level, from standard normal numbers (q,)."""
        if self.size > 1 and self.correlated:
            u = theta[f"root_{self.number}"] @ u
        return theta[f"sd_{self.number}"] * u

    def log_prior(self, theta: Params) -> Array:
        """Of deviations, correlations (uniform over correlation matrices), and levels that are global parameters."""
        sd = theta[f"sd_{self.number}"]
        total = -0.5 * jnp.sum((sd / PRIOR.scale) ** 2)
        if self.size > 1 and self.correlated:
            diagonal = jnp.diagonal(theta[f"root_{self.number}"])
            total += jnp.sum(jnp.arange(self.size - 2, -1, -1) * jnp.log(diagonal[1:]))
        name = f"effects_{self.number}"
        if name not in theta:
            return total
        u = theta[name] / sd
        total -= len(u) * jnp.sum(jnp.log(sd))
        if self.size > 1 and self.correlated:
            root = theta[f"root_{self.number}"]
            total -= len(u) * jnp.sum(jnp.log(jnp.diagonal(root)))
            u = jax.scipy.linalg.solve_triangular(root, u.T, lower=True).T
        return total - 0.5 * jnp.sum(u**2)


@dataclass(frozen=True)
class RowLikelihood:
    """log p(y | row, θ, u): u are the standard normal numbers of the row's level of the factor `inner`."""

    family: str
    inner: Factor | None
    outer: tuple[Factor, ...]

    def __call__(self, theta: Params, u: Any, row: Rows) -> Array:
        """The log likelihood of a row."""
        eta = row["x"] @ theta["coef"] + row.get("offset", 0.0)
        if self.inner is not None:
            eta += row[f"z_{self.inner.number}"] @ self.inner.effects(theta, u)
        for factor in self.outer:
            number = factor.number
            eta += row[f"z_{number}"] @ theta[f"effects_{number}"][row[f"level_{number}"]]
        return row.get("weight", 1.0) * FAMILIES[self.family].log_density(row, eta, theta)


@dataclass(frozen=True)
class PlainRow:
    """A `RowLikelihood` without local variables, as `sc.Model` takes it."""

    of: RowLikelihood

    def __call__(self, theta: Params, row: Rows) -> Array:
        """The log likelihood of a row."""
        return self.of(theta, None, row)


def standard_normal(u: Array, theta: Params) -> Array:
    """The log density of the numbers of a level."""
    return -0.5 * jnp.sum(u**2) - 0.5 * u.size * math.log(2 * math.pi)


@dataclass(frozen=True)
class GlobalPrior:
    """log prior of the global parameters."""

    family: str
    factors: tuple[Factor, ...]

    def __call__(self, theta: Params) -> Array:
        """The log density."""
        total = -0.5 * jnp.sum((theta["coef"] / PRIOR.scale) ** 2)
        for factor in self.factors:
            total += factor.log_prior(theta)
        return total + log_prior(theta)


def constraints(names: Iterable[str]) -> dict[str, Any]:
    """Transforms of the global parameters, by name."""
    found: dict[str, Any] = {}
    for name in names:
        if name.startswith("root_"):
            found[name] = transforms.cholesky_correlation
        elif name.startswith("sd_") or name in PARAMETERS:
            found[name] = transforms.positive
        else:
            found[name] = None
    return found


# -- what the moves of the blocked Gibbs sampler share: the layout of their programs, rows, small triangles ------------


@dataclass(frozen=True)
class SweepLayout:
    """What does not change, and is part of the programs."""

    family: str
    model: Model
    """The global parameters, with priors and transforms."""
    factors: tuple[Factor, ...]
    shifted: tuple[tuple[int, ...], ...]
    """For each factor, the coefficients whose columns its effects can replace."""
    nested: tuple[tuple[int, int, int, int], ...]
    """Outer and inner factor of nested pairs, and the places of their intercepts."""
    small: tuple[int, ...] = ()
    """Factors with few levels, which are drawn together with the coefficients."""

    @property
    def is_conjugate(self) -> bool:
        """Whether effects are normal given everything else."""
        return FAMILIES[self.family].is_conjugate

    @property
    def large(self) -> tuple[int, ...]:
        """The factors whose effects follow when those are drawn."""
        return tuple(f.number for f in self.factors if f.number not in self.small) if self.small else ()

    def root(self, theta: Params, number: int) -> Array:
        """The Cholesky factor of the covariance of a factor's effects."""
        factor, sd = self.factors[number], theta[f"sd_{number}"]
        correlated = factor.size > 1 and factor.correlated
        return sd[:, None] * (theta[f"root_{number}"] if correlated else jnp.eye(factor.size, dtype=sd.dtype))

    def entries(self, number: int) -> list[tuple[int, int]]:
        """The entries of that matrix that are not always 0."""
        factor = self.factors[number]
        size = factor.size
        return [(k, j) for k in range(size) for j in range(k + 1) if k == j or factor.correlated]

    def linear(self, theta: Params) -> Array:
        """The parameters that the linear predictor is linear in, given standardised effects."""
        found = [theta["coef"]]
        for factor in self.factors:
            root = self.root(theta, factor.number)
            found.append(jnp.stack([root[entry] for entry in self.entries(factor.number)]))
        return jnp.concatenate(found)


# -- rows --------------------------------------------------------------------------------------------------------------


def predictor(layout: SweepLayout, data: Columns, theta: Params, effects: list[Array]) -> Array:
    """η of each row."""
    eta = theta["coef"] @ data["x"] + data.get("offset", 0.0)
    for factor in layout.factors:
        eta += contribution(data, factor, effects[factor.number])
    return eta


def contribution(data: Columns, factor: Factor, effects: Array) -> Array:
    """Σ_j z_j b_j of each row."""
    level, z = data[f"level_{factor.number}"], data[f"z_{factor.number}"]
    return sum((z[j] * effects[j][level] for j in range(1, factor.size)), start=z[0] * effects[0][level])


def of_rows(family: str, data: Columns, theta: Params, eta: Array) -> Array:
    """The log likelihood of each row."""
    return data.get("weight", 1.0) * FAMILIES[family].log_density(data, eta, theta)


def slopes(family: str, data: Columns, theta: Params, eta: Array) -> tuple[Array, Array, Array]:
    """The log likelihood of each row, its derivative in η, and its information (positive)."""
    ones = jnp.ones_like(eta)

    def slope(at: Array) -> tuple[Array, Array]:
        return jax.jvp(lambda x: of_rows(family, data, theta, x), (at,), (ones,))

    (value, first), (_, second) = jax.jvp(slope, (eta,), (ones,))
    expected = FAMILIES[family].information(theta, data.get("weight", ones))
    return value, first, -second if expected is None else expected


def level_sums(data: Columns, factor: Factor, num_levels: int, columns: list[Array]) -> list[Array]:
    """Sums of columns over the rows of each level."""
    level = data[f"level_{factor.number}"]
    return [jax.ops.segment_sum(column, level, num_levels) for column in columns]


def expansion(
    layout: SweepLayout, data: Columns, theta: Params, factor: Factor, num_levels: int, eta: Array
) -> tuple[Array, Array, Array]:
    """Log likelihoods of rows; gradient (q, levels) and information (q, q, levels) of a factor's effects at η."""
    z, size = data[f"z_{factor.number}"], factor.size
    pairs = [(j, k) for j in range(size) for k in range(j + 1)]
    values, first, information = slopes(layout.family, data, theta, eta)
    columns = [first * z[j] for j in range(size)]
    if layout.is_conjugate:  # always the same, but for the noise
        sums = level_sums(data, factor, num_levels, columns)
        sums += list(data[f"gram_{factor.number}"] / theta["noise"] ** 2)
    else:
        columns += [information * z[j] * z[k] for j, k in pairs]
        sums = level_sums(data, factor, num_levels, columns)
    matrix = [[jnp.zeros(())] * size for _ in range(size)]
    for (j, k), total in zip(pairs, sums[size:], strict=True):
        matrix[j][k] = matrix[k][j] = total
    return values, jnp.stack(sums[:size]), jnp.stack([jnp.stack(row) for row in matrix])


# -- small triangles ---------------------------------------------------------------------------------------------------


def transposed(root: Root, x: Array) -> Array:
    """Cᵀ x."""
    size = len(root)
    return jnp.stack([sum(root[k][j] * x[k] for k in range(j, size)) for j in range(size)])


def solve(root: Array, x: Array) -> Array:
    """L⁻¹ x for one small triangle and many columns: a library call would take longer than the rows."""
    found = list[Array]()
    for i in range(len(root)):
        rest = sum((root[i, j] * found[j] for j in range(i)), start=jnp.zeros((), x.dtype))
        found.append((x[i] - rest) / root[i, i])
    return jnp.stack(found)


def precision(root: Array) -> Array:
    """(L Lᵀ)⁻¹."""
    half = solve(root, jnp.eye(len(root), dtype=root.dtype))
    return half.T @ half
