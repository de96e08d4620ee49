"""Steps per second of recipes beside the hand-written samplers they stand for.

    python benchmarks/recipes.py

Logistic regression, N = 100,000, d = 50, n = 500; wall time of the sampling part, best of five, in turn. A timing is
never a test: the exit status is 0 whatever the ratios are.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import scirocco as sc

NUM_ROWS, DIMENSION, NUM_STEPS = 100_000, 50, 40_000
CANONICAL = {("position", "momentum"): -1.0}


def log_likelihood(beta, row):
    z = row["x"] @ beta
    return row["y"] * z - jax.nn.softplus(z)


def thermostat(z):
    return {**CANONICAL, ("momentum", "thermostat"): z["momentum"] / DIMENSION}


def energy(z):
    return 0.5 * jnp.sum(z["momentum"] ** 2) + DIMENSION / 2 * (z["thermostat"] - 100.0) ** 2


PAIRS = {
    "SGLD": (sc.SGLD(1e-6), sc.Recipe(1e-6, diffusion=1.0)),
    "SGHMC": (
        sc.SGHMC(1e-3, friction=100.0, gradient_noise=0.0),
        sc.Recipe(1e-3, diffusion={"momentum": 100.0}, curl=CANONICAL, auxiliaries=("momentum",)),
    ),
    "SGNHT": (
        sc.SGNHT(1e-3, diffusion=100.0),
        sc.Recipe(
            1e-3,
            diffusion={"momentum": 100.0},
            curl=thermostat,
            auxiliaries={"momentum": "normal", "thermostat": 100.0},
            hamiltonian=energy,
        ),
    ),
    "SGRLD, diagonal metric": (sc.SGLD(1e-6), sc.SGRLD(1e-6, lambda b: 1.0 / (1.0 + b**2))),
    "SGRHMC, diagonal metric": (
        sc.SGHMC(1e-3, friction=100.0, gradient_noise=0.0),
        sc.SGRHMC(1e-3, lambda b: 1.0 / (1.0 + b**2), elementwise=True),
    ),
}


def main() -> None:
    """Print a ratio for each pair."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((NUM_ROWS, DIMENSION), np.float32)
    y = (rng.random(NUM_ROWS) < 0.5).astype(np.float32)
    model = sc.Model(log_likelihood, lambda beta: -0.5 * jnp.sum(beta**2))

    def speed(sampler, seed):
        run = sc.sample(
            model,
            {"x": x, "y": y},
            jnp.zeros(DIMENSION),
            sampler=sampler,
            estimator=sc.Minibatch(500),
            num_samples=NUM_STEPS,
            seed=seed,
            progress=False,
        )
        return run.timing["sampling"]["steps"] / run.timing["sampling"]["wall"]

    print(f"{'':26}{'by hand':>12}{'recipe':>12}{'ratio':>8}   (bar ≥ 0.7)")
    for name, pair in PAIRS.items():
        best = [0.0, 0.0]
        for seed in range(5):
            for side, sampler in enumerate(pair):
                best[side] = max(best[side], speed(sampler, seed))
        print(f"{name:26}{best[0]:12,.0f}{best[1]:12,.0f}{best[1] / best[0]:8.2f}")


if __name__ == "__main__":
    main()
