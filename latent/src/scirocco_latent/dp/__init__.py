"""Dirichlet-process mixtures: clustering with an unknown number of clusters."""

from scirocco_latent.dp.estimator import DPMixture
from scirocco_latent.dp.families import Gaussian, Multinomial
from scirocco_latent.dp.settings import Gamma

__all__ = ["DPMixture", "Gamma", "Gaussian", "Multinomial"]
