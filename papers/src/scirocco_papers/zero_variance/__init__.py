"""Zero-variance control variates after SGLD-CV, on covertype."""

from scirocco_papers.base import Experiment, run_of

EXPERIMENT = Experiment(
    name="zero-variance",
    title="Zero-variance control variates after SGLD-CV, on covertype",
    figure="thesis, figures 3.5.2 and 3.5.4, theorem 3.4.2",
    run=run_of(__name__),
    duration="about 30 s; quick 15 s",
    needs=("scipy",),
    cite=("baker2018thesis", "baker2019", "mira2013"),
)
