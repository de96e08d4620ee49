"""Topic models whose draws are given, so that what is said about them can be checked exactly."""

import numpy as np

from scirocco.models import LDA
from scirocco.models.lda.chain import save
from scirocco.models.lda.settings import Size, resolve


def model_of(path, draws, words=None):
    """A model with these draws, (chain, draw, topic, word), by way of a store at `path`."""
    draws = np.asarray(draws, np.float32)
    model = LDA(draws.shape[2])
    model.vocabulary_ = words
    save(draws, {}, resolve(model.get_params(), Size(1, draws.shape[3])), model._extra(words), path, False)
    return LDA.load(path)
