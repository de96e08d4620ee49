"""Runs in two processes, or in one with two devices: writes their draws, with rows spread and with chains.

usage: python check_processes.py RANK|alone PORT FOLDER
"""

import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np


def log_likelihood(beta, row):
    return row["y"] * (row["x"] @ beta) - jnp.logaddexp(0.0, row["x"] @ beta)


def main(rank, port, folder):
    if rank != "alone":
        jax.distributed.initialize(f"127.0.0.1:{port}", 2, int(rank))
        assert jax.process_count() == 2
    import scirocco as sc

    jax.config.update("jax_disable_most_optimizations", True)  # programs of a few steps: mostly compiling
    rng = np.random.default_rng(0)
    x = rng.normal(size=(501, 3)).astype(np.float32)
    data = {"x": x, "y": (rng.random(501) < 1 / (1 + np.exp(-x.sum(axis=1)))).astype(np.float32)}
    model = sc.Model(log_likelihood, lambda beta: -0.5 * jnp.sum(beta**2))
    estimators = {"rows": sc.ControlVariates(50), "chains": sc.Minibatch(50)}
    for axis, estimator in estimators.items():
        store = folder / f"{axis}-{'alone' if rank == 'alone' else 'both'}"
        common = {"progress": False, "mesh": jax.make_mesh((2,), (axis,))}
        method = {"sampler": sc.SGLD(step_size=1e-3), "estimator": estimator, "num_chains": 2}
        run = sc.sample(model, data, jnp.zeros(3), num_samples=60, num_burnin=20, store=store, **method, **common)
        first = np.asarray(run.draws)
        rest = sc.resume(store, model, data, num_samples=100, **common)
        assert np.array_equal(first, rest.draws[:, :60])
        assert rest.num_draws == 100
        np.save(folder / f"{axis}-{rank}.npy", np.asarray(rest.draws))


if __name__ == "__main__":
    main(*sys.argv[1:3], pathlib.Path(sys.argv[3]))
