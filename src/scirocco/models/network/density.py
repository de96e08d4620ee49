r"""The posterior of a network's weights.

.. math:: y_i ∼ \text{Categorical}(\text{softmax}(\text{apply}(w, x_i))), \quad w_l | λ_l ∼ N(0, I/λ_l), \quad
    λ_l ∼ \text{Gamma}(α, β)

with one precision λ_l for every array l of weights (thesis section 4.6.3, α = β = 1). The chain moves on the weights
alone: given d weights w_l their precision has the law Gamma(α + d/2, β + |w_l|²/2), so that it is integrated out,

.. math:: p(w_l) ∝ (β + |w_l|²/2)^{-(α + d/2)},

and drawn from that law when it is asked for. The pairs (w, λ) are draws of the joint posterior. On the log scale λ
would have the curvature d/2, 39,200 for the first layer of the thesis, and hold up weights that could move further.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco.types import Array, Params, PyTree

Apply = Callable[[Params, Array], Array]


class Rows(NamedTuple):
    """Inputs and class numbers."""

    x: Any
    """(n, ...), floating-point, or bytes that stand for 0 ... 1."""
    y: Any


@dataclass(frozen=True)
class Probabilities:
    """What the network says of inputs: `(params, x)` to (n, classes)."""

    apply: Apply

    def logits(self, params: Params, x: Array) -> Array:
        """Bytes become numbers here: on the device they take a quarter of the room."""
        return self.apply(params, jnp.asarray(x, jnp.float32) / 255 if x.dtype == jnp.uint8 else x)

    def __call__(self, params: Params, x: Array) -> Array:
        """Softmax of the logits."""
        return jax.nn.softmax(self.logits(params, x))


@dataclass(frozen=True)
class LogLikelihood:
    """log p(y_i | w, x_i) of several rows at once."""

    probabilities: Probabilities

    def __call__(self, params: Params, rows: Rows) -> Array:
        """(n,)."""
        logits = self.probabilities.logits(params, rows.x)
        chosen = jnp.take_along_axis(logits, rows.y[:, None], axis=1)[:, 0]
        return chosen - jax.nn.logsumexp(logits, axis=1)


@dataclass(frozen=True)
class Prior:
    """Normal weights with Gamma(shape, rate) precisions, which are integrated out."""

    shape: float = 1.0
    rate: float = 1.0

    def __call__(self, params: Params) -> Array:
        """log p(w), without constants."""
        laws = [self.precision_law(leaf) for leaf in jax.tree.leaves(params)]
        return sum((-shape * jnp.log(rate) for shape, rate in laws[1:]), -laws[0][0] * jnp.log(laws[0][1]))

    def precision_law(self, weights: Array) -> tuple[float, Array]:
        """Shape and rate of the Gamma law of λ given its weights: α + d/2 and β + |w|²/2."""
        return self.shape + weights.size / 2, self.rate + 0.5 * (weights * weights).sum()

    def draw_precisions(self, params: Params, rng: np.random.Generator) -> PyTree:
        """λ of every array of weights, from its law given them (host side)."""

        def one(weights: Array) -> float:
            shape, rate = self.precision_law(weights)
            return float(rng.gamma(shape) / rate)

        return jax.tree.map(one, params)
