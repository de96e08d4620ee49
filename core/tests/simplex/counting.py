"""What the tests of count samplers share: small count models of every kind, and data for them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import scirocco as sc

NUM_ROWS, NUM_CATEGORIES, BATCH = 60, 4, 10


def categories(seed=0):
    return np.random.default_rng([seed, 5]).choice(NUM_CATEGORIES, NUM_ROWS, p=[0.6, 0.3, 0.1, 0.0])


def observed(omega, z):
    """The category itself."""
    return jax.nn.one_hot(z, NUM_CATEGORIES)


def drawn(omega, z, key):
    """The category, or with probability ½ one drawn from omega: a noisy observation."""
    level, coin = jax.random.uniform(key, (2,))
    other = jnp.sum(jnp.cumsum(omega)[:-1] < level)
    return jax.nn.one_hot(jnp.where(coin < 0.5, z, other), NUM_CATEGORIES)


def expected(omega, z):
    """Responsibilities: depend on omega without chance."""
    like = omega * jnp.where(jnp.arange(NUM_CATEGORIES) == z, 0.8, 0.2)
    return like / like.sum()


def two_parts(params, z):
    """A vector on the simplex and a matrix of two rows of it."""
    mine = jax.nn.one_hot(z, NUM_CATEGORIES)
    return {"weights": mine, "rows": jnp.stack([mine, jnp.zeros(NUM_CATEGORIES)])}


def in_total(omega, rows):
    """The counts of a batch by one scatter-add."""
    return jnp.zeros(NUM_CATEGORIES).at[rows].add(1.0)


UNIFORM = np.full(NUM_CATEGORIES, 1 / NUM_CATEGORIES, np.float32)
MODELS = {
    "observed": (sc.CountModel(0.3, observed), UNIFORM),
    "drawn": (sc.CountModel(0.3, drawn), UNIFORM),
    "expected": (sc.CountModel([0.3, 0.2, 0.5, 1.0], expected), UNIFORM),
    "total": (sc.CountModel.from_total(0.3, in_total), UNIFORM),
    "parts": (
        sc.CountModel({"weights": 0.5, "rows": np.full(NUM_CATEGORIES, 0.1)}, two_parts),
        {"weights": UNIFORM, "rows": np.stack([UNIFORM, UNIFORM])},
    ),
}
SAMPLERS = {
    "SCIR": sc.SCIR(0.2),
    "SCIR-auto": sc.SCIR(),
    "SCIRCV": sc.SCIRCV(0.2),
    "SCIRCV-1": sc.SCIRCV(0.2, parametrization=1),
    "SCIRCV-refresh": sc.SCIRCV(0.2, refresh_every=3, refresh_size=30),
    "SimplexSGRLD": sc.SimplexSGRLD(0.01),
}


def draw(model="observed", sampler="SCIR", estimator=None, **changes):
    """A short run."""
    counting, start = MODELS[model]
    arguments = {
        "model": counting,
        "data": categories(),
        "params": start,
        "sampler": SAMPLERS[sampler],
        "estimator": sc.Minibatch(BATCH) if estimator is None else estimator,
        "num_samples": 12,
        "num_chains": 2,
        "seed": 3,
        "progress": False,
    }
    return sc.sample(**(arguments | changes))
