"""A Dirichlet-process mixture of web visits: SCIR, SCIR-CV, SGRLD and Gibbs."""

from scirocco_papers.base import Experiment, run_of

EXPERIMENT = Experiment(
    name="dp-msweb",
    title="A Dirichlet-process mixture of web visits: SCIR, SCIR-CV, SGRLD and Gibbs",
    figure="Baker et al. (2018), figures 3b, 4b",
    run=run_of(__name__),
    duration="about 40 s; quick 10 s",
    needs=("scipy", "numba"),
    cite=("baker2018",),
)
