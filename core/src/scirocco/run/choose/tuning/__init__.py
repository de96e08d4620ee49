"""Automatic choice of step sizes and other settings: successive halving on the kernel Stein discrepancy."""

from scirocco.run.choose.tuning.candidates import WIDTH, check_over
from scirocco.run.choose.tuning.choice import METHODS, METRICS, NUM_STEPS, Choice, Tuning, tune_prepared
from scirocco.run.choose.tuning.race import Arena, Trial

__all__ = [
    "METHODS",
    "METRICS",
    "NUM_STEPS",
    "WIDTH",
    "Arena",
    "Choice",
    "Trial",
    "Tuning",
    "check_over",
    "tune_prepared",
]
