"""Models that people come with, ready to fit."""

from scirocco.models.dp import DPMixture
from scirocco.models.lda import LDA
from scirocco.models.mixture import GaussianMixture

__all__ = ["LDA", "DPMixture", "GaussianMixture"]
