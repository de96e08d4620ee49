"""Dirichlet-process mixtures: clusters without a given number of them."""

from scirocco.models.dp.estimator import DPMixture
from scirocco.models.dp.families import Gaussian, Multinomial
from scirocco.models.dp.settings import Gamma

__all__ = ["DPMixture", "Gamma", "Gaussian", "Multinomial"]
