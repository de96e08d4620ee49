"""Classes and functions at the front door, `sc.NAME`; imported, with JAX, when the first of them is asked for."""

# ruff: noqa: F401
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
