"""scirocco: Bayesian inference on data too large for ordinary MCMC.

The front door: everything public is here, or in the modules named here.
"""

import importlib
from typing import Any

# `_interrupt` comes first: the others import JAX, which takes seconds
from scirocco import (  # noqa: F401
    _interrupt,
    data,
    diagnostics,
    diffusions,
    errors,
    estimators,
    reducers,
    samplers,
    simplex,
    transforms,
)
from scirocco._version import __version__
from scirocco.estimators import (
    SAGA,
    SVRG,
    ControlVariates,
    Full,
    Minibatch,
    Stratified,
    Weighted,
    empirical_fisher,
)
from scirocco.model import BlockModel, CountModel, Model, Statistics
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
    Blocks,
    Gibbs,
    HMCDynamics,
    LeafScaledSGLD,
    LowRank,
    Preconditioned,
    Recipe,
    schedules,
    verify_recipe,
)
from scirocco.simplex import SCIR, SCIRCV, SimplexSGRLD

__all__ = [
    "BADODAB",
    "BAOAB",
    "PSGLD",
    "SAGA",
    "SCIR",
    "SCIRCV",
    "SGFS",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "SGRHMC",
    "SGRLD",
    "SVRG",
    "BlockModel",
    "Blocks",
    "ControlVariates",
    "CountModel",
    "Full",
    "Gibbs",
    "HMCDynamics",
    "Kernel",
    "LeafScaledSGLD",
    "LowRank",
    "Minibatch",
    "Model",
    "Preconditioned",
    "Recipe",
    "Run",
    "SimplexSGRLD",
    "Statistics",
    "Stratified",
    "Weighted",
    "__version__",
    "analysis",
    "cluster",
    "combine",
    "data",
    "datasets",
    "diagnostics",
    "diffusions",
    "empirical_fisher",
    "errors",
    "estimators",
    "from_numpyro",
    "load",
    "models",
    "reducers",
    "report",
    "resume",
    "sample",
    "samplers",
    "schedules",
    "sgmcmc",
    "simplex",
    "transforms",
    "verify_recipe",
]


def __getattr__(name: str) -> Any:
    """Rooms that most users never enter are opened when they are asked for."""
    if name in ("sgmcmc", "analysis", "models", "datasets", "combine", "cluster", "report"):
        return importlib.import_module(f"scirocco.{name}")
    if name == "from_numpyro":
        from scirocco.bridges import from_numpyro

        return from_numpyro
    raise AttributeError(f"module 'scirocco' has no attribute {name!r}")
