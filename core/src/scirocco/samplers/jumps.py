"""Jumps between known modes: what trajectories cannot cross is crossed by a change of coordinates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from scirocco._tree import pytree_dataclass
from scirocco.errors import InvalidValueError
from scirocco.samplers.base import Gradient, select
from scirocco.types import Array, Key, Params


@pytree_dataclass
class Jumps:
    r"""Metropolis-Hastings moves from the mode a chain is in to another one, at the same place relative to the mode.

    .. math:: θ^* = c_j + L_j L_i^{-1} (θ - c_i), \qquad
        α = \min\left(1, \frac{π(θ^*)\, |L_j|\, p_{ji}}{π(θ)\, |L_i|\, p_{ij}}\right), \qquad
        p_{ij} = \frac{w_j}{1 - w_i}

    Mode i is the one whose Gaussian has the highest density at θ; a jump that would not lead back is rejected, so
    that the posterior is invariant whatever the numbers are. Where the modes have the same shape, as those of mixtures
    do, nearly every jump in proportion to the masses is accepted, in any dimension. One pass over the rows per jump.

    Parameters
    ----------
    centres
        The modes, (K, d), in the order of `jax.flatten_util.ravel_pytree`, on the real line for transformed parameters.
    factors
        L with LLᵀ about the covariance around each, (K, d, d), lower triangular.
    log_weights
        Logarithms of their masses, up to a constant, (K,); None: equal masses.

    References
    ----------
    Tjelmeland & Hegstad (2001), with the coordinates of Pompe, Holmes & Łatuszyński (2020).

    Examples
    --------
    >>> import jax.numpy as jnp, scirocco as sc
    >>> model = sc.Model(lambda x, y: jnp.logaddexp(-0.5 * (x - 9) ** 2, jnp.log(3.0) - 0.5 * (x + 9) ** 2))
    >>> between = sc.samplers.Jumps(jnp.array([[-9.0], [9.0]]), jnp.ones((2, 1, 1)), jnp.log(jnp.array([3.0, 1.0])))
    >>> run = sc.sample(model, jnp.zeros(1), jnp.array(9.0), sampler=sc.HMC(0.5, factor=jnp.ones(1), jumps=between),
    ...                 num_samples=1000, progress=False)
    >>> bool(abs((run.draws < 0).mean() - 0.75) < 0.1)
    True
    """

    centres: Any
    factors: Any
    log_weights: Any = None

    def __post_init__(self) -> None:
        shape = np.shape(self.centres)
        if len(shape) != 2 or shape[0] < 2:
            raise InvalidValueError(f"`centres` must be of shape (K, d) with K >= 2 modes, got {shape}.")
        if np.shape(self.factors) != (*shape, shape[1]):
            raise InvalidValueError(f"`factors` must be of shape {(*shape, shape[1])}, got {np.shape(self.factors)}.")
        if self.log_weights is None:
            object.__setattr__(self, "log_weights", np.zeros(shape[0], np.float32))
        elif np.shape(self.log_weights) != shape[:1]:
            raise InvalidValueError(f"`log_weights` must be of shape {shape[:1]}, got {np.shape(self.log_weights)}.")

    def around(self, flat: Array) -> tuple[Array, Array]:
        """The mode that a point belongs to, and the point in the coordinates of each, (K, d)."""
        factors = jnp.asarray(self.factors, flat.dtype)
        solve = jax.vmap(lambda factor, change: jax.scipy.linalg.solve_triangular(factor, change, lower=True))
        places = solve(factors, flat - jnp.asarray(self.centres, flat.dtype))
        return jnp.argmin(0.5 * jnp.sum(places**2, axis=1) + _log_volumes(factors)), places

    def move(
        self, position: Params, gradient: Gradient, evaluate: Callable[[Params], Gradient], key: Key
    ) -> tuple[Params, Gradient]:
        """The position after a jump was tried, and the gradient there."""
        flat, unravel = ravel_pytree(position)
        which, chance = jax.random.split(key)
        here, places = self.around(flat)
        factors = jnp.asarray(self.factors, flat.dtype)
        weights = jnp.broadcast_to(jnp.asarray(self.log_weights, flat.dtype), (len(places),) * 2)
        log_p = jax.nn.log_softmax(jnp.where(jnp.eye(len(places), dtype=bool), -jnp.inf, weights), axis=1)
        there = jax.random.categorical(which, log_p[here])
        moved = jnp.asarray(self.centres, flat.dtype)[there] + factors[there] @ places[here]
        proposal = evaluate(unravel(moved))
        volumes = _log_volumes(factors)
        log_ratio = jnp.asarray(proposal.value) - jnp.asarray(gradient.value)
        log_ratio += volumes[there] - volumes[here] + log_p[there, here] - log_p[here, there]
        made = (jnp.log(jax.random.uniform(chance)) < log_ratio) & (self.around(moved)[0] == there)
        return select(made, (unravel(moved), proposal), (position, gradient))


def _log_volumes(factors: Array) -> Array:
    return jnp.sum(jnp.log(jnp.abs(jnp.diagonal(factors, axis1=1, axis2=2))), axis=1)
