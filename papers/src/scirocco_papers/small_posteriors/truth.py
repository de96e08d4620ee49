"""Means and standard deviations of a small posterior in the user's units, by NUTS in double precision.

1. The mode, by Newton steps in units in which the Hessian H has the diagonal 1: free of the units of the parameters.
2. NUTS in z with position = mode + L⁻ᵀ z, H = L Lᵀ: scales near 1 and no correlation, whatever the units were. The
   chains start at draws from N(0, 2² I), wider than the posterior.
3. Split R-hat and the effective sample size of every parameter and of its square must be good enough; if they are
   not, the chains are made twice as long, up to `MOST_DOUBLINGS` times. Then the truth is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import arviz
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import solve_triangular

from scirocco._extras import require
from scirocco.errors import SciroccoError
from scirocco.estimators.newton import Curve, ascend
from scirocco.types import Array, Data, Key, Params, PyTree
from scirocco_papers.small_posteriors.problems import SmallPosterior

NUM_CHAINS, NUM_WARMUP, NUM_DRAWS = 4, 500, 2_000
MOST_DOUBLINGS = 4
MAX_R_HAT, MIN_ESS = 1.01, 2_500
"""2,500 independent draws know a mean to 0.02 standard deviations."""


class Truth(NamedTuple):
    """Reference values of a posterior; trees like the parameters, in the user's units."""

    means: Params
    sds: Params
    draws: Params
    """Leaves (chain, draw, ...)."""
    condition: float
    """Largest over smallest eigenvalue of the Hessian at the mode, on the real line."""
    r_hat: float
    ess: float
    """The worst over the parameters and their squares."""


class Mode(NamedTuple):
    """The mode on the real line and the negative Hessian there, flat, in double precision."""

    position: np.ndarray
    hessian: np.ndarray


@cache
def truth(posterior: SmallPosterior) -> Truth:
    """Means and standard deviations by NUTS; computed once for each posterior."""
    with jax.enable_x64(True):
        data = double(posterior.data)
        mode = find_mode(posterior)
        for num_draws in (NUM_DRAWS << doublings for doublings in range(MOST_DOUBLINGS + 1)):
            draws = _nuts(posterior, mode, data, num_draws)
            r_hat, ess = _quality(draws)
            if r_hat < MAX_R_HAT and ess > MIN_ESS:
                break
        else:
            raise SciroccoError(
                f"NUTS on {posterior.name!r} gave split R-hat {r_hat:.4f} and {ess:.0f} effective draws in chains of "
                f"{num_draws} draws; needed are less than {MAX_R_HAT} and more than {MIN_ESS}."
            )
    means, sds = (jax.tree.map(lambda leaf, f=f: f(leaf, axis=(0, 1)), draws) for f in (np.mean, np.std))
    eigenvalues = np.linalg.eigvalsh(mode.hessian)
    return Truth(means, sds, draws, float(eigenvalues[-1] / eigenvalues[0]), r_hat, ess)


def discrepancy(draws: Params, truth: Truth) -> tuple[float, float]:
    """Worst error of a mean in true standard deviations, and the sd ratio farthest from 1.

    Parameters
    ----------
    draws
        As `run.draws`: leaves (chain, draw, ...).
    truth
        Of the same posterior.
    """
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(draws)]
    means, sds = jax.tree.leaves(truth.means), jax.tree.leaves(truth.sds)
    errors = [np.abs(x.mean((0, 1)) - m) / s for x, m, s in zip(leaves, means, sds, strict=True)]
    ratios = np.concatenate([np.ravel(x.std((0, 1)) / s) for x, s in zip(leaves, sds, strict=True)])
    with np.errstate(divide="ignore"):  # a chain that stands still has a ratio of 0
        worst = ratios[np.argmax(np.abs(np.log(ratios)))]
    return float(max(np.max(e) for e in errors)), float(worst)


def find_mode(posterior: SmallPosterior, max_steps: int = 400) -> Mode:
    """Newton ascent from the start, until a step is worth less than 1e-12 in log density."""
    with jax.enable_x64(True):
        density, start, _ = _flat(posterior)
        data = double(posterior.data)
        derivatives = jax.jit(lambda *at: (density(*at), jax.grad(density)(*at), jax.hessian(density)(*at)))

        def curve(at: np.ndarray) -> Curve[None]:
            value, gradient, hessian = (np.asarray(part) for part in derivatives(at, data))
            return Curve(at, float(value), gradient, lambda: -hessian, None)

        found = ascend(curve(start), curve, most=max_steps, close=1e-6 / start.size**0.5)
    if not found.distance <= 1e-4:
        raise SciroccoError(f"no mode of {posterior.name!r} found in {max_steps} Newton steps.")
    return Mode(found.here.at, found.here.curvature())


def _flat(posterior: SmallPosterior) -> tuple[Callable[[Array, Data], Array], np.ndarray, Callable[[Array], Params]]:
    """The log density of a flat position, the start as one, and the way back to a tree."""
    start, unravel = ravel_pytree(posterior.model.unconstrain(double(posterior.start)))
    return lambda at, data: posterior.log_density(unravel(at), data), np.asarray(start), unravel


def double(tree: PyTree) -> Any:
    """Floating-point leaves in double precision."""

    def cast(leaf: Array) -> Array:
        return jnp.asarray(leaf, jnp.float64 if np.asarray(leaf).dtype.kind == "f" else None)

    return jax.tree.map(cast, tree)


def _nuts(posterior: SmallPosterior, mode: Mode, data: Data, num_draws: int) -> Params:
    """Draws in the user's units; all chains at once."""
    require("numpyro", "NUTS, the sampler to compare with,")
    from numpyro.infer.hmc import hmc

    density, _, unravel = _flat(posterior)
    centre, factor = jnp.asarray(mode.position), jnp.asarray(np.linalg.cholesky(mode.hessian))

    def position(z: Array) -> Array:
        return centre + solve_triangular(factor, z, trans=1, lower=True)

    init, move = hmc(potential_fn_gen=lambda rows: lambda z: -density(position(z), rows), algo="NUTS")

    def chain(key: Key, rows: Data) -> Params:
        start_key, key = jax.random.split(key)
        start = 2.0 * jax.random.normal(start_key, centre.shape)
        state = init(start, NUM_WARMUP, model_args=(rows,), rng_key=key)

        def step(state: Any, _: None) -> tuple[Any, Array]:
            state = move(state, model_args=(rows,))
            return state, state.z

        zs = jax.lax.scan(step, state, length=NUM_WARMUP + num_draws)[1][NUM_WARMUP:]
        return jax.vmap(lambda z: posterior.model.constrain(unravel(position(z))))(zs)

    keys = jax.random.split(jax.random.PRNGKey(0), NUM_CHAINS)  # NumPyro's kind of key
    draws = jax.jit(jax.vmap(chain, (0, None)))(keys, data)
    return jax.tree.map(np.asarray, draws)


def _quality(draws: Params) -> tuple[float, float]:
    """Worst split R-hat and effective sample size."""
    flat = np.concatenate([x.reshape(*x.shape[:2], -1) for x in jax.tree.leaves(draws)], axis=-1)
    flat = (flat - flat.mean((0, 1))) / flat.std((0, 1))
    r_hats = [arviz.rhat(x) for x in np.moveaxis(flat, -1, 0)]
    sizes = [arviz.ess(x, method="mean") for f in (flat, flat**2) for x in np.moveaxis(f, -1, 0)]
    return float(np.max(r_hats)), float(np.min(sizes))
