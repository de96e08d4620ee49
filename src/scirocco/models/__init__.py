"""Models that people come with, ready to fit."""

from scirocco.models.dp import DPMixture
from scirocco.models.factorisation import BPMF
from scirocco.models.lda import LDA
from scirocco.models.mixture import GaussianMixture
from scirocco.models.network import BNN
from scirocco.models.regression import LinearRegression, LogisticRegression

__all__ = [
    "BNN",
    "BPMF",
    "LDA",
    "DPMixture",
    "GaussianMixture",
    "LinearRegression",
    "LogisticRegression",
]
