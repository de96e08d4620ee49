"""Samplers: moves of the position, given an estimate of the gradient. Each file has one family.

To write your own, inherit from `Sampler` as a `pytree_dataclass`; see "Add a sampler" in the documentation.
"""

from scirocco._tree import pytree_dataclass, static
from scirocco.samplers import schedules
from scirocco.samplers.base import (
    Gradient,
    Known,
    Mover,
    Needs,
    Proposer,
    Reference,
    Renewals,
    Sampler,
    coefficients,
    is_open,
    select,
)
from scirocco.samplers.blocks import Blocks, BlocksState, Gibbs
from scirocco.samplers.corrected import SGGMC, CorrectedState
from scirocco.samplers.events import SMH, BouncyParticle, Events, EventState, Expansion, SMHState, ZigZag
from scirocco.samplers.hamiltonian import BAOAB, SGHMC, HamiltonianState
from scirocco.samplers.jumps import Jumps
from scirocco.samplers.langevin import PSGLD, SGLD, LangevinState, LeafScaledSGLD, LeafScaledState, PreconditionedState
from scirocco.samplers.matrices import LowRank
from scirocco.samplers.momentum import MomentumSampler
from scirocco.samplers.preconditioned import Preconditioned, WhitenedState
from scirocco.samplers.recipe import SGFS, SGRHMC, SGRLD, HMCDynamics, Recipe
from scirocco.samplers.replicas import ReplicaExchange, ReplicaState
from scirocco.samplers.robust import SGBarker, SGZigZag, ZigZagState
from scirocco.samplers.scales import Excess, Scales, langevin_step, momentum_step
from scirocco.samplers.thermostat import BADODAB, SGNHT, ThermostatState
from scirocco.samplers.trajectories import HMC, MALA, NUTS, Trajectory, TrajectoryState
from scirocco.samplers.verify import Verification, verify_recipe

__all__ = [
    "BADODAB",
    "BAOAB",
    "HMC",
    "MALA",
    "NUTS",
    "PSGLD",
    "SGFS",
    "SGGMC",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "SGRHMC",
    "SGRLD",
    "SMH",
    "Blocks",
    "BlocksState",
    "BouncyParticle",
    "CorrectedState",
    "EventState",
    "Events",
    "Excess",
    "Expansion",
    "Gibbs",
    "Gradient",
    "HMCDynamics",
    "HamiltonianState",
    "Jumps",
    "Known",
    "LangevinState",
    "LeafScaledSGLD",
    "LeafScaledState",
    "LowRank",
    "MomentumSampler",
    "Mover",
    "Needs",
    "Preconditioned",
    "PreconditionedState",
    "Proposer",
    "Recipe",
    "Reference",
    "Renewals",
    "ReplicaExchange",
    "ReplicaState",
    "SGBarker",
    "SGZigZag",
    "SMHState",
    "Sampler",
    "Scales",
    "ThermostatState",
    "Trajectory",
    "TrajectoryState",
    "Verification",
    "WhitenedState",
    "ZigZag",
    "ZigZagState",
    "coefficients",
    "is_open",
    "langevin_step",
    "momentum_step",
    "pytree_dataclass",
    "schedules",
    "select",
    "static",
    "verify_recipe",
]
