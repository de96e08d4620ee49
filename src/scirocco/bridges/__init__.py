"""Interfaces to other libraries."""

from scirocco.bridges.numpyro import NumpyroProblem, from_numpyro

__all__ = ["NumpyroProblem", "from_numpyro"]
