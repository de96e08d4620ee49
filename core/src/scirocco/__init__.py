"""scirocco: Bayesian inference on data too large for ordinary MCMC.

The top level of the package: everything public is here, or in the modules named here. Names are imported when they
are first used, so that a command that prints the version does not wait for JAX.
"""

# ruff: noqa: F403, F405
import difflib
import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from scirocco import _interrupt  # noqa: F401  (before all else)
from scirocco._version import __version__

if TYPE_CHECKING:
    from scirocco import (
        analysis,
        cluster,
        combine,
        data,
        datasets,
        diagnostics,
        diffusions,
        errors,
        estimators,
        models,
        reducers,
        report,
        samplers,
        sgmcmc,
        simplex,
        transforms,
    )
    from scirocco._public import *
    from scirocco.bridges import from_numpyro, from_pymc

__all__ = [
    "BADODAB",
    "BAOAB",
    "HMC",
    "MALA",
    "NUTS",
    "PSGLD",
    "SAGA",
    "SCIR",
    "SCIRCV",
    "SGFS",
    "SGGMC",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "SGRHMC",
    "SGRLD",
    "SMH",
    "SVRG",
    "BlockModel",
    "Blocks",
    "BouncyParticle",
    "ControlVariates",
    "CountModel",
    "Full",
    "Gibbs",
    "HMCDynamics",
    "HierarchicalModel",
    "Kernel",
    "LeafScaledSGLD",
    "LowRank",
    "Minibatch",
    "Model",
    "Preconditioned",
    "Recipe",
    "ReplicaExchange",
    "Run",
    "SGBarker",
    "SGZigZag",
    "SimplexSGRLD",
    "Statistics",
    "Stratified",
    "Taylor",
    "Weighted",
    "ZigZag",
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
    "from_pymc",
    "laplace",
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
    """A subpackage, or a name of `_public`."""
    if not name.startswith("_") and importlib.util.find_spec(f"scirocco.{name}") is not None:
        return importlib.import_module(f"scirocco.{name}")
    if name in ("from_numpyro", "from_pymc"):
        return getattr(importlib.import_module("scirocco.bridges"), name)
    if name in __all__:
        value = globals()[name] = getattr(importlib.import_module("scirocco._public"), name)
        return value
    meant = difflib.get_close_matches(name.lower(), [known.lower() for known in __all__], 1)
    ours = "".join(f" Did you mean `sc.{known}`?" for known in __all__ if known.lower() in meant)
    raise AttributeError(f"module 'scirocco' has no attribute {name!r}.{ours}")


def __dir__() -> list[str]:
    return __all__
