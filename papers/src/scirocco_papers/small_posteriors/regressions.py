"""The regressions among the small posteriors; columns are uncentred and in the units in which they come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from scirocco import transforms
from scirocco.model import Model
from scirocco.types import Array, Params, Rows

_POSITIVE = transforms.positive

Parts = tuple[Model, dict[str, Any], dict[str, Any]]
"""Model, data and start."""


def log_normal_density(x: Array, mean: Any, sd: Any) -> Array:
    """Log density of N(mean, sd²), up to a constant."""
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd)


def log_lognormal_density(x: Array, median: float, spread: float) -> Array:
    """Log density of exp N(log median, spread²), up to a constant."""
    return -0.5 * (jnp.log(x / median) / spread) ** 2 - jnp.log(x)


def _coefficients(sd: Any) -> Callable[[Params], Array]:
    """Independent N(0, sd²) priors of `beta`."""

    def log_prior(params: Params) -> Array:
        beta = params["beta"]  # a double-precision `sd` in here would stay double once NUTS had traced it
        return -0.5 * jnp.sum((beta / jnp.array(sd, beta.dtype)) ** 2)

    return log_prior


# -- linear regression in raw units --------------------------------------------------------------------------


def _linear_rows(params: Params, rows: Rows) -> Array:
    return log_normal_density(rows["y"], rows["x"] @ params["beta"], params["sigma"])


def linear(rng: np.random.Generator) -> Parts:
    """Rent on income (a year), age and a share."""
    n, sd = 2_000, np.array([1e3, 0.1, 1e2, 1e3])
    x = np.stack([np.ones(n), rng.normal(6e4, 4e3, n), rng.uniform(25, 65, n), rng.beta(2.0, 3.0, n)], axis=1)
    y = x @ [150.0, 0.012, -2.5, 180.0] + rng.normal(0, 90, n)
    prior = _coefficients(sd)
    model = Model(
        _linear_rows,
        lambda p: prior(p) + log_lognormal_density(p["sigma"], 200.0, 1.0),
        vectorized=True,
        transforms={"beta": None, "sigma": _POSITIVE},
    )
    return model, {"x": x, "y": y}, {"beta": np.zeros(4), "sigma": 200.0}


# -- logistic regressions ------------------------------------------------------------------------------------


def _logistic_rows(params: Params, rows: Rows) -> Array:
    scores = rows["x"] @ params["beta"]
    return rows["y"] * scores - jax.nn.softplus(scores)


def _logistic(rng: np.random.Generator, x: np.ndarray, beta: np.ndarray | list[float], sd: Any) -> Parts:
    y = 1.0 * (rng.uniform(size=len(x)) < 1 / (1 + np.exp(-x @ beta)))
    return (Model(_logistic_rows, _coefficients(sd), vectorized=True), {"x": x, "y": y}, {"beta": np.zeros(x.shape[1])})


def logistic_raw(rng: np.random.Generator) -> Parts:
    """A disease on age, blood pressure (mmHg), cholesterol (mg/dl), body mass and smoking."""
    n = 5_000
    age = rng.normal(52, 11, n)
    pressure = 95 + 0.7 * age + rng.normal(0, 14, n)
    smoker = 1.0 * (rng.uniform(size=n) < 0.3)
    x = np.stack([np.ones(n), age, pressure, rng.normal(210, 38, n), 14 + rng.gamma(9.0, 1.4, n), smoker], axis=1)
    return _logistic(rng, x, [-10.0, 0.05, 0.02, 0.006, 0.06, 0.7], np.array([20.0, 0.5, 0.5, 0.5, 0.5, 5.0]))


def logistic_correlated(rng: np.random.Generator) -> Parts:
    """Thirty columns, each with correlation 0.95 with the next."""
    n, d, rho = 10_000, 30, 0.95
    x = rng.normal(size=(n, d))
    for j in range(1, d):
        x[:, j] = rho * x[:, j - 1] + np.sqrt(1 - rho**2) * x[:, j]
    return _logistic(rng, x, rng.normal(0, 0.4, d), 2.0)


# -- Poisson regression --------------------------------------------------------------------------------------


def _poisson_rows(params: Params, rows: Rows) -> Array:
    log_rate = rows["offset"] + rows["x"] @ params["beta"]
    return rows["y"] * log_rate - jnp.exp(log_rate)


def poisson(rng: np.random.Generator) -> Parts:
    """Cases in districts, on temperature, density (per km²), a share and the year since 2000; offset log(people)."""
    n = 3_000
    x = np.stack(
        [np.ones(n), rng.normal(15, 6, n), rng.gamma(2.0, 400.0, n), rng.beta(3.0, 5.0, n), rng.integers(5, 25, n)],
        axis=1,
    )
    offset = rng.normal(10.5, 0.8, n)
    y = 1.0 * rng.poisson(np.exp(offset + x @ [-6.0, 0.02, 2e-4, 1.2, -0.015]))
    model = Model(_poisson_rows, _coefficients(np.array([10.0, 1.0, 1e-2, 10.0, 1.0])), vectorized=True)
    return model, {"x": x, "offset": offset, "y": y}, {"beta": np.zeros(5)}


# -- robust regression ---------------------------------------------------------------------------------------


def _student_rows(params: Params, rows: Rows) -> Array:
    dof, sigma = params["dof"], params["sigma"]
    z = (rows["y"] - rows["x"] @ params["beta"]) / sigma
    constant = gammaln((dof + 1) / 2) - gammaln(dof / 2) - 0.5 * jnp.log(dof)
    return constant - jnp.log(sigma) - 0.5 * (dof + 1) * jnp.log1p(z**2 / dof)


def student(rng: np.random.Generator) -> Parts:
    """Errors with t tails, whose degrees of freedom are unknown."""
    n = 2_000
    x = np.stack([np.ones(n), rng.normal(0, 1, n), rng.normal(3, 0.5, n), rng.normal(20, 5, n)], axis=1)
    y = x @ [4.0, 2.0, -1.5, 0.3] + 0.8 * rng.standard_t(4, n)
    prior = _coefficients(10.0)
    model = Model(
        _student_rows,
        lambda p: prior(p) + log_lognormal_density(p["sigma"], 2.0, 1.0) + log_lognormal_density(p["dof"], 8.0, 1.0),
        vectorized=True,
        transforms={"beta": None, "sigma": _POSITIVE, "dof": _POSITIVE},
    )
    return model, {"x": x, "y": y}, {"beta": np.zeros(4), "sigma": 2.0, "dof": 8.0}


# -- huge numbers --------------------------------------------------------------------------------------------

HUGE_NOISE, HUGE_PRIOR = 3e4, 1e7
"""Standard deviations of an observation and of the prior of a coefficient."""


def _huge_rows(params: Params, rows: Rows) -> Array:
    return -0.5 * ((rows["y"] - rows["x"] @ params["beta"]) / HUGE_NOISE) ** 2


def huge(rng: np.random.Generator) -> Parts:
    """Sales on two columns with correlation 0.99, in money; the noise is known."""
    n = 1_000
    common = rng.normal(3, 1, n)
    x = np.stack([np.ones(n), common, common + rng.normal(0, 0.142, n)], axis=1)
    y = x @ [2e6, 1.5e6, -0.7e6] + rng.normal(0, HUGE_NOISE, n)
    model = Model(_huge_rows, _coefficients(HUGE_PRIOR), vectorized=True)
    return model, {"x": x, "y": y}, {"beta": np.zeros(3)}


# -- softmax regression --------------------------------------------------------------------------------------


def _softmax_rows(params: Params, rows: Rows) -> Array:
    scores = rows["x"] @ params["beta"]
    scores = jnp.concatenate([jnp.zeros_like(scores[:, :1]), scores], axis=1)  # class 0 is the reference
    chosen = jnp.take_along_axis(scores, rows["y"][:, None], axis=1)[:, 0]
    return chosen - jax.nn.logsumexp(scores, axis=1)


def softmax(rng: np.random.Generator) -> Parts:
    """Three classes on nine columns whose units range from 0.1 to 10."""
    n, d = 5_000, 10
    units = np.concatenate([[1.0], np.logspace(-1, 1, d - 1)])
    x = np.concatenate([np.ones((n, 1)), rng.normal(0.5, 1, (n, d - 1))], axis=1) * units
    beta = rng.normal(0, 0.5, (d, 2)) / units[:, None]
    gumbels = rng.gumbel(size=(n, 3)) + np.concatenate([np.zeros((n, 1)), x @ beta], axis=1)
    model = Model(_softmax_rows, _coefficients(5.0 / units[:, None]), vectorized=True)
    return model, {"x": x, "y": np.argmax(gumbels, axis=1)}, {"beta": np.zeros((d, 2))}
