"""The reference sampler: NumPyro's NUTS in double precision (as Stan computes), compiling and running timed apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco._extras import require
from scirocco.run.progress import Clock
from scirocco.types import Array, Data, Key, Params

LogDensity = Callable[[Params, Data], Any]


class NutsResult(NamedTuple):
    """Draws (draw, ...) in the structure of the parameters, and wall and CPU seconds."""

    draws: Params
    seconds: dict[str, float]


class Nuts:
    """NUTS for a log density of (params, data), compiled once for data of one shape.

    Parameters
    ----------
    log_density
        `log_density(params, data)`: the whole log posterior, up to a constant.
    start, data
        Where every run starts, and the data (cast to double precision).
    num_warmup, num_draws
        Iterations that adapt step size and mass, and iterations that are kept.
    """

    def __init__(self, log_density: LogDensity, start: Params, data: Data, *, num_warmup: int, num_draws: int):
        require("numpyro", "NUTS, the sampler to compare with,")
        from numpyro.infer.hmc import hmc

        with jax.enable_x64(True):
            self._data = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), data)
            start = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), start)
            init, move = hmc(potential_fn_gen=lambda rows: lambda at: -log_density(at, rows), algo="NUTS")

            def run(key: Key, rows: Data) -> Params:
                state = init(start, num_warmup, model_args=(rows,), rng_key=key)

                def step(state: Any, _: None) -> tuple[Any, Params]:
                    state = move(state, model_args=(rows,))
                    return state, state.z

                draws = jax.lax.scan(step, state, length=num_warmup + num_draws)[1]
                return jax.tree.map(lambda leaf: leaf[num_warmup:], draws)

            clock = Clock()
            self._program = jax.jit(run).lower(self._key(0), self._data).compile()
            self.compile_seconds = clock.read()

    def _key(self, seed: int) -> Array:
        return jax.random.PRNGKey(seed)  # NumPyro's kind of key

    def run(self, seed: int) -> NutsResult:
        """One chain."""
        with jax.enable_x64(True):
            clock = Clock()
            draws = jax.block_until_ready(self._program(self._key(seed), self._data))
            return NutsResult(jax.tree.map(np.asarray, draws), clock.read())
