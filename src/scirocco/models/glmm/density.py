"""Densities of generalised linear mixed models: rows, and priors of the global parameters.

Everything is in internal units: columns of mean 0 and deviation 1, effects of groups per deviation of their column, a
continuous response in units of its deviation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from scirocco import transforms
from scirocco.types import Array, Params, Rows

FAMILIES = ("normal", "bernoulli", "binomial", "poisson", "negative_binomial", "student")
CONTINUOUS = ("normal", "student")
SCALE = 2.5
"""Standard deviation of coefficients, and of the half-normal prior of the deviations of effects."""
FREEDOM = (2.0, 0.1)
"""Gamma prior of the degrees of freedom."""
_LARGE = 20.0


@dataclass(frozen=True)
class Factor:
    """A term (effects | factor): its number among the terms, and how many effects a level has."""

    number: int
    size: int
    correlated: bool
    centred: bool = False
    """Of a factor whose levels are global parameters: whether those are the effects, or standard normal."""

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
        u = theta[name]
        if self.centred:
            total -= len(u) * jnp.sum(jnp.log(sd))
            u = u / sd
            if self.size > 1 and self.correlated:
                root = theta[f"root_{self.number}"]
                total -= len(u) * jnp.sum(jnp.log(jnp.diagonal(root)))
                u = jax.scipy.linalg.solve_triangular(root, u.T, lower=True).T
        return total - 0.5 * jnp.sum(u**2)

    def level(self, theta: Params, place: Array) -> Array:
        """The effects of a level that is a global parameter."""
        own = theta[f"effects_{self.number}"][place]
        return own if self.centred else self.effects(theta, own)


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
            eta += row[f"z_{factor.number}"] @ factor.level(theta, row[f"level_{factor.number}"])
        return row.get("weight", 1.0) * log_density(self.family, row, eta, theta)


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
        if "noise" in theta:
            total -= theta["noise"]
        if "dispersion" in theta:
            total -= theta["dispersion"]
        if "freedom" in theta:
            total += (FREEDOM[0] - 1) * jnp.log(theta["freedom"]) - FREEDOM[1] * theta["freedom"]
        return total


def log_density(family: str, row: Rows, eta: Array, theta: Params) -> Array:
    """log p(y | η, θ), up to terms without parameters."""
    y = row["y"]
    if family == "bernoulli":
        return -jax.nn.softplus((1.0 - 2.0 * y) * eta)
    if family == "binomial":
        return y * eta - row["trials"] * jax.nn.softplus(eta)
    if family == "poisson":
        return y * eta - jnp.exp(eta)
    if family == "negative_binomial":
        shape = 1.0 / theta["dispersion"]
        ratio = eta - jnp.log(shape)
        return _rising(shape, y) + y * ratio - (shape + y) * jax.nn.softplus(ratio)
    z = (y - eta) / theta["noise"]
    if family == "normal":
        return -0.5 * z**2 - jnp.log(theta["noise"]) - 0.5 * math.log(2 * math.pi)
    nu = theta["freedom"]
    constant = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) - 0.5 * jnp.log(nu * math.pi)
    return constant - jnp.log(theta["noise"]) - 0.5 * (nu + 1.0) * jnp.log1p(z**2 / nu)


def _rising(shape: Array, y: Array) -> Array:
    """log Γ(shape + y) - log Γ(shape), also where the two nearly cancel."""
    near = jnp.maximum(shape, _LARGE)
    stirling = (near + y - 0.5) * jnp.log1p(y / near) + y * jnp.log(near) - y
    stirling += (1.0 / (near + y) - 1.0 / near) / 12.0
    small = jnp.minimum(shape, _LARGE)
    return jnp.where(shape > _LARGE, stirling, gammaln(small + y) - gammaln(small))


def constraints(names: Iterable[str]) -> dict[str, Any]:
    """Transforms of the global parameters, by name."""
    found: dict[str, Any] = {}
    for name in names:
        if name.startswith("root_"):
            found[name] = transforms.cholesky_correlation
        elif name.startswith("sd_") or name in ("noise", "dispersion", "freedom"):
            found[name] = transforms.positive
        else:
            found[name] = None
    return found


def mean_of(family: str, eta: np.ndarray) -> np.ndarray:
    """E[y | η], of one trial for binomial responses."""
    if family in ("bernoulli", "binomial"):
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(eta, -700, 700))))
    return np.exp(eta) if family in ("poisson", "negative_binomial") else eta
