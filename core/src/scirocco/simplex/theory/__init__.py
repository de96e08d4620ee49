"""Exact moments and distributions of the samplers on the simplex: one component, independent batches, float64.

`moments` and `stationary` give the mean and variance of a chain, `mgf` its whole distribution, `papers` the papers' own
formulas. The samplers are tested against these, and you can use them to choose a step size before a run.
"""

from __future__ import annotations

from scirocco.simplex.theory import papers
from scirocco.simplex.theory.counts import Counts, variance_of_estimate
from scirocco.simplex.theory.recursions import (
    Correction,
    Moments,
    conditional_variance,
    correction,
    inflation,
    moments,
    stationary,
)
from scirocco.simplex.theory.steps import Transition, conditional_mgf, mgf, rates, transition

__all__ = [
    "Correction",
    "Counts",
    "Moments",
    "Transition",
    "conditional_mgf",
    "conditional_variance",
    "correction",
    "inflation",
    "mgf",
    "moments",
    "papers",
    "rates",
    "stationary",
    "transition",
    "variance_of_estimate",
]
