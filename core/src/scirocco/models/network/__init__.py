"""Bayesian neural networks for classification: any pure JAX function, with posterior draws of its weights."""

from scirocco.models.network.estimator import BNN

__all__ = ["BNN"]
