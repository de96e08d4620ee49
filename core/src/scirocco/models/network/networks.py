"""Networks as pure functions `(params, x) -> logits`: one with a hidden layer, and modules of other libraries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from scirocco import _checks
from scirocco._extras import require
from scirocco.data.sources import check_memory
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco.types import Array, Params

Apply = Callable[[Params, Array], Array]

ACTIVATIONS = {"relu": jax.nn.relu, "sigmoid": jax.nn.sigmoid, "softmax": jax.nn.softmax, "tanh": jnp.tanh}


@dataclass(frozen=True)
class TwoLayers:
    r"""Logits of :math:`σ(f(x^\top B + b)\,A + a)`, σ the softmax and f the activation; rows are flattened.

    With f = softmax it is the network of Chen, Fox & Guestrin (2014) and of the thesis (4.6.3), in its notation.
    """

    activation: str

    def __post_init__(self) -> None:
        _checks.choice(self.activation, "activation", tuple(ACTIVATIONS))

    def __call__(self, params: Params, x: Array) -> Array:
        """Logits (n, classes) of inputs (n, ...)."""
        flat = x.reshape(len(x), -1)
        hidden = ACTIVATIONS[self.activation](flat @ params["B"] + params["b"])
        return hidden @ params["A"] + params["a"]

    def start(self, width: int, hidden: int, num_classes: int, seed: int) -> dict[str, np.ndarray]:
        """Initial weights N(0, 1/inputs), biases 0."""
        size = 8 * hidden * (width + num_classes)
        check_memory(size, f"a network with {hidden:,} hidden units", "Choose a smaller `hidden`.")
        rng = np.random.default_rng([_checks.positive_int(seed, "seed", minimum=0), 0xB77])
        return {
            "A": _normal(rng, hidden, num_classes),
            "B": _normal(rng, width, hidden),
            "a": np.zeros(num_classes, np.float32),
            "b": np.zeros(hidden, np.float32),
        }


def _normal(rng: np.random.Generator, inputs: int, outputs: int) -> np.ndarray:
    return (rng.normal(size=(inputs, outputs)) / np.sqrt(inputs)).astype(np.float32)


# -- modules of Flax and Equinox ---------------------------------------------------------------------------------------


def flax(module: object, example: ArrayLike, seed: int) -> tuple[Apply, Params]:
    """Convert a linen module, initialised at `example`, or an nnx module with its parameters."""
    linen = require("flax.linen", "BNN.from_flax")
    if isinstance(module, linen.Module):
        return _linen(module, example, seed)
    nnx = require("flax.nnx", "BNN.from_flax")
    if isinstance(module, nnx.Module):
        return _nnx(nnx, module)
    hint = " Create an instance of it first." if isinstance(module, type) else ""
    raise InvalidTypeError(f"BNN.from_flax requires a linen or nnx module, got {module!r}.{hint}")


def _linen(module: Any, example: ArrayLike, seed: int) -> tuple[Apply, Params]:
    variables = dict(module.init(jax.random.key(seed), example))
    params = variables.pop("params", None)
    if params is None or variables:
        raise InvalidValueError(
            f"the module {type(module).__name__} has {sorted(variables)} in addition to parameters: a BNN's network "
            "must have only parameters, no batch statistics or other state."
        )

    def apply(params: Params, x: Array) -> Array:
        return module.apply({"params": params}, x)

    return apply, params


def _nnx(nnx: ModuleType, module: object) -> tuple[Apply, Params]:
    graph, state, rest = nnx.split(module, nnx.Param, ...)
    if jax.tree.leaves(rest):
        raise InvalidValueError(
            f"the module {type(module).__name__} has variables in addition to parameters: a BNN's network must have "
            "only parameters, no dropout, batch statistics or other state."
        )
    pure = nnx.to_pure_dict(state)

    def apply(params: Params, x: Array) -> Array:
        filled = jax.tree.map(lambda leaf: leaf, state)
        nnx.replace_by_pure_dict(filled, params)
        return nnx.merge(graph, filled, rest)(x)

    return apply, pure


def equinox(module: object) -> tuple[Apply, Params]:
    """Convert a module of one input: its floating-point arrays are the parameters, the rest is constant."""
    eqx = require("equinox", "BNN.from_equinox")
    if isinstance(module, type) or not callable(module):
        raise InvalidTypeError(f"BNN.from_equinox requires a callable Equinox module, got {module!r}.")
    arrays, static = eqx.partition(module, eqx.is_inexact_array)
    named, structure = jax.tree_util.tree_flatten_with_path(arrays)
    if not named:
        raise InvalidValueError(f"the module {type(module).__name__} has no floating-point arrays to sample.")
    # by name: a store contains dicts, not modules
    params = {jax.tree_util.keystr(path).lstrip("."): leaf for path, leaf in named}

    def apply(params: Params, x: Array) -> Array:
        leaves = [params[name] for name in names]
        return jax.vmap(eqx.combine(jax.tree.unflatten(structure, leaves), static))(x)

    names = list(params)
    return apply, params
