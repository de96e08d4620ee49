"""Models of networks."""

from scirocco.models.graph.estimator import StochasticBlockModel
from scirocco.models.graph.links import held_out_links
from scirocco.models.graph.mixed import MixedMembership

__all__ = ["MixedMembership", "StochasticBlockModel", "held_out_links"]
