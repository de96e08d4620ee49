"""SGLD-CV and NUTS as the data grow."""

from scirocco_papers.base import Experiment, run_of

EXPERIMENT = Experiment(
    name="gaussian-scaling",
    title="SGLD-CV and NUTS as the data grow",
    figure="thesis, figure 4.2.1",
    run=run_of(__name__),
    duration="about 3 min; quick 10 s",
    needs=("numpyro",),
    cite=("baker2018thesis", "baker2019r"),
)
