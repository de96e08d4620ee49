"""Interfaces to other libraries."""

from scirocco.bridges._common import ConvertedModel
from scirocco.bridges.numpyro import from_numpyro
from scirocco.bridges.pymc import from_pymc

__all__ = ["ConvertedModel", "from_numpyro", "from_pymc"]
