"""Dirichlet-process mixtures: clusters without a given number of them."""

from scirocco.models.dp.concentration import Gamma
from scirocco.models.dp.estimator import DPMixture
from scirocco.models.dp.gaussian import Gaussian
from scirocco.models.dp.multinomial import Multinomial

__all__ = ["DPMixture", "Gamma", "Gaussian", "Multinomial"]
