"""Bayesian neural networks for classification: any pure JAX function, weights drawn from their posterior."""

from scirocco.models.network.estimator import BNN

__all__ = ["BNN"]
