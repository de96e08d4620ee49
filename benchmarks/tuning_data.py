"""The posterior of covertype's coefficients, and exact discrepancies to it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import scirocco as sc

PRIOR_VARIANCE = 10.0
JUDGED = 2_000
_BLOCK = 1_024
_NEWTON_STEPS = 30


def log_likelihood(beta: Any, rows: Any) -> Any:
    """Of logistic regression, a value a row."""
    scores = rows["x"] @ beta
    return rows["y"] * scores - jax.nn.softplus(scores)


MODEL = sc.Model(log_likelihood, lambda beta: -0.5 * jnp.sum(beta**2) / PRIOR_VARIANCE, vectorized=True)


@dataclass(frozen=True)
class Problem:
    """Rows in single precision."""

    x: np.ndarray
    y: np.ndarray

    model = MODEL

    @property
    def rows(self) -> dict[str, np.ndarray]:
        """The data of `sc.sample`."""
        return {"x": self.x, "y": self.y}

    @property
    def start(self) -> Any:
        """Zeros."""
        return jnp.zeros(self.x.shape[1])

    def thinned(self, every: int) -> Problem:
        """Fewer rows."""
        return Problem(self.x[::every], self.y[::every])

    @cached_property
    def laplace(self) -> tuple[np.ndarray, np.ndarray]:
        """The mode and R with RRᵀ the Hessian there, by Newton steps in double precision."""
        beta = np.zeros(self.x.shape[1])
        for _ in range(_NEWTON_STEPS):
            gradient, hessian = self._newton(beta)
            step = np.linalg.solve(hessian, gradient)
            beta = beta + step
            if gradient @ step < 1e-10:
                return beta, np.linalg.cholesky(self._newton(beta)[1])
        raise RuntimeError(f"no mode in {_NEWTON_STEPS} Newton steps.")

    def _newton(self, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gradient, hessian = -beta / PRIOR_VARIANCE, np.eye(len(beta)) / PRIOR_VARIANCE
        for first in range(0, len(self.x), 1 << 16):
            x = self.x[first : first + (1 << 16)].astype(np.float64)
            chance = 1 / (1 + np.exp(-x @ beta))
            gradient = gradient + (self.y[first : first + (1 << 16)] - chance) @ x
            hessian = hessian + (x * (chance * (1 - chance))[:, None]).T @ x
        return gradient, hessian

    def gradients(self, betas: np.ndarray) -> np.ndarray:
        """∇ log posterior at each of the rows of `betas`.

        The wilderness areas sum to one, and so do the soil types, so along one direction the likelihood is constant and
        sums over all rows must cancel: single precision within a block, double over the blocks.
        """
        with jax.enable_x64(True):
            total = _likelihood_gradients(jnp.asarray(betas, jnp.float32), *self._blocks)
        return np.asarray(total, np.float64) - betas / PRIOR_VARIANCE

    @cached_property
    def _blocks(self) -> tuple[Any, Any]:
        """Columns and labels by blocks of rows; the rows of zeros at the end add nothing."""
        spare = -len(self.x) % _BLOCK
        x = np.pad(self.x, ((0, spare), (0, 0))).reshape(-1, _BLOCK, self.x.shape[1])
        return jnp.asarray(x), jnp.asarray(np.pad(self.y, (0, spare)).reshape(-1, _BLOCK))

    def discrepancy(self, draws: Any) -> float:
        """KSD of 2,000 draws, all pairs, in coordinates in which the posterior is round.

        The kernel's scale is that of the posterior, √(2d), for every run alike. Dividing by standard deviations is not
        enough here: columns are so collinear that then the smallest discrepancy is that of a chain which stands still.
        """
        draws = np.asarray(draws, np.float64)
        kept = np.linspace(0, draws.shape[1] - 1, min(draws.shape[1], JUDGED // draws.shape[0])).astype(int)
        x = draws[:, kept].reshape(-1, draws.shape[-1])
        mode, root = self.laplace
        z, s = (x - mode) @ root, np.linalg.solve(root, self.gradients(x).T).T
        scale = math.sqrt(2 * z.shape[1])
        return sc.analysis.ksd(z, s, scale=scale, unbiased=False, standardise=False).value


@jax.jit
def _likelihood_gradients(betas: Any, x: Any, y: Any) -> Any:
    def add(total: Any, block: Any) -> tuple[Any, None]:
        rows, labels = block
        residuals = labels[:, None] - jax.nn.sigmoid(rows @ betas.T)
        return total + (residuals.T @ rows).astype(jnp.float64), None

    return jax.lax.scan(add, jnp.zeros(betas.shape, jnp.float64), (x, y))[0]


def covertype(folder: Path | None = None) -> Problem:
    """From the folder, SCIROCCO_DATA or the cache; failing that from ../shared/data beside the repository."""
    from scirocco import datasets, errors

    try:
        data = datasets.covertype(folder)
    except errors.InvalidValueError:
        beside = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
        if folder is not None or not (beside / "covertype").is_dir():
            raise
        data = datasets.covertype(beside)
    return Problem(data.X, data.y.astype(np.float32))
