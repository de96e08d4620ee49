"""Latent Dirichlet allocation: topic models with a posterior."""

from scirocco.models.lda.corpus import Corpus, as_corpus
from scirocco.models.lda.estimator import LDA

__all__ = ["LDA", "Corpus", "as_corpus"]
