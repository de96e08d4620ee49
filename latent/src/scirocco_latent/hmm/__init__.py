"""Hidden Markov models: states behind one long series or many short ones."""

from scirocco_latent.hmm.estimator import HMM

__all__ = ["HMM"]
