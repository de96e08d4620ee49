"""Samplers: moves of the position, given an estimate of the gradient. One file a family."""

from scirocco.samplers import schedules
from scirocco.samplers.base import Gradient, Sampler, Scales
from scirocco.samplers.hamiltonian import BAOAB, SGHMC, HamiltonianState
from scirocco.samplers.langevin import PSGLD, SGLD, LangevinState, PreconditionedState
from scirocco.samplers.thermostat import BADODAB, SGNHT, ThermostatState

__all__ = [
    "BADODAB",
    "BAOAB",
    "PSGLD",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "Gradient",
    "HamiltonianState",
    "LangevinState",
    "PreconditionedState",
    "Sampler",
    "Scales",
    "ThermostatState",
    "schedules",
]
