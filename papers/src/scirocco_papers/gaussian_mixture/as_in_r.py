"""Two samplers as the R package `sgmcmc` really runs them, as evidence for where a figure of its papers came from.

Read from its released source (`R/dynamics.R`, `R/update.R`), it differs from the algorithms that it documents in that

- parameters are moved one after the other: the gradient for the second is taken where the first has already moved
  (SGLD and SGHMC);
- with the `seed` argument, which the papers set, every parameter gets the same normals: each TensorFlow operation is
  given that seed, and operations with equal seeds yield equal streams;
- SGHMC's momentum is refreshed with half its variance, and a whole kick follows where half a one is right.

This re-enacts the source; R itself was not run, and which version of it drew the papers' figures is not known. Nothing
in the library uses this.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _tree
from scirocco.data.batching import IndependentRows
from scirocco.model import Model
from scirocco.types import Array, Data, Key, Params, Rows

METHODS = ("sgld", "sghmc")


def sample_as_in_r(
    method: str,
    model: Model,
    data: Data,
    start: Params,
    stepsize: float,
    *,
    batch_size: int,
    num_samples: int,
    num_burnin: int,
    num_chains: int,
    seed: int,
    centre: Params | None = None,
    alpha: float = 0.01,
    num_leapfrog: int = 5,
) -> Params:
    """Draws (chain, draw, ...) of R's `sgld` or `sghmc`; with a `centre`, of `sgldcv` or `sghmccv` started there."""
    num_rows = len(jax.tree.leaves(data)[0])
    batching = IndependentRows(num_rows, batch_size, False)  # R's sample(N, n)
    numbers = {"h": jnp.float32(stepsize), "alpha": jnp.float32(alpha)}
    keys = jax.random.split(jax.random.key(seed), num_chains)
    draws = _chains(
        method,
        model,
        batching,
        num_leapfrog,
        num_samples + num_burnin,
        data,
        start if centre is None else centre,
        centre,
        numbers,
        keys,
    )
    return jax.tree.map(lambda leaf: np.asarray(leaf[:, num_burnin:]), draws)


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _chains(
    method: str,
    model: Model,
    batching: IndependentRows,
    num_leapfrog: int,
    num_steps: int,
    data: Data,
    start: Params,
    centre: Params | None,
    numbers: dict[str, Array],
    keys: Key,
) -> Params:
    scale = batching.num_rows / batching.size

    def log_posterior(at: Params, rows: Rows, factor: float) -> Array:
        return model.log_prior_density(at) + factor * model.log_likelihood_sum(at, rows)

    gradient = jax.grad(log_posterior)
    exact = None if centre is None else gradient(centre, data, 1.0)

    def estimate(at: Params, rows: Rows) -> Params:
        value = gradient(at, rows, scale)
        if centre is None:
            return value
        return _tree.add(exact, _tree.subtract(value, gradient(centre, rows, scale)))

    move = partial(
        _langevin if method == "sgld" else partial(_hamiltonian, num_leapfrog), estimate, batching, data, numbers
    )

    def chain(key: Key) -> Params:
        return jax.lax.scan(lambda at, k: (move(at, k),) * 2, start, jax.random.split(key, num_steps))[1]

    return jax.vmap(chain)(keys)


def _same_normals(key: Key, params: dict[str, Array]) -> dict[str, Array]:
    """The same key for every parameter, as equal seeds do."""
    return {name: jax.random.normal(key, leaf.shape) for name, leaf in params.items()}


def _langevin(
    estimate: Any, batching: IndependentRows, data: Data, numbers: dict[str, Array], at: dict[str, Array], key: Key
) -> dict[str, Array]:
    batch_key, noise_key = jax.random.split(key)
    rows = batching.take(data, batching.plan(batch_key, jnp.array(0))).rows
    noise, h = _same_normals(noise_key, at), numbers["h"]
    for name in at:  # one after the other
        at = {**at, name: at[name] + 0.5 * h * estimate(at, rows)[name] + jnp.sqrt(h) * noise[name]}
    return at


def _hamiltonian(
    num_leapfrog: int,
    estimate: Any,
    batching: IndependentRows,
    data: Data,
    numbers: dict[str, Array],
    at: dict[str, Array],
    key: Key,
) -> dict[str, Array]:
    h, alpha = numbers["h"], numbers["alpha"]
    refresh_key, steps_key = jax.random.split(key)
    momentum = _tree.scale(jnp.sqrt(0.5 * h), _same_normals(refresh_key, at))  # N(0, h) would be right

    def leapfrog(carry: tuple[Params, Params], key: Key) -> tuple[tuple[Params, Params], None]:
        at, nu = carry
        batch_key, noise_key = jax.random.split(key)
        rows = batching.take(data, batching.plan(batch_key, jnp.array(0))).rows
        noise = _same_normals(noise_key, at)
        for name in at:  # one after the other
            kick = h * estimate(at, rows)[name] - alpha * nu[name] + jnp.sqrt(2 * alpha * h) * noise[name]
            nu = {**nu, name: nu[name] + kick}
            at = {**at, name: at[name] + nu[name]}
        return (at, nu), None

    return jax.lax.scan(leapfrog, (at, momentum), jax.random.split(steps_key, num_leapfrog))[0][0]
