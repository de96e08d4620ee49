"""Models of networks."""

from scirocco.models.graph.estimator import StochasticBlockModel
from scirocco.models.graph.links import held_out_links

__all__ = ["StochasticBlockModel", "held_out_links"]
