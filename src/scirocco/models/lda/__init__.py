"""Latent Dirichlet allocation: samplers of topics, corpora in the usual formats, diagnostics."""

from scirocco.models.lda.alignment import align, topic_distance
from scirocco.models.lda.corpus import Corpus, as_corpus
from scirocco.models.lda.embedded import embedded_corpus
from scirocco.models.lda.estimator import LDA
from scirocco.models.lda.streams import DocumentStream
from scirocco.models.lda.tokeniser import Tokeniser

__all__ = [
    "LDA",
    "Corpus",
    "DocumentStream",
    "Tokeniser",
    "align",
    "as_corpus",
    "embedded_corpus",
    "topic_distance",
]
