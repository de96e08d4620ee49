"""Logistic regression on covertype: SGLD, SGLD-CV, SAGA, and R's six samplers."""

from scirocco_papers.base import Experiment, run_of

EXPERIMENT = Experiment(
    name="logistic-covertype",
    title="Logistic regression on covertype: SGLD, SGLD-CV, SAGA, and R's six samplers",
    figure="thesis, figures 3.5.1, 3.5.2, 4.5.1, 4.6.2 and A.3.1",
    run=run_of(__name__),
    duration="about 3 min; quick 30 s",
    needs=("optax", "scipy"),
    cite=("baker2018thesis", "baker2019", "baker2019r"),
)
