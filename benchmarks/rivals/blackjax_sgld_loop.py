"""BlackJAX's SGLD as its documentation shows it: a jitted step in a Python loop over an iterator of batches."""
# ruff: noqa: E401, I001
# fmt: off

from collections.abc import Iterator

from measure import Outcome, Run, effort, main
from problem import Reference
# [user blackjax_sgld_loop]
import blackjax, jax, jax.numpy as jnp, numpy as np
# [/user]

NUM_STEPS = effort().num_steps


def build(X: np.ndarray, y: np.ndarray, reference: Reference) -> Run:
    """What the user types; the returned function draws one chain."""
    # [user blackjax_sgld_loop]
    def log_likelihood(b, datum):
        return jax.nn.log_sigmoid((2 * datum["y"] - 1) * (datum["x"] @ b))
    def stream(seed) -> Iterator[dict[str, np.ndarray]]:
        rng = np.random.default_rng(seed)
        while True:
            rows = rng.integers(0, len(X), 500)
            yield {"x": X[rows], "y": y[rows]}
    gradient = blackjax.sgmcmc.gradients.grad_estimator(lambda b: -0.05 * b @ b, log_likelihood, len(X))
    step = jax.jit(blackjax.sgld(gradient).step)
    # [/user]

    def run(seed: int) -> Outcome:
        # [user blackjax_sgld_loop]
        key, b, batches, draws = jax.random.key(seed), jnp.zeros(50), stream(seed), []
        for _ in range(NUM_STEPS):
            key, key_step = jax.random.split(key)
            b = step(key_step, b, next(batches), 1e-7)
            draws.append(b)
        # [/user]
        return Outcome(np.stack(draws)[None])

    return run


if __name__ == "__main__":
    main(__file__, "blackjax_sgld_loop", build)
