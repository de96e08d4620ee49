"""Hidden Markov models: states behind one long series or many short ones."""

from scirocco.models.hmm.estimator import HMM

__all__ = ["HMM"]
