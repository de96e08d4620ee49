"""Exact diffusions: processes whose transitions can be drawn without discretisation error, and the kernels for that.

Everything here is plain JAX: it compiles, vectorises and runs on accelerators. `scirocco.diffusions.host` has the same
transitions as compiled, multi-threaded CPU kernels for loops on the host.
"""

from scirocco.diffusions.processes import (
    beta_pair,
    cir,
    generalised_gamma,
    inverse_gamma,
    log_normal,
    ornstein_uhlenbeck,
)
from scirocco.diffusions.variates import gamma, poisson
from scirocco.diffusions.wright_fisher import wright_fisher

__all__ = [
    "beta_pair",
    "cir",
    "gamma",
    "generalised_gamma",
    "inverse_gamma",
    "log_normal",
    "ornstein_uhlenbeck",
    "poisson",
    "wright_fisher",
]
