"""scirocco: Bayesian inference on data too large for ordinary MCMC.

The front door: everything public is here, or in the modules named here.
"""

from typing import Any

from scirocco import data, errors, reducers, transforms
from scirocco._version import __version__
from scirocco.estimators import (
    SAGA,
    SVRG,
    ControlVariates,
    Full,
    Minibatch,
    Weighted,
    empirical_fisher,
)
from scirocco.model import Model
from scirocco.run import Kernel, Run, load, resume, sample
from scirocco.samplers import (
    BADODAB,
    BAOAB,
    PSGLD,
    SGFS,
    SGHMC,
    SGLD,
    SGNHT,
    SGRHMC,
    SGRLD,
    HMCDynamics,
    LowRank,
    Recipe,
    schedules,
    verify_recipe,
)

__all__ = [
    "BADODAB",
    "BAOAB",
    "PSGLD",
    "SAGA",
    "SGFS",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "SGRHMC",
    "SGRLD",
    "SVRG",
    "ControlVariates",
    "Full",
    "HMCDynamics",
    "Kernel",
    "LowRank",
    "Minibatch",
    "Model",
    "Recipe",
    "Run",
    "Weighted",
    "__version__",
    "data",
    "empirical_fisher",
    "errors",
    "from_numpyro",
    "load",
    "reducers",
    "resume",
    "sample",
    "schedules",
    "sgmcmc",
    "transforms",
    "verify_recipe",
]


def __getattr__(name: str) -> Any:
    """Rooms that most users never enter are opened when they are asked for."""
    if name == "sgmcmc":
        import scirocco.sgmcmc as module

        return module
    if name == "from_numpyro":
        from scirocco.bridges import from_numpyro

        return from_numpyro
    raise AttributeError(f"module 'scirocco' has no attribute {name!r}")
