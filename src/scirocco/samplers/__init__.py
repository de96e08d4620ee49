"""Samplers: moves of the position, given an estimate of the gradient. One file a family."""

from scirocco.samplers import schedules
from scirocco.samplers.base import Gradient, Reference, Sampler, Scales
from scirocco.samplers.blocks import Blocks, BlocksState, Gibbs
from scirocco.samplers.hamiltonian import BAOAB, SGHMC, HamiltonianState
from scirocco.samplers.langevin import PSGLD, SGLD, LangevinState, PreconditionedState
from scirocco.samplers.leaf_scaled import LeafScaledSGLD
from scirocco.samplers.matrices import LowRank
from scirocco.samplers.preconditioned import Preconditioned, WhitenedState
from scirocco.samplers.recipe import Recipe
from scirocco.samplers.riemannian import SGFS, SGRHMC, SGRLD, HMCDynamics
from scirocco.samplers.thermostat import BADODAB, SGNHT, ThermostatState
from scirocco.samplers.verify import Verification, verify_recipe

__all__ = [
    "BADODAB",
    "BAOAB",
    "PSGLD",
    "SGFS",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "SGRHMC",
    "SGRLD",
    "Blocks",
    "BlocksState",
    "Gibbs",
    "Gradient",
    "HMCDynamics",
    "HamiltonianState",
    "LangevinState",
    "LeafScaledSGLD",
    "LowRank",
    "Preconditioned",
    "PreconditionedState",
    "Recipe",
    "Reference",
    "Sampler",
    "Scales",
    "ThermostatState",
    "Verification",
    "WhitenedState",
    "schedules",
    "verify_recipe",
]
