"""The laws of the samplers on the simplex as functions: one component, independent batches, double precision.

`moments` and `stationary` say what mean and variance a chain has, `mgf` gives its whole law, `papers` has the papers'
own formulas. The samplers are tested against these, and a step size may be chosen by them before anything is run.
"""

from __future__ import annotations

from scirocco.simplex.theory import papers
from scirocco.simplex.theory.counts import Counts, variance_of_estimate
from scirocco.simplex.theory.recursions import Moments, conditional_variance, inflation, moments, stationary
from scirocco.simplex.theory.steps import Transition, conditional_mgf, mgf, rates, transition

__all__ = [
    "Counts",
    "Moments",
    "Transition",
    "conditional_mgf",
    "conditional_variance",
    "inflation",
    "mgf",
    "moments",
    "papers",
    "rates",
    "stationary",
    "transition",
    "variance_of_estimate",
]
