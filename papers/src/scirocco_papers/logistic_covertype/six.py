"""The six samplers of R's package on covertype: figures 4.5.1 and 4.6.2 of the thesis.

As there: an intercept, Laplace priors with scale 1, minibatches of 500, a start from N(0, I), 10⁴ iterations after 10⁴
of burn-in, or of ascent to the mode for the three with control variates (optStepsize 1e-6), and 2,000 for the two that
make L = 5 steps in an iteration. The thesis' list of step sizes is lost in our copy: each method gets the best of the
same grid, by the log loss of rows that are neither trained on nor tested.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco._extras import require
from scirocco.errors import DivergenceError, SciroccoWarning
from scirocco.estimators import ControlVariates, Minibatch
from scirocco.model import Model
from scirocco.run import Kernel, sample
from scirocco.samplers import SGHMC, SGLD, SGNHT, Sampler
from scirocco.types import Array, Params
from scirocco_papers.covertype_rows import Rows

BATCH, MARK, LEAPFROG = 500, 10, 5
GRID = (1e-8, 3e-8, 1e-7, 3e-7, 1e-6, 3e-6, 1e-5, 3e-5)
"""R's `stepsize`: h = 2ε for SGLD, η = ε² for the two with momentum; α = a = 0.01, R's defaults."""
OPT_STEP = 1e-6
ALL_ROWS = 522_911
"""Training rows for which the step sizes are meant."""
PLAIN = ("sgld", "sghmc", "sgnht")
CONTROLLED = ("sgldcv", "sghmccv", "sgnhtcv")
NAMES = PLAIN + CONTROLLED
TUNING_CHAINS, TUNING_SEED = 2, 1_000


def _log_likelihood(params: Params, rows: Rows) -> Array:
    scores = params["bias"] + rows.x @ params["beta"]
    return rows.y * scores - jax.nn.softplus(scores)


def _log_prior(params: Params) -> Array:
    return -jnp.abs(params["bias"]) - jnp.sum(jnp.abs(params["beta"]))


MODEL = Model(_log_likelihood, _log_prior, vectorized=True)


def _hamiltonian(stepsize: float) -> Sampler:
    # without a gradient noise to take out nothing is measured, and R's α stays as it is
    return dataclasses.replace(SGHMC.from_r(stepsize, num_leapfrog=LEAPFROG), gradient_noise=0.0)


_SAMPLERS: dict[str, Callable[[float], Sampler]] = {
    "sgld": lambda h: SGLD(h / 2),
    "sghmc": _hamiltonian,
    "sgnht": SGNHT.from_r,
}


def scaled(step: float, rows: Rows) -> float:
    """A step size for all training rows, for fewer of them: curvatures go with their number."""
    return step * ALL_ROWS / len(rows.y)


class Chains(NamedTuple):
    """Log loss along the chains, (chain, mark), at every tenth iteration after the burn-in."""

    iterations: np.ndarray
    losses: np.ndarray


@jax.jit
def log_losses(draws: Params, test: Rows) -> Array:
    """Mean of -log p over the test rows, for each draw."""
    return jax.lax.map(lambda one: -jnp.mean(_log_likelihood(one, test)), draws, batch_size=20)


class Six:
    """The six methods on one set of rows.

    Parameters
    ----------
    rows, start
        Training rows and where everything starts.
    num_iterations
        Of burn-in or ascent, and as many after it; a fifth for the two with L = 5.
    seed
        Of the ascent and of the chains.
    """

    def __init__(self, rows: Rows, start: Params, num_iterations: int, seed: int):
        self.rows, self.start, self.num_iterations, self.seed = rows, start, num_iterations, seed
        optimizer = require("optax", "`optStepsize`").sgd(scaled(OPT_STEP, rows))
        search = ControlVariates(BATCH, optimizer=optimizer, num_optimizer_steps=num_iterations, polish=False)
        kernel = Kernel(MODEL, rows, SGLD(OPT_STEP), search, seed=seed)
        self.centre = kernel.position(kernel.init(jax.random.key(seed), start))

    def run(self, name: str, stepsize: float, test: Rows, num_chains: int, seed: int) -> Chains:
        """Log losses of the chains; infinite where one diverged."""
        plain = name.removesuffix("cv")
        inner = LEAPFROG if plain == "sghmc" else 1
        iterations, controlled = self.num_iterations // inner, name != plain
        marks = MARK * np.arange(1, iterations // MARK + 1)
        try:
            with warnings.catch_warnings(action="ignore", category=SciroccoWarning):
                found = sample(
                    MODEL,
                    self.rows,
                    self.centre if controlled else self.start,
                    sampler=_SAMPLERS[plain](stepsize),
                    estimator=ControlVariates(BATCH, centre=self.centre) if controlled else Minibatch(BATCH),
                    num_samples=len(marks),
                    num_burnin=0 if controlled else iterations * inner,
                    thin=MARK * inner,
                    num_chains=num_chains,
                    seed=seed,
                    progress=False,
                )
        except DivergenceError:
            return Chains(marks, np.full((num_chains, len(marks)), math.inf))
        flat = jax.tree.map(lambda leaf: jnp.asarray(leaf).reshape(-1, *leaf.shape[2:]), found.draws)
        losses = np.asarray(log_losses(flat, test), np.float64).reshape(num_chains, -1)
        return Chains(marks, np.nan_to_num(losses, nan=math.inf))

    def tuned(self, name: str, validation: Rows, grid: tuple[float, ...] = GRID) -> dict[float, float]:
        """Mean log loss after the burn-in for each step size of the grid."""
        grid = tuple(scaled(h, self.rows) for h in grid)
        found = (self.run(name, h, validation, TUNING_CHAINS, self.seed + TUNING_SEED) for h in grid)
        return {h: float(chains.losses.mean()) for h, chains in zip(grid, found, strict=True)}


def burnin(chains: Chains) -> int:
    """The first iteration at which the seeds' mean is within three of its standard deviations of its last half."""
    mean = chains.losses.mean(axis=0)
    late = mean[len(mean) // 2 :]
    return int(chains.iterations[np.argmax(np.abs(mean - late.mean()) <= 3 * late.std())])
