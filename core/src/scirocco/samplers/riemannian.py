"""Samplers built from recipes: Riemannian Langevin and Hamiltonian dynamics, Fisher scoring, Hamiltonian dynamics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from scirocco._tree import cited
from scirocco.errors import InvalidTypeError
from scirocco.samplers import matrices
from scirocco.samplers.matrices import POSITION
from scirocco.samplers.recipe import Recipe
from scirocco.types import ArrayLike, Params, PyTree

_MOMENTUM = "momentum"


@cited("stochastic gradient Riemannian Langevin dynamics", "patterson2013 ma2015")
def SGRLD(step_size: PyTree, inverse_metric: Callable[[Params], Any], **options: Any) -> Recipe:
    r"""Riemannian Langevin dynamics (Patterson & Teh 2013) with any metric: D = G(θ)⁻¹, Q = 0.

    .. math:: θ' = θ + ε\,[G^{-1} \hat g + Γ] + \sqrt{2εG^{-1}}\,ξ, \qquad Γ_i = Σ_j ∂G^{-1}_{ij}/∂θ_j

    Targets the posterior as ε → 0. Patterson & Teh's Γ is for their metrics; here it is derived for yours.

    Parameters
    ----------
    step_size
        ε: number or schedule.
    inverse_metric
        `inverse_metric(params)`: G⁻¹ as a number, a tree like the parameters (a diagonal), `sc.LowRank` or a matrix.
    options
        Options of `sc.Recipe`: `temperature`, `correct_noise`, `elementwise`, `gamma`.

    Examples
    --------
    >>> import scirocco as sc
    >>> sampler = sc.SGRLD(1e-3, lambda theta: 1.0 + theta**2)
    """
    _need_function(inverse_metric, "SGRLD", "inverse_metric")
    return Recipe(step_size, diffusion=lambda z: inverse_metric(z[POSITION]), name="SGRLD", **options)


@cited("stochastic gradient Riemannian Hamiltonian Monte Carlo", "ma2015")
def SGRHMC(
    step_size: PyTree,
    inverse_root: Callable[[Params], Any],
    resample_every: int | None = None,
    **options: Any,
) -> Recipe:
    r"""Generalised Riemannian Hamiltonian dynamics (gSGRHMC; Ma, Chen & Fox 2015, Algorithm 1).

    .. math::
        r' = r + ε\,[G^{-1/2} \hat g - G^{-1} r + Γ_r] + \sqrt{2εG^{-1}}\,ξ, \qquad
        θ' = θ + ε\,[G^{-1/2} r' + Γ_θ], \qquad Γ_r = ∇_θ·G^{-1/2}

    Targets posterior(θ) N(r; 0, I) as ε → 0 for any positive G(θ); without Γ (`gamma="naive"`) it does not.

    Parameters
    ----------
    step_size
        ε: number or schedule.
    inverse_root
        `inverse_root(params)`: G^(-1/2), symmetric; a number, a tree like the parameters (a diagonal) or a matrix.
    resample_every
        Redraw the momentum every so many steps; None: never.
    """
    _need_function(inverse_root, "SGRHMC", "inverse_root")

    def diffusion(z: PyTree) -> PyTree:
        return {_MOMENTUM: _square(inverse_root(z[POSITION]), z[POSITION])}

    def curl(z: PyTree) -> PyTree:
        return {(POSITION, _MOMENTUM): jax.tree.map(jnp.negative, inverse_root(z[POSITION]))}

    return Recipe(
        step_size,
        diffusion=diffusion,
        curl=curl,
        auxiliaries=(_MOMENTUM,),
        resample_every=resample_every,
        name="SGRHMC",
        **options,
    )


def _square(root: Any, params: Params) -> Any:
    """G⁻¹ from G^(-1/2)."""
    leaves = jax.tree.leaves(root)
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    dense = len(leaves) == 1 and jnp.shape(leaves[0]) == (size, size) and size > 1
    return root @ root if dense and not matrices.alike(root, params) else jax.tree.map(lambda v: v * v, root)


@cited("stochastic gradient Fisher scoring", "ahn2012")
def SGFS(step_size: PyTree, preconditioner: Any = 1.0, correct_noise: str = "full", **options: Any) -> Recipe:
    r"""Stochastic gradient Fisher scoring (Ahn, Korattikara & Welling 2012) as a recipe: constant D, noise corrected.

    .. math:: θ' = θ + ε D \hat g + N(0,\; 2εD - ε^2 D \hat V D)

    with V̂ the covariance of ĝ, estimated from the rows of each batch. With D the inverse of the information, minibatch
    noise replaces injected noise as the step size grows. The correction is for the variance of a single batch, so
    batches must be independent: `sc.Minibatch(n, sampling="with_replacement")`. The errors of a shuffled pass cancel,
    and with large steps the variance of the draws would be too small (a fifth in benchmarks/choosing.py).

    Parameters
    ----------
    step_size
        ε: number or schedule.
    preconditioner
        D: a number, a tree like the parameters, `sc.LowRank` or a matrix over the flattened parameters.
    correct_noise
        "full" or "diagonal".
    """
    return Recipe(step_size, diffusion=preconditioner, correct_noise=correct_noise, name="SGFS", **options)


@cited("Hamiltonian dynamics with noisy gradients, written as a recipe", "ma2015")
def HMCDynamics(step_size: PyTree, resample_every: int = 20, temperature: ArrayLike = 1.0) -> Recipe:
    r"""Hamiltonian dynamics without friction: D = 0, Q = [[0, -I], [I, 0]], momenta redrawn every L steps.

    .. math:: r' = r + ε\,\hat g(θ), \qquad θ' = θ + ε r'

    For exact gradients (`sc.Full`, or control variates near the mode): gradient noise raises its energy without limit.

    Parameters
    ----------
    step_size
        ε: number or schedule.
    resample_every
        L.
    """
    return Recipe(
        step_size,
        curl={(POSITION, _MOMENTUM): -1.0},
        auxiliaries=(_MOMENTUM,),
        resample_every=resample_every,
        temperature=temperature,
        name="HMCDynamics",
    )


def _need_function(value: Any, owner: str, name: str) -> None:
    if not callable(value):
        raise InvalidTypeError(
            f"`{name}` of {owner} must be a function of the parameters, got {value!r}. For a constant one use "
            "sc.Recipe(step_size, diffusion=...)."
        )
