"""Matrix factorisation: ratings of items by users."""

from scirocco_latent.factorisation.estimator import BPMF

__all__ = ["BPMF"]
