"""One run in two processes, or in one with two devices: writes its draws.

usage: python check_processes.py rows|chains RANK|alone PORT FOLDER
"""

import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np

AXIS, RANK, PORT, FOLDER = *sys.argv[1:4], pathlib.Path(sys.argv[4])
if RANK != "alone":
    jax.distributed.initialize(f"127.0.0.1:{PORT}", 2, int(RANK))
    assert jax.process_count() == 2

import scirocco as sc  # noqa: E402

rng = np.random.default_rng(0)
x = rng.normal(size=(501, 3)).astype(np.float32)
data = {"x": x, "y": (rng.random(501) < 1 / (1 + np.exp(-x.sum(axis=1)))).astype(np.float32)}


def log_likelihood(beta, row):
    return row["y"] * (row["x"] @ beta) - jnp.logaddexp(0.0, row["x"] @ beta)


model = sc.Model(log_likelihood, lambda beta: -0.5 * jnp.sum(beta**2))
mesh = jax.make_mesh((2,), (AXIS,))
store = FOLDER / ("alone" if RANK == "alone" else "both")
common = {"progress": False, "mesh": mesh}
run = sc.sample(
    model,
    data,
    jnp.zeros(3),
    sampler=sc.SGLD(step_size=1e-3),
    estimator=sc.ControlVariates(50),
    num_samples=60,
    num_burnin=20,
    num_chains=2,
    store=store,
    **common,
)
first = np.asarray(run.draws)
rest = sc.resume(store, model, data, num_samples=100, **common)
assert np.array_equal(first, rest.draws[:, :60])
assert rest.num_draws == 100
np.save(FOLDER / f"{RANK}.npy", np.asarray(rest.draws))
