"""How far draws are from the law they should have."""

from __future__ import annotations

from scirocco.analysis.distances import ks_dirichlet
from scirocco.analysis.stein import Stein, ksd

__all__ = ["Stein", "ks_dirichlet", "ksd"]
