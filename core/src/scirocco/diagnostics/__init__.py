"""Diagnostics of Markov chains: effective sample sizes, R-hat, Monte Carlo errors, autocorrelations.

Every function takes draws as one array (chain, draw, ...), like the leaves of `run.draws`, and handles all parameters
at once.
"""

from scirocco.diagnostics.measures import autocorrelation, ess, mcse, rhat

__all__ = ["autocorrelation", "ess", "mcse", "rhat"]
