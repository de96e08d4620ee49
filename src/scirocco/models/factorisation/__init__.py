"""Matrix factorisation: ratings of items by users."""

from scirocco.models.factorisation.estimator import BPMF

__all__ = ["BPMF"]
