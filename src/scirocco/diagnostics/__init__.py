"""What draws of Markov chains are worth: effective sample sizes, R-hat, Monte Carlo errors, autocorrelations.

Every function takes draws as one array (chain, draw, ...), as the leaves of `run.draws` are, and looks at all numbers
of a draw at once.
"""

from scirocco.diagnostics.measures import autocorrelation, ess, mcse, rhat

__all__ = ["autocorrelation", "ess", "mcse", "rhat"]
