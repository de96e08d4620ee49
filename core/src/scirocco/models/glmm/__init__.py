"""Generalised linear mixed models, from a formula."""

from scirocco.models.glmm.estimator import GLMM

__all__ = ["GLMM"]
