"""The posteriors of `choosing.py`: what people come with, each with a known answer.

Rows are simulated with one seed, in double precision, and rounded to single. Chains start at the posterior mean, as if
an optimiser had been run for nothing (with two modes, at one of them), so that a table tells the law of a chain and how
fast it mixes. The way there is a problem of its own, `far`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import choosing_truth as truth
import jax
import jax.numpy as jnp
import numpy as np
from choosing_truth import Truth

import scirocco as sc
from scirocco_papers.small_posteriors.problems import small_posterior

PRIOR_SD = 3.0
CONCENTRATION = 0.1


@dataclass(frozen=True)
class Problem:
    """A model, its rows, where chains start, and what they should find."""

    name: str
    title: str
    model: Any
    data: Any
    start: Any
    truth: Truth
    batch_size: int
    budget: float
    """Row gradients a chain may use, the set-up apart."""
    view: Callable[[Any], Any] = lambda draws: draws
    """From the draws of a run to the parameters of `truth`."""
    extra: dict[str, Any] = field(default_factory=dict)
    """What some estimators need to know of the rows."""

    @property
    def num_rows(self) -> int:
        """N."""
        return len(jax.tree.leaves(self.data)[0])


# -- regressions ---------------------------------------------------------------------------------------------


def _logistic_rows(beta: Any, rows: Any) -> Any:
    scores = rows["x"] @ beta
    return rows["y"] * scores - jax.nn.softplus(scores)


def _logistic_model(prior_sd: np.ndarray) -> sc.Model:
    scale = np.asarray(prior_sd, np.float32)
    return sc.Model(_logistic_rows, lambda beta: -0.5 * jnp.sum((beta / scale) ** 2), vectorized=True)


def _logistic(rng: np.random.Generator, x: np.ndarray, beta: np.ndarray, prior_sd: np.ndarray) -> Any:
    """Model, rows, start and truth."""
    x = x.astype(np.float32)
    y = (rng.random(len(x)) < 1 / (1 + np.exp(-x @ beta))).astype(np.float32)
    found = truth.logistic(x, y, prior_sd)
    return _logistic_model(prior_sd), {"x": x, "y": y}, jnp.asarray(found.mean, jnp.float32), found


@functools.cache
def plain(num_rows: int, budget: float) -> Problem:
    """Standardised, independent columns."""
    rng = np.random.default_rng(1)
    x = np.concatenate([np.ones((num_rows, 1)), rng.normal(size=(num_rows, 9))], axis=1)
    parts = _logistic(rng, x, np.linspace(-1, 1, 10), np.full(10, PRIOR_SD))
    return Problem("plain", "logistic regression, standardised columns", *parts, 500, budget)


def far(num_rows: int, budget: float) -> Problem:
    """The same posterior from zero, about a hundred standard deviations away."""
    near = plain(num_rows, budget)
    title = "the same from a far start"
    return dataclasses.replace(near, name="far", title=title, start=jnp.zeros_like(near.start))


def raw(num_rows: int, budget: float) -> Problem:
    """The same in raw units: columns that are not centred, correlated, and of sizes from 0.2 to 100."""
    rng = np.random.default_rng(2)
    z = rng.normal(size=(num_rows, 9))
    for j in range(1, 9):
        z[:, j] = 0.7 * z[:, j - 1] + np.sqrt(1 - 0.7**2) * z[:, j]
    units = np.geomspace(0.2, 100, 9)
    x = np.concatenate([np.ones((num_rows, 1)), units * (1 + z)], axis=1)
    beta = np.concatenate([[0.0], np.linspace(-0.5, 0.5, 9) / units])
    parts = _logistic(rng, x, beta, PRIOR_SD * np.concatenate([[1.0], 1 / units]))
    return Problem("raw", "logistic regression, raw units, correlated columns", *parts, 500, budget)


def small(num_rows: int, budget: float) -> Problem:
    """Few rows."""
    rng = np.random.default_rng(3)
    x = np.concatenate([np.ones((num_rows, 1)), rng.normal(size=(num_rows, 9))], axis=1)
    parts = _logistic(rng, x, np.linspace(-1, 1, 10), np.full(10, PRIOR_SD))
    return Problem("small", "logistic regression, few rows", *parts, 100, budget)


LARGE_SHARE, LARGE_SIZE = 1e-3, 100.0


def heavy(num_rows: int, budget: float) -> Problem:
    """Linear regression in which one row in a thousand is a hundred times as large as the others."""
    rng = np.random.default_rng(4)
    large = np.arange(num_rows) < LARGE_SHARE * num_rows
    x = rng.normal(size=(num_rows, 10)) * np.where(large, LARGE_SIZE, 1.0)[:, None]
    order = rng.permutation(num_rows)
    x, large = x[order].astype(np.float32), large[order]
    y = (x @ np.linspace(-1, 1, 10) + rng.normal(size=num_rows)).astype(np.float32)
    model = sc.Model(
        lambda beta, rows: -0.5 * (rows["y"] - rows["x"] @ beta) ** 2,
        lambda beta: -0.5 * jnp.sum((beta / PRIOR_SD) ** 2),
        vectorized=True,
    )
    extra = {"sizes": np.linalg.norm(x, axis=1), "strata": large.astype(np.int32)}
    title = "linear regression, a few rows with huge gradients"
    found = truth.linear(x, y, PRIOR_SD)
    start = jnp.asarray(found.mean, jnp.float32)
    return Problem("heavy", title, model, {"x": x, "y": y}, start, found, 500, budget, extra=extra)


# -- others --------------------------------------------------------------------------------------------------

DISTANCE = 0.7
"""Between the halves of the mixture; with 1,000 rows of this seed the saddle is 2.6 below the modes in log density."""


def bimodal(num_rows: int, budget: float) -> Problem:
    """x ~ N(θ₁, 1)/2 + N(θ₁ + θ₂, 1)/2 (Welling & Teh 2011): (θ₁ + θ₂, -θ₂) fits as well as (θ₁, θ₂)."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=num_rows) + DISTANCE * (rng.random(num_rows) < 0.5)
    x = (np.round(x * 20) / 20).astype(np.float32)  # few values, so that a grid is cheap
    values, counts = np.unique(x.astype(np.float64), return_counts=True)

    def log_density(points: np.ndarray) -> np.ndarray:
        total = -0.05 * points[:, 0] ** 2 - 0.5 * points[:, 1] ** 2
        for value, count in zip(values, counts, strict=True):
            first, second = value - points[:, 0], value - points[:, 0] - points[:, 1]
            total += count * np.logaddexp(-0.5 * first**2, -0.5 * second**2)
        return total

    model = sc.Model(
        lambda p, x: jnp.logaddexp(-0.5 * (x - p[0]) ** 2, -0.5 * (x - p[0] - p[1]) ** 2),
        lambda p: -0.05 * p[0] ** 2 - 0.5 * p[1] ** 2,
    )
    middle = float(x.mean())
    found = truth.plane(log_density, (middle - 1.0, -2.0), (middle + 1.0, 2.0))
    start = jnp.array([middle - 0.32, 0.65], jnp.float32)
    return Problem("bimodal", "a mixture with two modes", model, x, start, found, 100, budget)


def hierarchical(num_rows: int, budget: float) -> Problem:
    """Twenty schools with very unequal numbers of pupils; positive scales."""
    rng = np.random.default_rng(6)
    share = np.linspace(1, 10, 20)
    group = rng.choice(20, num_rows, p=share / share.sum()).astype(np.int32)
    y = (rng.normal(500, 25, 20)[group] + rng.normal(0, 20, num_rows)).astype(np.float32)
    like = small_posterior("hierarchical")
    found = truth.hierarchical(y.astype(np.float64), group)
    rows = {"group": group, "y": y}
    title = "hierarchical normal, positive scales"
    mu, sigma, tau = (jnp.float32(value) for value in found.mean[:3])
    start = {"mu": mu, "sigma": sigma, "tau": tau, "theta": jnp.asarray(found.mean[3:], jnp.float32)}
    return Problem("hierarchical", title, like.model, rows, start, found, 500, budget)


def simplex(num_rows: int, budget: float) -> Problem:
    """Ten categories of which three are frequent, one is rare and six are never seen."""
    shares = np.array([0.8, 0.1, 0.0999, 0.0001, 0, 0, 0, 0, 0, 0])
    counts = np.round(shares * num_rows).astype(int)
    z = np.random.default_rng(7).permutation(np.repeat(np.arange(10), counts)).astype(np.int32)
    model = sc.CountModel(CONCENTRATION, lambda omega, category: jax.nn.one_hot(category, 10))
    concentration = CONCENTRATION + counts
    found = truth.dirichlet(concentration)
    extra = {"concentration": concentration, "strata": z}
    return Problem(
        "simplex",
        "proportions of ten categories, most of them empty",
        model,
        z,
        jnp.asarray(found.mean, jnp.float32),
        found,
        500,
        budget,
        extra=extra,
    )


def log_gammas(problem: Problem) -> Problem:
    """The simplex for samplers on the real line: u = log θ with θ gamma variables, ω = softmax(u)."""
    model = sc.Model(
        lambda u, category: jax.nn.log_softmax(u)[category], lambda u: jnp.sum(CONCENTRATION * u - jnp.exp(u))
    )
    return dataclasses.replace(
        problem,
        model=model,
        start=jnp.log(problem.start),
        view=lambda u: np.asarray(jax.nn.softmax(jnp.asarray(u), axis=-1)),
    )


MAKERS = {
    "plain": plain,
    "far": far,
    "raw": raw,
    "heavy": heavy,
    "bimodal": bimodal,
    "hierarchical": hierarchical,
    "simplex": simplex,
    "small": small,
}
ROWS = {"bimodal": 1_000, "small": 1_000}
"""Others have 100,000; a quick run a tenth of those."""


def problem(name: str, quick: bool) -> Problem:
    """One by name; a quick one has fewer rows and a smaller budget."""
    num_rows = ROWS.get(name, 10_000 if quick else 100_000)
    return MAKERS[name](num_rows, 5e5 if quick else 5e6)
