"""The two Dirichlet posteriors of the SCIR paper, the chains that are run on them, and how their step sizes are chosen.

1,000 observations of ten categories, α = 0.1. Sparse: 800, 100 and 100 of them in the first three categories and none
in the others. Dense: about 100 in each (supplement, E.2). All chains start at the posterior mean, which favours short
steps a little: nothing has to be forgotten.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.analysis import ks_dirichlet
from scirocco.estimators import Minibatch
from scirocco.model import CountModel
from scirocco.run import Run, sample
from scirocco.samplers import Sampler
from scirocco.simplex import SCIR, SCIRCV, SimplexSGRLD
from scirocco.types import PyTree

CONCENTRATION = 0.1
COUNTS = {
    "sparse": np.array([800, 100, 100, 0, 0, 0, 0, 0, 0, 0]),
    "dense": np.array([112, 119, 92, 98, 95, 96, 102, 92, 91, 103]),
}
NUM_ROWS, NUM_CATEGORIES = 1000, 10
NUM_BURNIN = NUM_DRAWS = 1000
METHODS = ("SCIR", "SCIR-CV (i)", "SCIR-CV (ii)", "SGRLD")
_SCIR_STEPS = (1.0, 0.5, 0.1, 0.05, 0.01, 0.005, 0.001)
STEP_SIZES = {
    "SCIR": _SCIR_STEPS,
    "SCIR-CV (i)": _SCIR_STEPS,
    "SCIR-CV (ii)": _SCIR_STEPS,
    "SGRLD": (0.5, 0.1, 0.05, 0.01, 0.005, 0.001, 0.0005, 0.0001),
}
"""Table 1 of the supplement; its row for SCIR serves SCIR-CV too."""
QUICK_STEP_SIZES = {
    "SCIR": (0.5, 0.1, 0.05),
    "SCIR-CV (i)": (1.0, 0.5, 0.1),
    "SCIR-CV (ii)": (1.0, 0.5, 0.1),
    "SGRLD": (0.1, 0.05, 0.01, 0.005),
}
COLOURS = {
    "exact": "#666666",
    "SCIR": "#d55e00",
    "SCIR-CV (i)": "#56b4e9",
    "SCIR-CV (ii)": "#009e73",
    "SGRLD": "#7b3294",
}


def concentration(posterior: str) -> np.ndarray:
    """a = α + Σ_i z_i."""
    return CONCENTRATION + COUNTS[posterior]


def rows(posterior: str) -> np.ndarray:
    """The category of each observation."""
    return np.repeat(np.arange(NUM_CATEGORIES), COUNTS[posterior])


def standard_deviations(posterior: str) -> np.ndarray:
    """Of the components of ω ~ Dirichlet(a): √(a_k (A - a_k) / (A² (A + 1))) with A = Σa."""
    a = concentration(posterior)
    return np.asarray(np.sqrt(a * (a.sum() - a) / (a.sum() ** 2 * (a.sum() + 1))))


def exact_draws(posterior: str, num_seeds: int, rng: np.random.Generator) -> np.ndarray:
    """Independent draws (seed, draw, category), as many as a chain keeps."""
    return rng.dirichlet(concentration(posterior), (num_seeds, NUM_DRAWS))


def sampler(method: str, step_size: float) -> Sampler:
    """One of the four, at the papers' h (for SGRLD our ε)."""
    if method == "SGRLD":
        return SimplexSGRLD(step_size)
    if method == "SCIR":
        return SCIR(step_size)
    return SCIRCV(step_size, parametrization=1 if method == "SCIR-CV (i)" else 2)


@functools.cache
def model() -> CountModel:
    """Rows are categories; one model, so that all chains share their compiled programs."""
    return CountModel(CONCENTRATION, lambda omega, category: jax.nn.one_hot(category, NUM_CATEGORIES))


def run_chains(
    posterior: str,
    method: str,
    step_size: float,
    batch_size: int,
    *,
    seed: int,
    num_chains: int,
    num_draws: int = NUM_DRAWS,
) -> Run:
    """Chains from the posterior mean, batches without replacement; the papers' seeds are our chains."""
    a = concentration(posterior)
    return sample(
        model(),
        rows(posterior),
        jnp.asarray(a / a.sum(), jnp.float32),
        sampler=sampler(method, step_size),
        estimator=Minibatch(batch_size, "without_replacement"),
        num_samples=num_draws,
        num_burnin=NUM_BURNIN,
        num_chains=num_chains,
        seed=seed,
        progress=False,
    )


def distances(posterior: str, draws: PyTree) -> list[float]:
    """d_KS of each chain or set of draws (seed, draw, category)."""
    return [ks_dirichlet(each, concentration(posterior)) for each in np.asarray(draws)]


def sweep(
    posterior: str, method: str, step_sizes: Sequence[float], batch_size: int, *, seed: int, num_chains: int
) -> dict[str, Any]:
    """Distances of all chains at all step sizes, and what is best."""
    found = {
        h: distances(posterior, run_chains(posterior, method, h, batch_size, seed=seed, num_chains=num_chains).draws)
        for h in step_sizes
    }
    return choose(found)


def choose(found: dict[float, list[float]]) -> dict[str, Any]:
    """For every chain its own best step size, as the papers do; and the one that is best for their median."""
    step_sizes, table = list(found), np.array(list(found.values()))
    best = table.argmin(axis=0)
    return {
        "distances": {f"{h:g}": found[h] for h in step_sizes},
        "best": table.min(axis=0).tolist(),
        "best_steps": [step_sizes[place] for place in best],
        "median": float(np.median(table.min(axis=0))),
        "step": step_sizes[int(np.median(table, axis=1).argmin())],
    }
