"""Log likelihoods of a linear predictor, with bounds on their derivatives, from the families of responses.

For ℓ(η) with |ℓ″| ≤ c and |ℓ‴| ≤ t the bounds of `sc.Model` are B_i v = √c η_i(v) and κ = t / c^(3/2). The families
have c and t, with their proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from scirocco import _checks
from scirocco.errors import InvalidTypeError
from scirocco.model.families import FAMILIES
from scirocco.types import Array, Datum, Params


def predictor(params: Params, row: Datum) -> Array:
    """xᵀβ for an array β, (d,) or (classes, d); with the intercept b for {"coef": β, "intercept": b}."""
    if isinstance(params, dict):
        return params["coef"] @ row["x"] + params.get("intercept", 0.0)
    return params @ row["x"]


@dataclass(frozen=True)
class LinearLikelihood:
    """The log likelihood of one row {x, y}, as a function of the linear predictor, up to a constant.

    `parameters` are the names and values of the family's own parameters.
    """

    family: str
    predictor: Callable[[Params, Datum], Any] = predictor
    parameters: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        _checks.choice(self.family, "family", tuple(FAMILIES))
        values, wanted = dict(self.parameters), FAMILIES[self.family].parameters
        if values.keys() != set(wanted):
            raise InvalidTypeError(
                f"the {self.family} family has {_listed(wanted)}, got {_listed(tuple(values))}: pass a value of each."
            )
        for name, value in values.items():
            _checks.positive(value, name)

    def __call__(self, params: Params, row: Datum) -> Array:
        """The value."""
        return FAMILIES[self.family].log_density(row, self.predictor(params, row), dict(self.parameters))

    def derivatives(self) -> tuple[float, float] | None:
        """Bounds of the second and the third derivative in η; None: there are none."""
        return FAMILIES[self.family].bound(dict(self.parameters))

    def bound(self, direction: Params, row: Datum) -> Array:
        """√c η(v), where η may have a constant part; of several classes without its mean, which changes nothing."""
        bounds = self.derivatives()
        assert bounds is not None
        zero = jax.tree.map(jnp.zeros_like, direction)
        eta = jax.jvp(lambda at: self.predictor(at, row), (zero,), (direction,))[1]
        return math.sqrt(bounds[0]) * (eta - jnp.mean(eta) if FAMILIES[self.family].has_classes else eta)


def _listed(names: tuple[str, ...]) -> str:
    return f"the parameter{'s' * (len(names) > 1)} {', '.join(names)}" if names else "no parameters"
