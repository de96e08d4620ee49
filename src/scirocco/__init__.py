"""scirocco: Bayesian inference on data too large for ordinary MCMC.

The front door: everything public is here, or in the modules named here.
"""

from scirocco import data, errors, transforms
from scirocco._version import __version__
from scirocco.estimators import SAGA, SVRG, ControlVariates, Full, Minibatch, Weighted
from scirocco.model import Model
from scirocco.run import Kernel, Run, sample
from scirocco.samplers import BADODAB, BAOAB, PSGLD, SGHMC, SGLD, SGNHT, schedules

__all__ = [
    "BADODAB",
    "BAOAB",
    "PSGLD",
    "SAGA",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "SVRG",
    "ControlVariates",
    "Full",
    "Kernel",
    "Minibatch",
    "Model",
    "Run",
    "Weighted",
    "__version__",
    "data",
    "errors",
    "sample",
    "schedules",
    "transforms",
]
