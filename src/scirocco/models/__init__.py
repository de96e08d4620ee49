"""Models that people come with, ready to fit."""

from scirocco.models.dp import DPMixture
from scirocco.models.lda import LDA

__all__ = ["LDA", "DPMixture"]
