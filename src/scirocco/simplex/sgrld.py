"""Stochastic gradient Riemannian Langevin dynamics on the simplex (Patterson & Teh 2013): the Euler rival of SCIR."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from scirocco._tree import pytree_dataclass
from scirocco.samplers import Gradient, Sampler, schedules
from scirocco.simplex.scir import GammaState
from scirocco.types import Array, Key, Params, PyTree


@pytree_dataclass
class SimplexSGRLD(Sampler):
    r"""An Euler step of the CIR process, reflected at 0 (expanded mean, Patterson & Teh 2013).

    .. math::
        θ' = \left|\, θ + ε (\hat a - θ) + \sqrt{2 ε θ}\, ξ \,\right|, \qquad ω = θ / \textstyle\sum θ

    Targets Dirichlet(α + Σz) as ε → 0. Near the boundary the error of a step is as large as θ itself, and reflection
    pushes it up: sparse components are badly biased unless ε is far below their size. Kept for comparison; prefer
    `sc.SCIR`, which costs about the same. Cost per step: one estimate, one normal for each entry of ω.

    Parameters
    ----------
    step_size
        ε; number, tree or schedule. (Patterson & Teh's ε is twice this one; the SCIR paper's h equals it.)

    Examples
    --------
    >>> import scirocco as sc
    >>> sampler = sc.SimplexSGRLD(step_size=0.005)
    """

    driven_by: ClassVar[str] = "counts"
    divergence_advice: ClassVar[str] = (
        "Its Euler steps are too long: try a tenth of the step size, or sc.SCIR, which has no such limit."
    )

    step_size: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "step_size", schedules.normalise(self.step_size, "SimplexSGRLD"))

    def init(self, params: Params, key: Key) -> GammaState:
        """Where the model places them."""
        return GammaState(params)

    def step(self, state: GammaState, gradient: Gradient, noise: PyTree, number: Array) -> GammaState:
        """One reflected Euler step."""
        return GammaState(
            jax.tree.map(
                _reflected, state.position, gradient.total, self.sizes(state.position, number), noise
            )
        )


def _reflected(log_theta: Array, shape: Array, step: Array, xi: Array) -> Array:
    theta = jnp.exp(log_theta)
    step = jnp.asarray(step, theta.dtype)
    moved = jnp.abs(theta + step * (shape - theta) + jnp.sqrt(2.0 * step * theta) * xi)
    return jnp.log(jnp.maximum(moved, jnp.finfo(theta.dtype).tiny))
