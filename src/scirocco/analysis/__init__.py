"""How far draws are from the law they should have."""

from __future__ import annotations

from scirocco.analysis.distances import ks_dirichlet

__all__ = ["ks_dirichlet"]
