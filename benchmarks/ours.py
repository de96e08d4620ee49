"""Our side: what a scirocco user types for SGLD, SGLD-CV and four chains, and the time it takes."""
# ruff: noqa: E401, I001
# fmt: off

import sys
from typing import Any

import numpy as np

from measure import Build, Outcome, Run, effort, main
from problem import Reference
# [user sgld]
# [user sgld_cv]
# [user four_chains]
import jax, jax.numpy as jnp, scirocco as sc
# [/user]

NUM_STEPS = effort().num_steps


def outcome(run: Any) -> Outcome:
    """Draws, and the CPU seconds before the first step (shuffling, finding the mode) as the run reports them."""
    return Outcome(np.asarray(run.draws), run.timing["setup"]["cpu"])


def sgld(X: np.ndarray, y: np.ndarray, reference: Reference) -> Run:
    """SGLD on contiguous blocks of shuffled rows, the default."""
    # [user sgld]
    def log_likelihood(b, datum):
        return jax.nn.log_sigmoid((2 * datum["y"] - 1) * (datum["x"] @ b))
    model = sc.Model(log_likelihood, lambda b: -0.05 * b @ b)
    # [/user]

    def draw(seed: int) -> Outcome:
        # [user sgld]
        run = sc.sample(model, {"x": X, "y": y}, jnp.zeros(50), sampler=sc.SGLD(step_size=1e-7),
                        estimator=sc.Minibatch(500), num_samples=NUM_STEPS, seed=seed, progress=False)
        # [/user]
        return outcome(run)

    return draw


def sgld_cv(X: np.ndarray, y: np.ndarray, reference: Reference) -> Run:
    """SGLD with control variates; the library finds the mode, on every call anew."""
    # [user sgld_cv]
    def log_likelihood(b, datum):
        return jax.nn.log_sigmoid((2 * datum["y"] - 1) * (datum["x"] @ b))
    model = sc.Model(log_likelihood, lambda b: -0.05 * b @ b)
    # [/user]

    def draw(seed: int) -> Outcome:
        # [user sgld_cv]
        run = sc.sample(model, {"x": X, "y": y}, jnp.zeros(50), sampler=sc.SGLD(step_size=1e-6),
                        estimator=sc.ControlVariates(500), num_samples=NUM_STEPS, seed=seed, progress=False)
        # [/user]
        return outcome(run)

    return draw


def four_chains(X: np.ndarray, y: np.ndarray, reference: Reference) -> Run:
    """Four chains of SGLD in one call."""
    # [user four_chains]
    def log_likelihood(b, datum):
        return jax.nn.log_sigmoid((2 * datum["y"] - 1) * (datum["x"] @ b))
    model = sc.Model(log_likelihood, lambda b: -0.05 * b @ b)
    # [/user]

    def draw(seed: int) -> Outcome:
        # [user four_chains]
        run = sc.sample(model, {"x": X, "y": y}, jnp.zeros(50), sampler=sc.SGLD(step_size=1e-7), num_chains=4,
                        estimator=sc.Minibatch(500), num_samples=NUM_STEPS, seed=seed, progress=False)
        # [/user]
        return outcome(run)

    return draw


if __name__ == "__main__":
    builds: dict[str, tuple[Build, int]] = {"sgld": (sgld, 1), "sgld_cv": (sgld_cv, 1), "four_chains": (four_chains, 4)}
    name = sys.argv[1]
    build, num_chains = builds[name]
    main(__file__, name, build, num_chains)
