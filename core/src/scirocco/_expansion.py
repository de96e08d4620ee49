"""What estimators with bounds pass to samplers that use them: a quadratic expansion, and a bound for the rest."""

from __future__ import annotations

import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from scirocco import _tree
from scirocco._tree import pytree_dataclass, static
from scirocco.types import Array, Params, PyTree


@pytree_dataclass
class Expansion:
    """A quadratic expansion of a log posterior, and a bound for what it leaves out.

    In coordinates u of θ = θ̂ + L u. Every estimate of the remainder's gradient, pulled back to u, is at most
    C |u|^order + `allowance` long, and every estimate of its value at most C |u|^(order+1) / (order+1) +
    `value_allowance`: samplers see neither rows nor how the bound was found.
    """

    centre: Params
    """θ̂."""
    factor: Array
    """L, with which the posterior is about round in u."""
    inverse: Array
    slope: Array
    """∇_u of the log posterior at the centre."""
    curvature: Array
    """The Hessian in u of the part of the log posterior that is not estimated: the prior, and for order 2 the sum."""
    bound: Array
    """C; inf: not known."""
    allowance: Array
    """What rounding errors can add to it."""
    value_allowance: Array
    order: int = static()

    def coordinates(self, position: Params) -> Array:
        """U of a position."""
        return _product(self.inverse, ravel_pytree(_tree.subtract(position, self.centre))[0])

    def position(self, place: Array) -> Params:
        """The position at u."""
        return _tree.add(self.centre, ravel_pytree(self.centre)[1](_product(self.factor, place)))

    def pulled(self, gradient: PyTree) -> Array:
        """Lᵀ g."""
        return _product(self.factor.T, ravel_pytree(gradient)[0])

    def bend(self, direction: Array) -> Array:
        """The Hessian times a direction."""
        return _product(self.curvature, direction)

    def gradient(self, place: Array) -> Array:
        """The gradient of the expansion."""
        return self.slope + self.bend(place)

    def limit(self, place: Array, time: Array, speed: Array) -> Array:
        """The bound at all places that are reached from u in this time."""
        return self.bound * (jnp.linalg.norm(place) + time * speed) ** self.order + self.allowance

    def proposal_time(self, place: Array, speed: Array, times: Array, waits: Array) -> Array:
        """The first time of a Poisson process whose rate is `times` the limit at each time, from two waits."""
        start, power = jnp.linalg.norm(place), self.order + 1
        inside = start**power + power * speed * waits[0] / (times * self.bound)
        growing = (inside ** (1 / power) - start) / speed
        return jnp.minimum(growing, waits[1] / (times * self.allowance))

    def value_limit(self, place: Array) -> Array:
        """The bound of the remainder's value."""
        power = self.order + 1
        return self.bound / power * jnp.linalg.norm(place) ** power + self.value_allowance


def _product(matrix: Array, vector: Array) -> Array:
    return jnp.matmul(matrix, vector, precision="highest")
