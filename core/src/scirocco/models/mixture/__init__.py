"""Finite mixtures of Gaussians: means by stochastic gradients, weights exactly on the simplex."""

from scirocco.models.mixture.estimator import GaussianMixture

__all__ = ["GaussianMixture"]
