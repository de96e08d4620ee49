"""SGLD whose step size adapts to the size of the gradient of each parameter array."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from scirocco import _checks
from scirocco._tree import pytree_dataclass
from scirocco.samplers import schedules
from scirocco.samplers.base import Gradient, Sampler
from scirocco.types import Array, ArrayLike, Key, Params, PyTree


class LeafScaledState(NamedTuple):
    """Position, and the mean of squared gradients for each leaf (a number each)."""

    position: Params
    squares: PyTree


@pytree_dataclass
class LeafScaledSGLD(Sampler):
    r"""SGLD with one global step size, divided by the root mean square of the gradient of each leaf.

    .. math::
        S_k = S_{k-1} + (|\hat g|^2/d - S_{k-1})/k, \qquad ε_{leaf} = ε/\sqrt{S_k} \\
        θ' = θ + ε_{leaf}\,\hat g + \sqrt{2 ε_{leaf} T}\,ξ

    with d the number of entries of the leaf and S_0 = 0. Leaves of very different scales (factors and biases, weights
    of layers) then need one number.

    S is a mean over all steps so far, so it changes by O(1/k) at step k, and the chain targets posterior^(1/T) as
    ε → 0 once that has died away. After `freeze_after` steps S stays as it is: from then on it is SGLD with constant
    step sizes, and has its exact law. Cost per step: that of SGLD and a sum of squares.

    Parameters
    ----------
    step_size
        ε: a number, a tree or a schedule, in the units of the parameters. Where gradients are mostly the posterior's
        own, √S is about 1/sd, so ε must be well below the smallest posterior standard deviation, and a leaf forgets in
        sd/ε steps: the condition number of a problem counts by its root. The thesis' h is 2ε.
    freeze_after
        Steps after which S no longer changes; None: it goes on.
    temperature
        T.

    Notes
    -----
    Thesis, appendix A.3. What is printed there, S_k = (|ĝ|²/d - S_{k-1})/k, lacks the term S_{k-1} of a running mean:
    it would tend to 0 like 1/k, and the steps would grow without bound. S is started by the first gradient: a start
    far out in the tails makes the steps small for a while.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, scirocco as sc
    >>> from scirocco.samplers.leaf_scaled import LeafScaledSGLD
    >>> x = jax.random.normal(jax.random.key(0), (1000, 2)) * jnp.array([1.0, 100.0])
    >>> model = sc.Model(lambda p, x: -0.5 * ((x[0] - p["a"]) ** 2 + ((x[1] - p["b"]) / 100.0) ** 2))
    >>> run = sc.sample(model, x, {"a": jnp.array(0.0), "b": jnp.array(0.0)}, sampler=LeafScaledSGLD(0.02, 500),
    ...                 estimator=sc.Full(), num_samples=2000, num_burnin=500, progress=False)
    >>> bool(run.draws["a"].std() < 0.1), bool(run.draws["b"].std() > 0.5)
    (True, True)
    """

    step_size: Any
    freeze_after: ArrayLike | None = None
    temperature: ArrayLike = 1.0

    def __post_init__(self) -> None:
        name = type(self).__name__
        object.__setattr__(self, "step_size", schedules.normalise(self.step_size, name))
        if self.freeze_after is not None:
            _checks.positive_int(self.freeze_after, "freeze_after")
        _checks.positive(self.temperature, "temperature", name, allow_zero=True)
        object.__setattr__(self, "temperature", _checks.as_float(self.temperature))

    def init(self, params: Params, key: Key) -> LeafScaledState:
        """Nothing has been measured."""
        return LeafScaledState(params, jax.tree.map(lambda leaf: jnp.zeros((), leaf.dtype), params))

    def step(
        self, state: LeafScaledState, gradient: Gradient, noise: PyTree, number: Array
    ) -> LeafScaledState:
        """Measure, then one Euler step."""
        count = number + 1
        learning = True if self.freeze_after is None else count <= self.freeze_after

        def measured(square: Array, g: Array) -> Array:
            mean = jnp.vdot(g, g) / max(1, g.size)
            return square + jnp.where(learning, (mean - square) / count.astype(g.dtype), 0.0)

        squares = jax.tree.map(measured, state.squares, gradient.total)

        def moved(p: Array, e: Any, square: Array, g: Array, xi: Array) -> Array:
            # a leaf whose gradient is exactly 0 so far: nothing to divide by
            eps = (e / jnp.sqrt(jnp.where(square > 0, square, 1.0))).astype(p.dtype)
            return p + eps * g + jnp.sqrt(2.0 * eps * self.temperature).astype(p.dtype) * xi

        eps = self.sizes(state.position, number)
        position = jax.tree.map(moved, state.position, eps, squares, gradient.total, noise)
        return LeafScaledState(position, squares)
