"""Covertype for logistic regression: training and test rows, the posterior with Laplace priors, scores of draws.

Used by `zero-variance`, `logistic-covertype` and `posterior-bias`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import datasets
from scirocco.model import Model
from scirocco.models.regression.approximation import DesignRows as Table
from scirocco.models.regression.approximation import laplace as newton
from scirocco.types import Array, PyTree

COMMON = 0.01
"""Share of the rows in which a column must not be 0 to count as common."""
_DRAWS_AT_ONCE = 50


class Rows(NamedTuple):
    """Features and classes."""

    x: Any
    y: Any


def log_likelihood(beta: Array, row: Rows) -> Any:
    """Log likelihood of one row, y in {0, 1}."""
    eta = row.x @ beta
    return row.y * eta - jnp.logaddexp(0.0, eta)


def log_prior(beta: Array) -> Any:
    """Laplace with scale 1."""
    return -jnp.sum(jnp.abs(beta))


MODEL = Model(log_likelihood, log_prior)


@jax.jit
def scores(draws: PyTree, test: Rows) -> Any:
    """Mean log predictive density of the test rows, for each draw."""

    def one(beta: Array) -> Any:
        return jnp.mean(jax.vmap(log_likelihood, (None, 0))(beta, test))

    return jax.lax.map(one, draws, batch_size=_DRAWS_AT_ONCE)


def split(data: datasets.Covertype, seed: int) -> tuple[Rows, Rows]:
    """Training rows in random order, and a tenth for testing."""
    order = np.random.default_rng(seed).permutation(len(data.y))
    count = len(order) // 10
    parts = (order[count:], order[:count])
    train, test = (Rows(data.X[part], data.y[part].astype(np.float32)) for part in parts)
    return train, test


def first(train: Rows, share: float) -> Rows:
    """The first `share` of the training rows, on the device."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[: round(share * len(leaf))]), train)


def common(train: Rows) -> Rows:
    """Without the columns that are 0 in more than 99 % of the rows."""
    kept = np.mean(train.x != 0, axis=0) >= COMMON
    return Rows(np.ascontiguousarray(train.x[:, kept]), train.y)


def laplace(train: Rows) -> tuple[Any, Any]:
    """A point near the mode, by Newton's method, and L with L Lᵀ the inverse curvature there.

    With a normal prior of the same variance, 2: with so many rows the difference does not matter for a centre.
    """
    found = newton(Table(np.asarray(train.x), np.asarray(train.y), 2, False), 2.0)
    return jnp.asarray(found.here.at, jnp.float32), jnp.asarray(found.factor, jnp.float32)
