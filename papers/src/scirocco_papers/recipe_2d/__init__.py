"""The complete recipe: exploring a bent law."""

from scirocco_papers.base import Experiment, run_of

EXPERIMENT = Experiment(
    name="recipe-2d",
    title="The complete recipe: exploring a bent law",
    figure="Ma, Chen & Fox (2015), figure 2 right",
    run=run_of(__name__),
    duration="about 2 min; quick 20 s",
    cite=("ma2015",),
)
