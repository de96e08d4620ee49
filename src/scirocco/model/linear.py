r"""Log likelihoods of a linear predictor, with bounds on their derivatives.

For ℓ(η) with |ℓ''| ≤ c and |ℓ'''| ≤ t the bounds of `sc.Model` are B_i v = √c η_i(v) and κ = t / c^(3/2).

bernoulli
    ℓ = yη - log(1 + e^η), with σ = 1/(1 + e^(-η)): -ℓ'' = σ(1 - σ) ≤ 1/4, at σ = 1/2. |ℓ'''| = σ(1 - σ)|1 - 2σ|; with
    s = 1 - 2σ it is |s|(1 - s²)/4, largest at s² = 1/3: t = 1/(6√3).
normal, of standard deviation s
    -ℓ'' = 1/s², ℓ''' = 0.
student, of ν degrees of freedom and scale s
    ℓ = -(ν + 1)/2 log(1 + z²/ν), z = (y - η)/s. -ℓ'' = (ν + 1)(ν - z²) / (s²(ν + z²)²): (ν + 1)/(νs²) at z = 0, and at
    z² = 3ν, the minimum, -1/8 of it. |ℓ'''| = (ν + 1)/(ν^(3/2) s³) |2x(x² - 3)|/(1 + x²)³ with x = z/√ν. The last
    factor is largest at x² = 3 - 2√2, where it is (3 + 2√2)/4.
softmax, η of several classes
    ℓ = η_y - log Σ_k e^(η_k). -∇²ℓ = diag(p) - pp', the covariance of a class indicator: for a vector a with a number
    for each class a'(diag(p) - pp')a = Var(a) ≤ (max a - min a)²/4 ≤ |a|²/2: c = 1/2. |∇³ℓ[a, b, e]| =
    |E (a - Ea)(b - Eb)(e - Ee)| ≤ (max e - min e) √(Var(a) Var(b)) ≤ √2 |e| · |a| |b| / 2: t = 1/√2. All of
    this holds for a - mean(a) in place of a: a number that is added to all η_k changes nothing.
poisson, with a log link
    ℓ = yη - e^η: -ℓ'' = e^η has no bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from scirocco import _checks
from scirocco.types import Array, Datum, Params

FAMILIES = ("bernoulli", "normal", "student", "softmax", "poisson")


def predictor(params: Params, row: Datum) -> Array:
    """xᵀβ for an array β, (d,) or (classes, d); with the intercept b for {"coef": β, "intercept": b}."""
    if isinstance(params, dict):
        return params["coef"] @ row["x"] + params.get("intercept", 0.0)
    return params @ row["x"]


@dataclass(frozen=True)
class LinearLikelihood:
    """The log likelihood of one row {x, y}, as a function of the linear predictor, up to a constant."""

    family: str
    predictor: Callable[[Params, Datum], Any] = predictor
    scale: float = 1.0
    freedom: float = 4.0

    def __post_init__(self) -> None:
        _checks.choice(self.family, "family", FAMILIES)
        _checks.positive(self.scale, "scale")
        _checks.positive(self.freedom, "freedom")

    def __call__(self, params: Params, row: Datum) -> Array:
        """The value."""
        eta, y = self.predictor(params, row), row["y"]
        if self.family == "bernoulli":
            return y * eta - jax.nn.softplus(eta)
        if self.family == "poisson":
            return y * eta - jnp.exp(eta)
        if self.family == "softmax":
            return eta[y.astype(int)] - jax.nn.logsumexp(eta)
        z = (y - eta) / self.scale
        if self.family == "normal":
            return -0.5 * z**2
        return -0.5 * (self.freedom + 1) * jnp.log1p(z**2 / self.freedom)

    def derivatives(self) -> tuple[float, float] | None:
        """Bounds of the second and the third derivative in η; None: there are none."""
        nu, s = self.freedom, self.scale
        return {
            "bernoulli": (0.25, 1 / (6 * math.sqrt(3))),
            "normal": (s**-2, 0.0),
            "student": ((nu + 1) / (nu * s**2), (3 + 2 * math.sqrt(2)) / 4 * (nu + 1) / (nu**1.5 * s**3)),
            "softmax": (0.5, math.sqrt(0.5)),
        }.get(self.family)

    def bound(self, direction: Params, row: Datum) -> Array:
        """√c η(v), where η may have a constant part; with "softmax" without its mean, which changes nothing."""
        known = self.derivatives()
        assert known is not None
        zero = jax.tree.map(jnp.zeros_like, direction)
        eta = jax.jvp(lambda at: self.predictor(at, row), (zero,), (direction,))[1]
        return math.sqrt(known[0]) * (eta - jnp.mean(eta) if self.family == "softmax" else eta)
