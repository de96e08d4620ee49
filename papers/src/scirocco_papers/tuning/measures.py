"""How near a run of SGLD-CV is to a small posterior: moments against NUTS, and the kernel Stein discrepancy."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from scirocco.analysis.stein import ksd
from scirocco.errors import DivergenceError, SciroccoWarning
from scirocco.estimators import ControlVariates
from scirocco.run import sample
from scirocco.samplers import Sampler
from scirocco.types import Array, Data, Params
from scirocco_papers.small_posteriors.problems import SmallPosterior
from scirocco_papers.small_posteriors.truth import Truth, discrepancy, double

NUM_CHAINS, MOST_ROWS = 4, 500
_JUDGED = 2_000
"""Draws by which the discrepancy is computed, spread evenly over the chains."""
_AT_ONCE = 100


class Measured(NamedTuple):
    """What a run is worth; NaN where it diverged."""

    step_size: float
    mean_error: float
    """Worst error of a mean, in true standard deviations."""
    sd_ratio: float
    """The one farthest from 1."""
    ksd: float

    @property
    def diverged(self) -> bool:
        """Whether a chain diverged (NaN or inf)."""
        return math.isnan(self.mean_error)


class Yardstick:
    """The discrepancy in coordinates in which NUTS' draws have mean 0 and covariance I, by exact gradients.

    All pairs count, i = j included, so that it is that of the draws as they are: about √(E k₀(x, x)/n) for n that are
    independent. The kernel's scale is √(2d), the distance of two draws, for every run alike. In double precision: in
    raw units single precision leaves few digits of a gradient near the mode.
    """

    def __init__(self, posterior: SmallPosterior, truth: Truth):
        self._posterior, self._truth = posterior, truth
        with jax.enable_x64(True):
            self._data = double(posterior.data)
            start = double(posterior.start)
            self._unravel = ravel_pytree(posterior.model.unconstrain(start))[1]
            self._flat = jax.jit(jax.vmap(lambda q: ravel_pytree(posterior.model.unconstrain(q))[0]))
            self._gradients = jax.jit(self._gradients_at)
            x = self._positions(truth.draws, math.inf)
        self._mean = x.mean(axis=0)
        self._factor = np.linalg.cholesky(np.atleast_2d(np.cov(x.T)))

    def _gradients_at(self, positions: Array, data: Data) -> Array:
        def log_density(flat: Array) -> Array:
            return self._posterior.log_density(self._unravel(flat), data)

        return jax.lax.map(jax.grad(log_density), positions, batch_size=_AT_ONCE)

    def _positions(self, draws: Params, most: float) -> np.ndarray:
        """On the real line, flat; as many from each chain."""
        num_chains, num_draws = jax.tree.leaves(draws)[0].shape[:2]
        kept = np.linspace(0, num_draws - 1, int(min(num_draws, most // num_chains))).astype(int)

        def pick(leaf: Array) -> Array:
            return jnp.asarray(np.asarray(leaf)[:, kept].reshape(-1, *leaf.shape[2:]), jnp.float64)

        return np.asarray(self._flat(jax.tree.map(pick, draws)))

    def ksd(self, draws: Params) -> float:
        """Of draws in the user's units, leaves (chain, draw, ...)."""
        with jax.enable_x64(True):
            x = self._positions(draws, _JUDGED)
            gradients = np.asarray(self._gradients(x, self._data))
        z = np.linalg.solve(self._factor, (x - self._mean).T).T
        scale = math.sqrt(2 * z.shape[1])
        return ksd(z, gradients @ self._factor, scale=scale, unbiased=False, standardise=False).value

    def nuts(self) -> float:
        """The discrepancy of as many draws of NUTS."""
        return self.ksd(self._truth.draws)

    def measure(self, sampler: Sampler, num_samples: int, seed: int) -> tuple[Measured, dict[str, Any]]:
        """A run and its report; `step_size` is that of the sampler, or the one that was chosen."""
        try:
            with quiet():
                run = sample(
                    self._posterior.model,
                    self._posterior.data,
                    self._posterior.start,
                    sampler=sampler,
                    estimator=estimator(self._posterior),
                    num_samples=num_samples,
                    num_chains=NUM_CHAINS,
                    seed=seed,
                    progress=False,
                )
        except DivergenceError:
            return Measured(_step_size(sampler, {}), math.nan, math.nan, math.nan), {}
        moments = discrepancy(run.draws, self._truth)
        return Measured(_step_size(sampler, run.preparation), *moments, self.ksd(run.draws)), run.preparation


def estimator(posterior: SmallPosterior) -> ControlVariates:
    """Batches of 500, or of a quarter of the rows where there are few."""
    return ControlVariates(min(MOST_ROWS, len(jax.tree.leaves(posterior.data)[0]) // 4))


def quiet() -> Any:
    """Silence the warning about columns of different scales: that is the purpose of these posteriors."""
    return warnings.catch_warnings(action="ignore", category=SciroccoWarning)


def _step_size(sampler: Any, report: dict[str, Any]) -> float:
    if "tuning" in report:
        return float(report["tuning"]["chosen"]["step_size"])
    given = getattr(sampler, "inner", sampler).step_size
    return math.nan if given is None or isinstance(given, str) else float(given)
