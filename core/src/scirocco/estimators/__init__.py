"""Unbiased estimates of a sum over the data: exact, minibatch, weighted, control variates, SVRG, SAGA."""

from scirocco.data.batching import Batch, Batching
from scirocco.estimators.base import Context, Estimate, Estimator, Passes, Prepared, Summand, Traits, full_sum
from scirocco.estimators.bounds import empirical_fisher
from scirocco.estimators.mode import approach_mode, find_mode
from scirocco.estimators.plain import Full, Minibatch, Stratified, Weighted
from scirocco.estimators.reference import Referenced, measure_counts
from scirocco.estimators.taylor import Taylor, TaylorMemory
from scirocco.estimators.variance_reduced import SAGA, SVRG, ControlVariates

__all__ = [
    "SAGA",
    "SVRG",
    "Batch",
    "Batching",
    "Context",
    "ControlVariates",
    "Estimate",
    "Estimator",
    "Full",
    "Minibatch",
    "Passes",
    "Prepared",
    "Referenced",
    "Stratified",
    "Summand",
    "Taylor",
    "TaylorMemory",
    "Traits",
    "Weighted",
    "approach_mode",
    "empirical_fisher",
    "find_mode",
    "full_sum",
    "measure_counts",
]
