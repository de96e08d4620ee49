"""Dirichlet-process mixtures: clustering with an unknown number of clusters."""

from scirocco.models.dp.estimator import DPMixture
from scirocco.models.dp.families import Gaussian, Multinomial
from scirocco.models.dp.settings import Gamma

__all__ = ["DPMixture", "Gamma", "Gaussian", "Multinomial"]
