"""Regressions with posterior draws of their coefficients."""

from scirocco.models.regression.linear import LinearRegression
from scirocco.models.regression.logistic import LogisticRegression

__all__ = ["LinearRegression", "LogisticRegression"]
