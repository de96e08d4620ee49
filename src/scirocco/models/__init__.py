"""Models that people come with, ready to fit."""

from scirocco.models.lda import LDA

__all__ = ["LDA"]
