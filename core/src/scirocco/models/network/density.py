r"""The posterior of a network's weights.

.. math:: y_i ∼ \text{Categorical}(\text{softmax}(\text{apply}(w, x_i))), \quad w_l | λ_l ∼ N(0, I/λ_l), \quad
    λ_l ∼ \text{Gamma}(α, β)

with one precision λ_l for each array l of weights (thesis section 4.6.3, α = β = 1). The chain samples only the
weights: given d weights w_l, their precision is Gamma(α + d/2, β + |w_l|²/2), so that it can be integrated out,

.. math:: p(w_l) ∝ (β + |w_l|²/2)^{-(α + d/2)},

and drawn from that distribution when requested. The pairs (w, λ) are draws from the joint posterior. If it were
sampled, log λ would have the curvature d/2, 39,200 for the first layer of the thesis, and limit the step size.
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
    """(n, ...), floating-point, or bytes that represent 0 ... 1."""
    y: Any


@dataclass(frozen=True)
class Probabilities:
    """Class probabilities of the network: `(params, x)` to (n, classes)."""

    apply: Apply

    def logits(self, params: Params, x: Array) -> Array:
        """Logits; bytes are converted here, because they take a quarter of the memory on the device."""
        return self.apply(params, jnp.asarray(x, jnp.float32) / 255 if x.dtype == jnp.uint8 else x)

    def __call__(self, params: Params, x: Array) -> Array:
        """Softmax of the logits."""
        return jax.nn.softmax(self.logits(params, x))


@dataclass(frozen=True)
class LogLikelihood:
    """log p(y_i | w, x_i) of several rows at once."""

    probabilities: Probabilities

    def __call__(self, params: Params, rows: Rows) -> Array:
        """Log likelihood of each row, (n,)."""
        logits = self.probabilities.logits(params, rows.x)
        chosen = jnp.take_along_axis(logits, rows.y[:, None], axis=1)[:, 0]
        return chosen - jax.nn.logsumexp(logits, axis=1)


@dataclass(frozen=True)
class Prior:
    """Normal prior of weights with Gamma(shape, rate) precisions, which are integrated out."""

    shape: float = 1.0
    rate: float = 1.0

    def __call__(self, params: Params) -> Array:
        """log p(w), without constants."""
        laws = [self.precision_law(leaf) for leaf in jax.tree.leaves(params)]
        return sum((-shape * jnp.log(rate) for shape, rate in laws[1:]), -laws[0][0] * jnp.log(laws[0][1]))

    def precision_law(self, weights: Array) -> tuple[float, Array]:
        """Shape and rate of the Gamma distribution of λ given its weights: α + d/2 and β + |w|²/2."""
        return self.shape + weights.size / 2, self.rate + 0.5 * (weights * weights).sum()

    def draw_precisions(self, params: Params, rng: np.random.Generator) -> PyTree:
        """Draw λ of each array of weights, given the weights (on the host)."""

        def one(weights: Array) -> float:
            shape, rate = self.precision_law(weights)
            return float(rng.gamma(shape) / rate)

        return jax.tree.map(one, params)
