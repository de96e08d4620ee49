r"""The concentration α of the Dirichlet process: fixed, or with a Gamma(b₁, b₂) prior and drawn."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from scirocco import _checks
from scirocco.errors import InvalidTypeError


class Gamma(NamedTuple):
    """A Gamma prior."""

    shape: float
    rate: float


def resolve(given: Any) -> Gamma | float:
    """A number, or a prior given as `Gamma(shape, rate)` or a pair."""
    if isinstance(given, (tuple, list)):
        if len(given) != 2:
            raise InvalidTypeError(f"`concentration` must be a number or Gamma(shape, rate), got {given!r}.")
        for value, name in zip(given, ("shape", "rate"), strict=True):
            _checks.positive(value, f"concentration's {name}")
        return Gamma(float(given[0]), float(given[1]))
    _checks.positive(given, "concentration")
    return float(given)


def start(prior: Gamma | float) -> float:
    """Where a chain begins."""
    return prior.shape / prior.rate if isinstance(prior, Gamma) else prior


def given_partition(
    rng: np.random.Generator, alpha: float, prior: Gamma | float, num_clusters: int, num_rows: int
) -> float:
    r"""α given a partition of `num_rows` rows into clusters, everything else integrated out (Escobar & West 1995).

    .. math:: p(α | k, N) ∝ p(α) α^k Γ(α)/Γ(α + N);

    η ~ Beta(α + 1, N) makes it a mixture of Gamma(b₁ + k, r) and Gamma(b₁ + k - 1, r) with r = b₂ - log η, odds
    (b₁ + k - 1) : N r.
    """
    if not isinstance(prior, Gamma) or num_rows == 0:
        return alpha
    rate = prior.rate - math.log(max(rng.beta(alpha + 1.0, num_rows), 1e-300))
    first = prior.shape + num_clusters - 1.0
    whole = rng.random() * (first + num_rows * rate) < first
    return max(float(rng.standard_gamma(first + whole)) / rate, 1e-10)
