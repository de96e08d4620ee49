"""The stochastic Cox–Ingersoll–Ross sampler (Baker, Fearnhead, Fox & Nemeth 2018), and an alternative by Euler steps.

The alternative is stochastic gradient Riemannian Langevin dynamics on the simplex (Patterson & Teh 2013).
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco._tree import cited, pytree_dataclass
from scirocco.diffusions import cir
from scirocco.samplers import Gradient, Known, Mover, Needs, Reference, schedules
from scirocco.simplex.tables import reflected
from scirocco.types import Array, Key, Params, PyTree

LONGEST_STEP = 1.0  # relaxation times, for a step that is chosen
EXTRA_VARIANCE = 0.1  # share of the variance that the noise of a chosen step may add


class GammaState(NamedTuple):
    """The gamma variables."""

    position: Params
    """log θ."""


@cited("the stochastic Cox-Ingersoll-Ross process", "baker2018")
@pytree_dataclass
class SCIR(Mover):
    r"""The stochastic CIR process: exact transitions, with the counts estimated from a minibatch.

    .. math::
        \hat a = α + \tfrac{N}{n} \sum_{i ∈ S} z_i, \qquad
        θ' = \tfrac{1 - e^{-h}}{2} W, \quad W ∼ χ^2\!\left(2\hat a,\; 2θ \tfrac{e^{-h}}{1 - e^{-h}}\right), \qquad
        ω = θ / \textstyle\sum θ

    There is no discretisation error: with exact counts (`sc.Full`) ω after burn-in follows Dirichlet(α + Σz) for any
    step size. With minibatches the mean of θ is still exact, and its variance is a + tanh(h/2) Var(â). For latent
    counts the target is the posterior of ω, as for SGLD, up to that noise. Cost per step: one estimate, one gamma
    variable (and for components below ½ one Poisson variable) for each entry of ω.

    Parameters
    ----------
    step_size
        h, the time between two estimates, in units of the relaxation time of θ, whose autocorrelation is e^(-h);
        number, tree or schedule. It is the paper's h (equation 3.3): the convention of `sc.SGLD` and that of the paper
        agree here. By default the noise of the counts in plain batches is measured at the start (one pass), and h is
        chosen so that it adds at most a tenth to the variance of any θ.

    Examples
    --------
    >>> import scirocco as sc
    >>> sampler = sc.SCIR(step_size=0.1)
    """

    needs = Needs(drive="counts")

    step_size: Any = None

    def __post_init__(self) -> None:
        if self.step_size is not None:
            object.__setattr__(self, "step_size", schedules.normalise(self.step_size, "SCIR"))

    def resolve(self, scales: Reference, params: Params) -> SCIR:  # type: ignore[override]
        """h with tanh(h/2) Var(â) ≤ a/10 for every component."""
        if self.step_size is not None:
            return self
        limits = [
            step_for_variance(np.asarray(a), np.asarray(v))
            for a, v in zip(jax.tree.leaves(scales.total), jax.tree.leaves(scales.variance), strict=True)
        ]
        return dataclasses.replace(self, step_size=float(min(map(np.min, limits))))

    def init(self, params: Params, key: Key) -> GammaState:
        return GammaState(params)

    def noise(self, key: Key, params: Params) -> PyTree:
        """The key itself: the number of random numbers in a transition depends on the state."""
        return key

    def step(self, state: GammaState, gradient: Gradient, noise: PyTree, number: Array) -> GammaState:
        times = self.sizes(state.position, number)
        ones = jax.tree.map(jnp.ones_like, gradient.total)
        return GammaState(transition(noise, state.position, gradient.total, times, ones))


def transition(key: Key, position: Params, shapes: PyTree, times: PyTree, rates: PyTree) -> Params:
    """CIR transitions of all leaves, on the log scale."""
    leaves, treedef = jax.tree.flatten(position)
    keys = [key] if len(leaves) == 1 else [jax.random.fold_in(key, number) for number in range(len(leaves))]
    parts = (jax.tree.leaves(tree) for tree in (shapes, times, rates))
    moved = [cir(*arguments, log=True) for arguments in zip(keys, leaves, *parts, strict=True)]
    return jax.tree.unflatten(treedef, moved)


def step_for_variance(shape: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """The largest h, at most 1, with tanh(h/2) Var(â) ≤ a/10."""
    share = EXTRA_VARIANCE * shape / np.maximum(variance, 1e-30)
    return 2.0 * np.arctanh(np.minimum(share, np.tanh(LONGEST_STEP / 2)))


@cited("stochastic gradient Riemannian Langevin dynamics on the simplex", "patterson2013")
@pytree_dataclass
class SimplexSGRLD(Mover):
    r"""An Euler step of the CIR process, reflected at 0 (expanded mean, Patterson & Teh 2013).

    .. math::
        θ' = \left|\, θ + ε (\hat a - θ) + \sqrt{2 ε θ}\, ξ \,\right|, \qquad ω = θ / \textstyle\sum θ

    Targets Dirichlet(α + Σz) as ε → 0. Near the boundary the error of a step is as large as θ itself, and reflection
    pushes it up: sparse components are badly biased unless ε is far below their size. Provided for comparison; prefer
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

    needs = Needs(drive="counts")
    known = Known(
        divergence="Its Euler steps are too long: try a tenth of the step size, or sc.SCIR, which has no such limit."
    )

    step_size: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "step_size", schedules.normalise(self.step_size, "SimplexSGRLD"))

    def init(self, params: Params, key: Key) -> GammaState:
        return GammaState(params)

    def step(self, state: GammaState, gradient: Gradient, noise: PyTree, number: Array) -> GammaState:
        return GammaState(
            jax.tree.map(
                _reflected, state.position, gradient.total, self.sizes(state.position, number), noise
            )
        )


def _reflected(log_theta: Array, shape: Array, step: Array, xi: Array) -> Array:
    theta = jnp.exp(log_theta)
    step = jnp.asarray(step, theta.dtype)
    moved = reflected(jnp)(theta, shape - theta, step, xi)
    return jnp.log(jnp.maximum(moved, jnp.finfo(theta.dtype).tiny))
