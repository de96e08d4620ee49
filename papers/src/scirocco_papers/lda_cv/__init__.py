"""Topic models of Wikipedia by SGLD with and without control variates."""

from scirocco_papers.base import Experiment, run_of

EXPERIMENT = Experiment(
    name="lda-cv",
    title="Topic models of Wikipedia by SGLD with and without control variates",
    figure="thesis, figure 3.5.5",
    run=run_of(__name__),
    duration="about 6 min; quick 5 s",
    needs=("scipy", "numba"),
    cite=("baker2018thesis", "baker2019"),
)
