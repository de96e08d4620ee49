"""NUTS: trajectories of exact gradients, as long as they move away; BlackJAX makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from scirocco import _checks, _tree
from scirocco._extras import require
from scirocco._tree import cited, pytree_dataclass, static
from scirocco.samplers.base import Gradient
from scirocco.samplers.jumps import Jumps
from scirocco.samplers.preconditioned import times
from scirocco.samplers.trajectories import Jumping, TrajectoryState
from scirocco.types import Array, Key, Params, PyTree


@cited("the no-U-turn sampler on all rows", "hoffman2014")
@pytree_dataclass
class NUTS(Jumping):
    r"""The no-U-turn sampler on all rows: exact, with no step size to choose. Needs `sc.Full()`.

    .. math:: H(v, r) = -\log π(θ + L v \mid x) + \tfrac12 |r|^2

    Each step follows Hamiltonian dynamics from v = 0 until the trajectory turns back, and draws from its points in
    proportion to e^(-H) (BlackJAX's implementation). A step costs 3 to 1,023 passes over the rows, so this is for data
    of which a pass is cheap. `sc.sample` without a sampler uses it there.

    Step size and L are adapted before the run, by four or more chains that start around the mode: the step size until
    trajectories are accepted with probability `target_acceptance`, L from the covariance of all chains' positions.

    Parameters
    ----------
    step_size
        ε in the coordinates v, where the posterior is about round; None: adapted.
    factor
        L with LLᵀ about the posterior covariance, (d, d) and lower triangular, or (d,) for a diagonal, in the order
        of `jax.flatten_util.ravel_pytree`, on the real line for transformed parameters; None: adapted.
    target_acceptance
        For the adaptation. Values closer to 1 give shorter steps, which helps where trajectories diverge.
    max_doublings
        At most 2^max_doublings - 1 gradients per step.
    jumps
        As for `sc.HMC`.

    Notes
    -----
    Statistics for each draw: `acceptance_rate`, `diverging` (whether the energy error exceeded 1,000: the curvature
    varies too much for this step size, and that region is not explored), `n_steps` (gradients used).

    References
    ----------
    Hoffman & Gelman (2014); Betancourt (2017), for the multinomial choice of the point.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> x = 3.0 + jax.random.normal(jax.random.key(0), (50,))
    >>> model = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)
    >>> run = sc.sample(model, x, jnp.array(0.0), sampler=sc.NUTS(), estimator=sc.Full(), num_samples=500,
    ...                 progress=False)
    >>> bool(abs(run.draws.mean() - x.mean()) < 0.05)
    True
    """

    step_size: Any = None
    factor: Any = None
    target_acceptance: float = static(default=0.9)
    max_doublings: int = static(default=10)
    jumps: Jumps | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.positive_int(self.max_doublings, "max_doublings")

    def randomness(self, key: Key, params: Params) -> Array:
        """The key of the step: how many numbers it needs depends on the trajectory."""
        return jax.random.key_data(key)

    def trajectory(
        self,
        state: TrajectoryState,
        gradient: Gradient,
        evaluate: Callable[[Params], Gradient],
        noise: PyTree,
    ) -> tuple[TrajectoryState, Gradient]:
        """One trajectory and the point drawn from it."""
        nuts = require("blackjax.mcmc.nuts", "sc.NUTS")
        flat, unravel = ravel_pytree(state.position)

        def place(v: Array) -> Params:
            return _tree.add(state.position, times(self.factor, unravel(v)))

        @jax.custom_vjp
        def log_density(v: Array) -> Array:
            return jnp.asarray(evaluate(place(v)).value)

        def forward(v: Array) -> tuple[Array, Array]:
            there = evaluate(place(v))
            return jnp.asarray(there.value), ravel_pytree(times(self.factor, there.total, transposed=True))[0]

        log_density.defvjp(forward, lambda slope, cotangent: (cotangent * slope,))
        here = ravel_pytree(times(self.factor, gradient.total, transposed=True))[0]
        begin = nuts.hmc.HMCState(jnp.zeros_like(flat), gradient.value, here)
        end, info = nuts.build_kernel()(
            jax.random.wrap_key_data(noise),
            begin,
            log_density,
            jnp.asarray(self.step_size, flat.dtype),
            jnp.ones_like(flat),
            self.max_doublings,
        )
        total = _unpulled(self.factor, unravel(end.logdensity_grad))
        rate = jnp.asarray(info.acceptance_rate, jnp.float32)
        steps = jnp.asarray(info.num_integration_steps, jnp.int32)
        moved = TrajectoryState(place(end.position), rate, info.is_divergent, steps)
        return moved, Gradient(total, value=end.logdensity, value_variance=gradient.value_variance)


def _unpulled(factor: Any, tree: PyTree) -> PyTree:
    """L⁻ᵀ x, for a lower triangular L or a diagonal."""
    flat, unravel = ravel_pytree(tree)
    factor = jnp.asarray(factor, flat.dtype)
    if factor.ndim == 1:
        return unravel(flat / factor)
    return unravel(jax.scipy.linalg.solve_triangular(factor, flat, trans=1, lower=True))
