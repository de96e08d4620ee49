"""Regressions with posterior draws of their coefficients."""

from scirocco.models.regression.generalised import NegativeBinomialRegression, PoissonRegression, StudentRegression
from scirocco.models.regression.linear import LinearRegression
from scirocco.models.regression.logistic import LogisticRegression, SoftmaxRegression

__all__ = [
    "LinearRegression",
    "LogisticRegression",
    "NegativeBinomialRegression",
    "PoissonRegression",
    "SoftmaxRegression",
    "StudentRegression",
]
