"""Matrix factorisation of MovieLens 100k by SGLD, SGLD-CV and SAGA."""

from scirocco_papers.base import Experiment, run_of

EXPERIMENT = Experiment(
    name="bpmf-movielens",
    title="Matrix factorisation of MovieLens 100k by SGLD, SGLD-CV and SAGA",
    figure="thesis, figures 3.5.3, 3.5.4 and A.3.2",
    run=run_of(__name__),
    duration="about 7 min; quick 45 s",
    needs=("scipy",),
    cite=("baker2018thesis", "baker2019", "chen2014"),
)
