"""What the moves of the blocked Gibbs sampler share: the layout of their programs, rows, small triangles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from scirocco.model import Model
from scirocco.model.families import FAMILIES
from scirocco.model.groups import Root
from scirocco.models.glmm.density import Factor
from scirocco.types import Array, Params


@dataclass(frozen=True)
class Layout:
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


def predictor(layout: Layout, data: dict[str, Any], theta: Params, effects: list[Array]) -> Array:
    """η of each row."""
    eta = theta["coef"] @ data["x"] + data.get("offset", 0.0)
    for factor in layout.factors:
        eta += contribution(data, factor, effects[factor.number])
    return eta


def contribution(data: dict[str, Any], factor: Factor, effects: Array) -> Array:
    """Σ_j z_j b_j of each row."""
    level, z = data[f"level_{factor.number}"], data[f"z_{factor.number}"]
    return sum((z[j] * effects[j][level] for j in range(1, factor.size)), start=z[0] * effects[0][level])


def of_rows(family: str, data: dict[str, Any], theta: Params, eta: Array) -> Array:
    """The log likelihood of each row."""
    return data.get("weight", 1.0) * FAMILIES[family].log_density(data, eta, theta)


def slopes(family: str, data: dict[str, Any], theta: Params, eta: Array) -> tuple[Array, Array, Array]:
    """The log likelihood of each row, its derivative in η, and its information (positive)."""
    ones = jnp.ones_like(eta)

    def slope(at: Array) -> tuple[Array, Array]:
        return jax.jvp(lambda x: of_rows(family, data, theta, x), (at,), (ones,))

    (value, first), (_, second) = jax.jvp(slope, (eta,), (ones,))
    expected = FAMILIES[family].information(theta, data.get("weight", ones))
    return value, first, -second if expected is None else expected


def level_sums(data: dict[str, Any], factor: Factor, num_levels: int, columns: list[Array]) -> list[Array]:
    """Sums of columns over the rows of each level."""
    level = data[f"level_{factor.number}"]
    return [jax.ops.segment_sum(column, level, num_levels) for column in columns]


def expansion(
    layout: Layout, data: dict[str, Any], theta: Params, factor: Factor, num_levels: int, eta: Array
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
