"""The network that `BNN` has when none is given: one hidden layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks
from scirocco.types import Array, Params

ACTIVATIONS = {
    "relu": jax.nn.relu,
    "sigmoid": jax.nn.sigmoid,
    "softmax": jax.nn.softmax,
    "tanh": jnp.tanh,
}


@dataclass(frozen=True)
class TwoLayers:
    r"""Logits of :math:`σ(f(x^\top B + b)\,A + a)`, σ the softmax and f the activation; rows are flattened.

    With f = softmax it is the network of Chen, Fox & Guestrin (2014) and of the thesis, (4.6.3), in its names.
    """

    activation: str

    def __post_init__(self) -> None:
        _checks.choice(self.activation, "activation", tuple(ACTIVATIONS))

    def __call__(self, params: Params, x: Array) -> Array:
        """(n, ...) to (n, classes)."""
        flat = x.reshape(len(x), -1)
        hidden = ACTIVATIONS[self.activation](flat @ params["B"] + params["b"])
        return hidden @ params["A"] + params["a"]

    def start(self, width: int, hidden: int, num_classes: int, seed: int) -> dict[str, Any]:
        """Weights N(0, 1/inputs), biases 0."""
        rng = np.random.default_rng([seed, 0xB77])
        return {
            "A": _normal(rng, hidden, num_classes),
            "B": _normal(rng, width, hidden),
            "a": np.zeros(num_classes, np.float32),
            "b": np.zeros(hidden, np.float32),
        }


def _normal(rng: np.random.Generator, inputs: int, outputs: int) -> Any:
    return (rng.normal(size=(inputs, outputs)) / np.sqrt(inputs)).astype(np.float32)
