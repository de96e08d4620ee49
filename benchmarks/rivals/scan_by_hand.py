"""SGLD written by hand in JAX with contiguous blocks of shuffled rows: the limit for a general library.

It runs in the same interpreter as ours. Every run shuffles the rows, as ours does; that set-up is timed apart.
Nothing is checked, so it does strictly less than a library must.
"""
# ruff: noqa: E401, I001
# fmt: off

import time

from measure import Outcome, Run, effort, main
from problem import Reference
# [user scan_by_hand]
import jax, jax.numpy as jnp, numpy as np
# [/user]

NUM_STEPS = effort().num_steps


def build(X: np.ndarray, y: np.ndarray, reference: Reference) -> Run:
    """What the user types; the returned function draws one chain."""
    # [user scan_by_hand]
    def log_posterior(b, batch):
        log_likelihood = jax.nn.log_sigmoid((2 * batch["y"] - 1) * (batch["x"] @ b))
        return -0.05 * b @ b + len(X) / 500 * jnp.sum(log_likelihood)
    @jax.jit
    def sample(key, data):
        def one_step(b, key):
            key_block, key_noise = jax.random.split(key)
            start = 500 * jax.random.randint(key_block, (), 0, len(X) // 500)
            batch = jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, start, 500), data)
            noise = jax.random.normal(key_noise, b.shape)
            b = b + 1e-7 * jax.grad(log_posterior)(b, batch) + jnp.sqrt(2e-7) * noise
            return b, b
        return jax.lax.scan(one_step, jnp.zeros(50), jax.random.split(key, NUM_STEPS))[1]
    # [/user]

    def run(seed: int) -> Outcome:
        start = time.process_time()
        # [user scan_by_hand]
        order = np.random.default_rng(seed).permutation(len(X))
        data = {"x": jnp.asarray(X[order]), "y": jnp.asarray(y[order])}
        # [/user]
        setup = time.process_time() - start
        # [user scan_by_hand]
        draws = sample(jax.random.key(seed), data)
        # [/user]
        return Outcome(np.asarray(draws)[None], setup)

    return run


if __name__ == "__main__":
    main(__file__, "scan_by_hand", build)
