"""Samplers on the probability simplex and on (0, ∞), driven by counts; their theory."""

from scirocco.simplex import theory
from scirocco.simplex.lazy import LazySCIR
from scirocco.simplex.scir import SCIR, SCIRCV, GammaState, SimplexSGRLD

__all__ = ["SCIR", "SCIRCV", "GammaState", "LazySCIR", "SimplexSGRLD", "theory"]
