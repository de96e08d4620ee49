"""Latent Dirichlet allocation: samplers of topics, corpora in the usual formats, diagnostics."""

from scirocco_latent.lda.alignment import align, topic_distance
from scirocco_latent.lda.corpus import Corpus, as_corpus
from scirocco_latent.lda.embedded import embedded_corpus
from scirocco_latent.lda.estimator import LDA
from scirocco_latent.lda.streams import DocumentStream
from scirocco_latent.lda.tokeniser import Tokeniser

__all__ = ["LDA", "Corpus", "DocumentStream", "Tokeniser", "align", "as_corpus", "embedded_corpus", "topic_distance"]
