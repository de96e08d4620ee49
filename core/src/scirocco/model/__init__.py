"""Models: a log density with gradients per row, or Dirichlet and gamma posteriors with counts per row."""

from scirocco.model.base import Posterior, WithValue, without_value
from scirocco.model.blocks import BlockModel, BlockView, Statistics
from scirocco.model.counts import CountModel, CountSum
from scirocco.model.density import GradientSum, Model
from scirocco.model.groups import HierarchicalModel

__all__ = [
    "BlockModel",
    "BlockView",
    "CountModel",
    "CountSum",
    "GradientSum",
    "HierarchicalModel",
    "Model",
    "Posterior",
    "Statistics",
    "WithValue",
    "without_value",
]
