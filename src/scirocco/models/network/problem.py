"""From a network, inputs and labels to a posterior that can be sampled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scirocco import _checks
from scirocco.errors import InvalidTypeError
from scirocco.model import Model
from scirocco.models.network.density import LogLikelihood, Prior, Probabilities, Rows
from scirocco.models.network.inputs import Form, checked_labels, num_classes_of
from scirocco.models.network.layers import TwoLayers
from scirocco.types import Params


class Problem(NamedTuple):
    """What a fit works on."""

    probabilities: Probabilities
    params: Params
    """Where the chains begin."""
    rows: Rows
    form: Form
    classes: np.ndarray
    prior: Prior

    @property
    def model(self) -> Model:
        """The posterior of the weights."""
        return Model(LogLikelihood(self.probabilities), self.prior, vectorized=True)


def two_layers(
    hidden: Any,
    activation: str,
    x: np.ndarray,
    form: Form,
    y: Any,
    classes: Sequence[Any] | None,
    prior: Prior,
    seed: Any,
) -> Problem:
    """The network with one hidden layer, as wide as the inputs and the labels ask."""
    network, hidden = TwoLayers(activation), _checks.positive_int(hidden, "hidden")
    codes, known = checked_labels(y, len(x), classes, None)
    seed = _checks.positive_int(seed, "seed", minimum=0)
    params = network.start(math.prod(x.shape[1:]), hidden, len(known), seed)
    return Problem(Probabilities(network), params, Rows(x, codes), form, known, prior)


def own_problem(
    apply: Any,
    params: Any,
    x: np.ndarray,
    form: Form,
    y: Any,
    classes: Sequence[Any] | None,
    prior: Prior,
) -> Problem:
    """A user's function."""
    if not callable(apply) or params is None:
        raise InvalidTypeError(
            "`apply` of BNN must be a function (params, x) -> logits, given together with `params` to start from; "
            f"got apply={apply!r} and params of type {type(params).__name__}."
        )
    codes, known = checked_labels(y, len(x), classes, num_classes_of(apply, params, x))
    start = jax.tree.map(jnp.asarray, params)
    return Problem(Probabilities(apply), start, Rows(x, codes), form, known, prior)


def gamma_prior(precision: Any) -> Prior:
    """From the pair that users give."""
    try:
        shape, rate = precision
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(
            f"`precision` of BNN must be the pair (shape, rate) of a Gamma law, got {precision!r}."
        ) from error
    for value in (shape, rate):
        _checks.positive(value, "precision", "BNN")
    return Prior(float(shape), float(rate))
