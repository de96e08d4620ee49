"""The complete recipe: with Γ and without."""

from scirocco_papers.base import Experiment, run_of

EXPERIMENT = Experiment(
    name="recipe-1d",
    title="The complete recipe: with Γ and without",
    figure="Ma, Chen & Fox (2015), figure 2 left",
    run=run_of(__name__),
    duration="about 30 s; quick 15 s",
    cite=("ma2015",),
)
