"""Topic models of Wikipedia by the samplers of the complete recipe."""

from scirocco_papers.base import Experiment, run_of

EXPERIMENT = Experiment(
    name="lda-recipe",
    title="Topic models of Wikipedia by the samplers of the complete recipe",
    figure="Ma, Chen & Fox (2015), figure 3",
    run=run_of(__name__),
    duration="about 2 min; quick 5 s",
    needs=("scipy", "numba"),
    cite=("ma2015", "patterson2013"),
)
