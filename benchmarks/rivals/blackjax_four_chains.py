"""Four chains of BlackJAX's SGLD: the user's scan of one chain under ``jax.vmap``."""
# ruff: noqa: E401, I001
# fmt: off

import numpy as np

from measure import Outcome, Run, effort, main
from problem import Reference
# [user blackjax_four_chains]
import blackjax, jax, jax.numpy as jnp
# [/user]

NUM_STEPS = effort().num_steps


def build(X: np.ndarray, y: np.ndarray, reference: Reference) -> Run:
    """What the user types; the returned function draws four chains."""
    # [user blackjax_four_chains]
    def log_likelihood(b, datum):
        return jax.nn.log_sigmoid((2 * datum["y"] - 1) * (datum["x"] @ b))
    gradient = blackjax.sgmcmc.gradients.grad_estimator(lambda b: -0.05 * b @ b, log_likelihood, len(X))
    sgld, data = blackjax.sgld(gradient), {"x": jnp.asarray(X), "y": jnp.asarray(y)}
    @jax.jit
    def sample(keys, data):
        def one_step(b, key):
            key_batch, key_step = jax.random.split(key)
            rows = jax.random.randint(key_batch, (500,), 0, len(X))
            b = sgld.step(key_step, b, jax.tree.map(lambda a: a[rows], data), 1e-7)
            return b, b
        def one_chain(key):
            return jax.lax.scan(one_step, jnp.zeros(50), jax.random.split(key, NUM_STEPS))[1]
        return jax.vmap(one_chain)(keys)
    # [/user]

    def run(seed: int) -> Outcome:
        # [user blackjax_four_chains]
        draws = sample(jax.random.split(jax.random.key(seed), 4), data)
        # [/user]
        return Outcome(np.asarray(draws))

    return run


if __name__ == "__main__":
    main(__file__, "blackjax_four_chains", build, num_chains=4)
