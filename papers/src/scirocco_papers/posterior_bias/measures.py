"""Bias of samplers on subsets of covertype: truth by NUTS, and what a run with automatic steps is worth beside it.

The prior is N(0, 2), which has the variance of the thesis' Laplace prior but a curvature. With the latter, for which
the Hessian knows nothing, one cell is made as a warning: see `KINKED`.
"""

from __future__ import annotations

import math
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco._extras import require
from scirocco.errors import DivergenceError, SciroccoWarning
from scirocco.estimators import Estimator, Full
from scirocco.model import Model
from scirocco.run import sample
from scirocco.samplers import Sampler
from scirocco.types import Array, PyTree
from scirocco_papers.covertype_rows import Rows, common, first, laplace, log_prior
from scirocco_papers.nuts import Nuts

NUTS_CHAINS, NUTS_WARMUP = 2, 300
PRIOR_VARIANCE = 2.0


def _rows_log_likelihood(beta: Array, rows: Rows) -> Array:
    scores = rows.x @ beta
    return rows.y * scores - jax.nn.softplus(scores)


def _ess(values: Any) -> float:
    """Effective draws of (chain, draw), for their mean."""
    return float(require("arviz", "`scirocco reproduce posterior-bias`").ess(values, method="mean"))


def _normal_prior(beta: Array) -> Array:
    return -0.5 * jnp.sum(beta**2) / PRIOR_VARIANCE


MODEL = Model(_rows_log_likelihood, _normal_prior, vectorized=True)
KINKED = Model(_rows_log_likelihood, log_prior, vectorized=True)
"""With the Laplace prior of scale 1."""


class Subset(NamedTuple):
    """Rows with columns that are not 0 in at least 1 % of them, and their posterior."""

    model: Model
    rows: Rows
    centre: Any
    factor: Any
    """L with L Lᵀ the inverse curvature at the centre."""
    mean: np.ndarray
    sd: np.ndarray
    truth_ess: float
    """The least over the coefficients' squares."""

    @property
    def independent(self) -> float:
        """How many independent coefficients vary as much in a mean over all, p²/Σ_ij R_ij² with R the correlations."""
        covariance = np.asarray(self.factor @ self.factor.T, np.float64)
        sd = np.sqrt(np.diag(covariance))
        return float(len(sd) ** 2 / np.sum((covariance / np.outer(sd, sd)) ** 2))

    @property
    def condition(self) -> float:
        """Largest over smallest curvature."""
        return float(np.linalg.cond(np.asarray(self.factor, np.float64)) ** 2)


class Measured(NamedTuple):
    """A run compared with the truth; NaN where it diverged."""

    mean_bias: float
    """Root mean square over the coefficients of the error of the mean, in posterior standard deviations."""
    sd_ratio: float
    """Mean over the coefficients."""
    sd_error: float
    """Root mean square over the coefficients of sd / true sd - 1."""
    ess: float
    """Effective draws of all chains, the median over the coefficients."""
    monte_carlo: float
    """What `mean_bias` would be on average for a chain without bias, from the effective draws here and of NUTS."""
    row_gradients: float
    """Gradients of single rows, all chains together, set-up and burn-in included."""

    @property
    def ess_per_million(self) -> float:
        """Effective draws for a million gradients of rows."""
        return 1e6 * self.ess / self.row_gradients


def subset(train: Rows, num_rows: int, num_draws: int, seed: int, model: Model = MODEL) -> Subset:
    """The first rows, and NUTS in coordinates in which the posterior is nearly round."""
    rows = first(common(first(train, num_rows / len(train.y))), 1.0)
    centre, factor = laplace(rows)
    middle, spread = np.asarray(centre, np.float64), np.asarray(factor, np.float64)

    def log_density(u: Any, data: Rows) -> Array:
        beta = jnp.asarray(middle, u.dtype) + jnp.asarray(spread, u.dtype) @ u
        return model.look(beta, data)

    nuts = Nuts(log_density, np.zeros(len(middle)), rows, num_warmup=NUTS_WARMUP, num_draws=num_draws)
    with ThreadPoolExecutor(NUTS_CHAINS) as pool:
        chains = list(pool.map(lambda k: nuts.run(seed + k).draws, range(NUTS_CHAINS)))
    betas = middle + np.stack(chains) @ spread.T
    mean, sd = betas.mean((0, 1)), betas.std((0, 1))
    squares = np.moveaxis(((betas - mean) / sd) ** 2, -1, 0)
    ess = min(_ess(each) for each in squares)
    return Subset(model, rows, centre, factor, mean, sd, ess)


def measure(
    at: Subset, sampler: Sampler, estimator: Estimator, num_steps: int, thin: int, num_chains: int, seed: int
) -> Measured:
    """Chains from the Laplace approximation's centre; a fifth of the steps is burn-in."""
    burnin = num_steps // 5
    try:
        with warnings.catch_warnings(action="ignore", category=SciroccoWarning):
            run = sample(
                at.model,
                at.rows,
                at.centre,
                sampler=sampler,
                estimator=estimator,
                num_samples=(num_steps - burnin) // thin,
                num_burnin=burnin,
                thin=thin,
                num_chains=num_chains,
                seed=seed,
                progress=False,
            )
    except DivergenceError:
        return Measured(*[math.nan] * 6)
    return judge_draws(run.draws, at, row_gradients(estimator, len(at.rows.y), num_steps, num_chains, run.preparation))


def judge_draws(draws: PyTree, at: Subset, gradients: float) -> Measured:
    """Moments of draws (chain, draw, coefficient) against the truth."""
    draws = np.asarray(draws, np.float64)
    errors = (draws.mean((0, 1)) - at.mean) / at.sd
    ratios = np.sqrt(draws.var(axis=1).mean(axis=0) + draws.mean(axis=1).var(axis=0)) / at.sd
    ess = [_ess(each) for each in np.moveaxis(draws, -1, 0)]
    return Measured(
        float(np.sqrt(np.mean(errors**2))),
        float(ratios.mean()),
        float(np.sqrt(np.mean((ratios - 1) ** 2))),
        float(np.median(ess)),
        float(np.sqrt(np.mean(1 / np.array(ess)) + 1 / at.truth_ess)),
        gradients,
    )


def row_gradients(estimator: Any, num_rows: int, num_steps: int, num_chains: int, report: dict[str, Any]) -> float:
    """Gradients of single rows: two a row where a batch is compared with a centre, and the passes of set-ups."""
    if isinstance(estimator, Full):
        return float(num_steps * num_rows * num_chains)
    name, batch = type(estimator).__name__, estimator.batch_size
    setup = float(report.get("passes", 0.0)) * num_rows
    twice = 2 if name in ("ControlVariates", "SVRG") else 1
    refreshes = num_steps // max(1, 2 * num_rows // batch) if name == "SVRG" else 0
    return float(num_chains * (num_steps * batch * twice + refreshes * num_rows) + setup)
