"""Divide and conquer: the posterior from draws of subposteriors, each made from a part of the data."""

from __future__ import annotations

from scirocco.combine.divide import subposteriors
from scirocco.combine.draws import Combined
from scirocco.combine.gaussian import consensus, gaussian_product
from scirocco.combine.kdemc import kdemc
from scirocco.combine.shards import Subposteriors, load
from scirocco.combine.weierstrass import weierstrass

__all__ = [
    "Combined",
    "Subposteriors",
    "consensus",
    "gaussian_product",
    "kdemc",
    "load",
    "subposteriors",
    "weierstrass",
]
