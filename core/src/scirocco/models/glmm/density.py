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
from scirocco.model.families import FAMILIES, PARAMETERS, log_prior
from scirocco.types import Array, Params, Rows

SCALE = 2.5
"""Standard deviation of coefficients, and of the half-normal prior of the deviations of effects."""


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
        total = -0.5 * jnp.sum((sd / SCALE) ** 2)
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
        total = -0.5 * jnp.sum((theta["coef"] / SCALE) ** 2)
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
