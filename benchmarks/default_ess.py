"""Effective draws per CPU second of the plain call, and what it chose.

    taskset -c 0 python benchmarks/default_ess.py [--seeds 3]

Logistic regression, N = 100,000, d = 50; median over the coefficients; CPU time of the sampling alone, of calls after
one that compiles. A timing is never a test: the exit status is 0 whatever is found.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import scirocco as sc
from scirocco.diagnostics.measures import ess

NUM_ROWS, DIMENSION, BAR = 100_000, 50, 7_000


def main() -> int:
    """Sample with each seed, and print a line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    rng = np.random.default_rng(0)
    x = rng.standard_normal((NUM_ROWS, DIMENSION), np.float32)
    truth = rng.standard_normal(DIMENSION) / np.sqrt(DIMENSION)
    y = (rng.random(NUM_ROWS) < 1 / (1 + np.exp(-x @ truth))).astype(np.float32)
    model = sc.Model(
        lambda beta, row: row["y"] * (row["x"] @ beta) - jax.nn.softplus(row["x"] @ beta),
        lambda beta: -0.05 * jnp.sum(beta**2),
    )
    for seed in range(-1, seeds):  # the first call compiles
        start = jnp.zeros(DIMENSION)
        run = sc.sample(model, {"x": x, "y": y}, start, num_samples=4_000, seed=max(0, seed), progress=False)
        if seed < 0:
            print(run.preparation["chosen"])
            continue
        seconds = run.timing["sampling"]["cpu"] + run.timing["first_chunk"]["cpu"]
        rate = float(np.median(ess(np.asarray(run.draws)))) / seconds
        print(f"seed {seed}: {rate:,.0f} effective draws per CPU s (bar {BAR:,}); {run.certificate}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
