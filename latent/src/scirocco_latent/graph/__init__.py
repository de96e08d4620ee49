"""Models of networks."""

from scirocco_latent.graph.estimator import StochasticBlockModel
from scirocco_latent.graph.links import held_out_links
from scirocco_latent.graph.mixed import MixedMembership

__all__ = ["MixedMembership", "StochasticBlockModel", "held_out_links"]
